"""nsq_to_http: what --on-status says of a refusal, and what becomes of the message."""

from __future__ import annotations

import pytest

from nsqclient import Message, PublishUnknown, Requeue
from nsqclient.cli import main
from nsqclient.cli.http_requests import Failed
from nsqclient.cli.http_sender import Sender
from nsqclient.cli.status_policy import Outcome, outcome_of, parse_rule
from nsqclient.cli.timings import Timings


@pytest.mark.parametrize("text, first, last, outcome", [
    ("404=drop", 404, 404, Outcome.DROP), ("4xx=dead-letter", 400, 499, Outcome.DEAD_LETTER),
    ("500-503=retry", 500, 503, Outcome.RETRY), ("301=drop", 301, 301, Outcome.DROP),
])
def test_a_rule(text, first, last, outcome):
    """One status, a hundred, or a range, and what they mean."""
    assert parse_rule(text) == (first, last, outcome)


@pytest.mark.parametrize("text", [
    "", "404", "404=", "=drop", "404=fly", "200=drop", "2xx=drop", "600=drop", "4x=drop",
    "404=arrived", "450-420=drop", "404-=drop", "\u0664xx=drop",
])
def test_no_rule(text):
    """Statuses of success have no rule: they mean that it arrived."""
    with pytest.raises(ValueError, match="write STATUS=ACTION|empty range"):
        parse_rule(text)


def test_the_first_rule_that_fits_counts():
    """Exceptions stand in front; what no rule names, and what is no answer, is tried again."""
    rules = [parse_rule(text) for text in ("429=retry", "4xx=drop", "400-599=dead-letter")]
    outcomes = [outcome_of(status, rules) for status in (429, 404, 500, 302, None)]
    assert outcomes == [Outcome.RETRY, Outcome.DROP, Outcome.DEAD_LETTER, Outcome.RETRY,
                        Outcome.RETRY]


class Answers:
    """A Responder that nobody asks for anything."""

    address = "h:1"

    def touch(self, message):
        """Nothing."""


class Statuses:
    """Sends nothing; the URL is the status that it answers with."""

    def __init__(self):
        self.sent = []

    def send(self, url, body):
        """Note it, or fail."""
        self.sent.append(url)
        if url != "200":
            raise Failed(f"HTTP {url}", int(url))


def send(urls, rules, mode="round-robin", keep=None):
    """Handle one message; return the URLs that were tried."""
    requests = Statuses()
    parsed = [parse_rule(rule) for rule in rules]
    sender = Sender(urls, mode, requests, Timings(urls, 0), rules=parsed, keep=keep)
    sender.handle(Message(b"x", b"0123456789abcdef", 1, 0, 0, 60, Answers()))
    return requests.sent


def test_what_is_dropped_goes_to_no_other_url():
    """The refusal is about the message: it is finished."""
    assert send(["404", "200"], ["404=drop"]) == ["404"]


def test_a_retry_before_a_refusal_goes_on():
    """A dead URL, then one that refuses for good: the second word counts."""
    kept = []
    assert send(["503", "404", "200"], ["4xx=dead-letter"], keep=kept.append) == ["503", "404"]
    assert [message.body for message in kept] == [b"x"]


def test_with_all_every_url_has_its_say():
    """One that wants a retry comes before one that has refused for good."""
    kept = []
    with pytest.raises(Requeue) as caught:
        send(["404", "503"], ["4xx=dead-letter"], "all", kept.append)
    assert caught.value.backoff is False and not kept
    assert send(["404", "200"], ["4xx=dead-letter"], "all", kept.append) == ["404", "200"]
    assert len(kept) == 1


def test_what_cannot_be_kept_comes_again():
    """The dead-letter topic cannot be reached: the message goes back."""
    def keep(message):
        raise PublishUnknown("on purpose")

    with pytest.raises(Requeue) as caught:
        send(["404"], ["404=dead-letter"], keep=keep)
    assert caught.value.backoff


POST = ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--post=https://h/"]
TLS = "--http-client-tls-"


@pytest.mark.parametrize("words, status, text", [
    (["--on-status=4xx"], 2, "write STATUS=ACTION"),
    (["--on-status=4xx=dead-letter"], 1, "needs --dead-letter-topic"),
    (["--dead-letter-topic=d"], 1, "needs --on-status=STATUS=dead-letter or"),
    (["--on-status=4xx=dead-letter", "--dead-letter-topic=a b"], 1, "is invalid"),
    ([f"{TLS}cert=x.pem"], 1, "go together"),
    ([f"{TLS}root-ca-file=x.pem", f"{TLS}insecure-skip-verify"], 1, "not both"),
    ([f"{TLS}root-ca-file=/no/such.pem"], 1, "/no/such.pem"),
    ([f"{TLS}cert=/no/c.pem", f"{TLS}key=/no/k.pem"], 1, "/no/c.pem"),
])
def test_what_it_refuses(words, status, text, capsys):
    """What does not go together, and files that are not there."""
    assert main(["nsq_to_http", *POST, *words]) == status
    assert text in capsys.readouterr().err
