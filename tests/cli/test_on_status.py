"""nsq_to_http: what --on-status says of a refusal, and what becomes of the message."""

from __future__ import annotations

import contextlib

import pytest

from nsqclient import GiveUp, Message, Requeue
from nsqclient.cli import main
from nsqclient.cli.http_sender import RequestFailed, Sender, parse_rule
from nsqclient.cli.load_balancing import RequestTimes


@pytest.mark.parametrize("text, first, last, outcome", [
    ("404=drop", 404, 404, "drop"),
    ("4xx=dead-letter", 400, 499, "dead-letter"),
    ("500-503=retry", 500, 503, "retry"), ("301=drop", 301, 301, "drop"),
])
def test_a_rule_has_statuses_and_an_action(text, first, last, outcome):
    """One status, a hundred, or a range, and what they mean."""
    assert parse_rule(text) == (first, last, outcome)


@pytest.mark.parametrize("text", [
    "", "404", "404=", "=drop", "404=fly", "200=drop", "2xx=drop", "600=drop", "4x=drop",
    "404=arrived", "450-420=drop", "404-=drop", "\u0664xx=drop",
])
def test_an_invalid_rule_is_rejected(text):
    """Statuses of success have no rule: they mean that it arrived."""
    with pytest.raises(ValueError, match="write STATUS=ACTION|empty range"):
        parse_rule(text)


class Answers:
    """A Responder that does nothing."""

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
            raise RequestFailed(f"HTTP {url}", int(url))


def send(urls, rules, mode="round-robin", requests=None):
    """Handle one message; return the URLs that were tried."""
    requests = Statuses() if requests is None else requests
    parsed = [parse_rule(rule) for rule in rules]
    sender = Sender(urls, mode, requests, RequestTimes(urls, 0), rules=parsed)
    sender.handle(Message(b"x", b"0123456789abcdef", 1, 0, 0, 60, Answers()))
    return requests.sent


@pytest.mark.parametrize("status, error", [
    ("429", Requeue), ("404", None), ("500", GiveUp), ("302", Requeue),
])
def test_the_first_rule_that_fits_counts(status, error):
    """Exceptions stand in front; what no rule names is tried again."""
    rules = ["429=retry", "4xx=drop", "400-599=dead-letter"]
    with pytest.raises(error) if error else contextlib.nullcontext():
        send([status], rules)


def test_a_dropped_message_goes_to_no_other_url():
    """The message itself is rejected, so it is finished."""
    assert send(["404", "200"], ["404=drop"]) == ["404"]


def test_a_retry_is_followed_by_the_next_url():
    """The first URL fails, the second rejects the message: the second outcome counts."""
    requests = Statuses()
    with pytest.raises(GiveUp, match="^404: HTTP 404$"):
        send(["503", "404", "200"], ["4xx=dead-letter"], requests=requests)
    assert requests.sent == ["503", "404"]


def test_mode_all_retries_before_it_dead_letters():
    """A URL that failed is retried before a rejection by another counts."""
    requests = Statuses()
    with pytest.raises(Requeue) as caught:
        send(["404", "503"], ["4xx=dead-letter"], "all")
    assert caught.value.backoff is False and "HTTP 503" in str(caught.value.__cause__)
    with pytest.raises(GiveUp):
        send(["404", "200"], ["4xx=dead-letter"], "all", requests)
    assert requests.sent == ["404", "200"]


POST = ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--post=https://h/"]
TLS = "--http-client-tls-"


@pytest.mark.parametrize("words, status, text", [
    (["--on-status=4xx"], 2, "write STATUS=ACTION"),
    (["--on-status=4xx=dead-letter"], 1, "needs --dead-letter-topic"),
    (["--dead-letter-topic=d"], 1, "needs --on-status=STATUS=dead-letter or"),
    ([f"{TLS}root-ca-file=/no/such.pem"], 1, "/no/such.pem"),
    ([f"{TLS}cert=/no/c.pem", f"{TLS}key=/no/k.pem"], 1, "/no/c.pem"),
])
def test_an_invalid_command_line_is_an_error(words, status, text, capsys):
    """What does not go together, and files that are not there."""
    assert main(["nsq_to_http", *POST, *words]) == status
    assert text in capsys.readouterr().err
