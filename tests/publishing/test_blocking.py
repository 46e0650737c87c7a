"""One publish in the calling thread: what each verdict leads to."""

from __future__ import annotations

import threading

import pytest

from nsqclient.errors import (
    ClosedError,
    ConnectionLostError,
    DiscoveryError,
    NegotiationError,
    PublishNotSent,
    PublishRejected,
    PublishUnknown,
    server_error,
)
from nsqclient.publishing.blocking import BlockingPublish
from nsqclient.publishing.verdicts import Verdict
from nsqclient.runtime.deadline import Deadline
from tests.support.fake_links import FakeLinks

LOST = ConnectionLostError("nsqd:4150", "reset by the peer")
DISK = server_error(b"E_PUB_FAILED disk")
TOO_BIG = server_error(b"E_BAD_MESSAGE too big")


class AnsweringLinks(FakeLinks):
    """Settles each publish at once, with the next of the given verdicts."""

    def __init__(self, *answers):
        super().__init__()
        self._answers = list(answers)

    def send(self, command, token, deadline):
        """Send, and answer."""
        super().send(command, token, deadline)
        if self._answers:
            token.settle(*self._answers.pop(0))
        if not self._answers:
            self.go_down()


def publish(*answers, timeout=0.3, retry_unknown=True, command=b"PUB t\n\0\0\0\1x", prepare=None):
    """Publish to an nsqd that gives these answers; return how often it was sent, and retried."""
    links = AnsweringLinks(*answers)
    if prepare is not None:
        prepare(links)
    retries = []
    blocking = BlockingPublish(links, 5_000, retry_unknown, lambda: retries.append(1))
    blocking.publish(command, Deadline(timeout))
    return len(links.sent), len(retries)


def test_stored_at_once():
    """One OK, one try."""
    assert publish((Verdict.STORED,)) == (1, 0)


@pytest.mark.parametrize(
    "answer",
    [(Verdict.NOT_READ, TOO_BIG), (Verdict.UNKNOWN, LOST), (Verdict.REJECTED, DISK)],
    ids=["not read", "unknown", "disk"],
)
def test_what_may_pass_is_tried_again(answer):
    """A lost connection or a full disk costs a retry."""
    assert publish(answer, (Verdict.STORED,)) == (2, 1)


def test_refused_for_good():
    """What nsqd refuses is not tried again."""
    with pytest.raises(PublishRejected) as caught:
        publish((Verdict.REJECTED, TOO_BIG), (Verdict.STORED,))
    assert caught.value.code == "E_BAD_MESSAGE" and caught.value.__cause__ is TOO_BIG


def test_refused_after_an_unknown_try():
    """An earlier try may have stored it, so it is unknown."""
    with pytest.raises(PublishUnknown, match="E_BAD_MESSAGE"):
        publish((Verdict.UNKNOWN, LOST), (Verdict.REJECTED, TOO_BIG))


def test_unknown_where_no_retry_is_allowed():
    """With retry_unknown=False the first lost connection is the outcome."""
    with pytest.raises(PublishUnknown, match="reset"):
        publish((Verdict.UNKNOWN, LOST), (Verdict.STORED,), retry_unknown=False)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((Verdict.NOT_READ, TOO_BIG), PublishNotSent),
        ((Verdict.UNKNOWN, LOST), PublishUnknown),
        ((Verdict.REJECTED, DISK), PublishRejected),
    ],
    ids=["not read", "unknown", "disk"],
)
def test_the_deadline_ends_the_retries(answer, error):
    """When no further try succeeds in time, the outcome is that of what was tried."""
    with pytest.raises(error):
        publish(answer)


def test_no_answer_in_time():
    """Sent, and no verdict at the deadline: unknown."""
    with pytest.raises(PublishUnknown, match="no answer"):
        publish(timeout=0.05)


def test_a_large_body_may_have_been_refused():
    """A connection lost behind a large body: the error says what else it may be."""
    with pytest.raises(PublishUnknown, match="max-msg-size"):
        publish((Verdict.UNKNOWN, LOST), retry_unknown=False, command=b"x" * 100_000)


def test_a_connection_that_just_ended_costs_nothing():
    """Nothing was sent on it, so it is no try."""
    assert publish((Verdict.STORED,), prepare=lambda links: setattr(links, "just_ended", 3)) == (
        1, 0,
    )


@pytest.mark.parametrize(
    ("reason", "retryable"),
    [
        (NegotiationError("no TLS there"), False),
        (server_error(b"E_AUTH_FAILED"), False),
        (DiscoveryError("lookupd:4161", "refused"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_nsqd_can_be_used(reason, retryable):
    """The reason is told, and whether a later publish may succeed."""
    with pytest.raises(PublishNotSent) as caught:
        publish(prepare=lambda links: setattr(links, "error", reason))
    assert caught.value.retryable is retryable and caught.value.__cause__ is reason


def test_no_nsqd_can_be_used_any_more():
    """After an unknown try the message is not said to be unsent."""
    links = AnsweringLinks((Verdict.UNKNOWN, LOST))
    refused = NegotiationError("no TLS there")
    blocking = BlockingPublish(links, 5_000, True, lambda: setattr(links, "error", refused))
    with pytest.raises(PublishUnknown, match="no TLS"):
        blocking.publish(b"x", Deadline(1))


@pytest.mark.parametrize("sent_before", [False, True])
def test_closed_meanwhile(sent_before):
    """close() ends a publish that waits: unknown when it was sent before, else ClosedError."""
    links = AnsweringLinks(*[(Verdict.UNKNOWN, LOST)] * sent_before)
    if not sent_before:
        links.go_down()
    timer = threading.Timer(0.1, links.close)
    timer.start()
    with pytest.raises(PublishUnknown if sent_before else ClosedError):
        BlockingPublish(links, 5_000, True, lambda: None).publish(b"x", Deadline(10))
    timer.join()
