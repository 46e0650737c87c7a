"""One publish in the calling thread: what each outcome leads to."""

from __future__ import annotations

import threading
import time

import pytest

from nsqclient.errors import (
    ClosedError,
    ConnectionLostError,
    DiscoveryError,
    NegotiationError,
    PublishNotSentError,
    PublishRejectedError,
    PublishUnknownError,
    server_error,
)
from nsqclient.producer import producer as producer_module
from nsqclient.producer.group_commit import PendingPublish
from nsqclient.producer.outcome import PublishOutcome
from nsqclient.producer.producer import SyncPublisher
from nsqclient.producer.stats import Statistics
from tests.support.fake_nodes import FakeNodes

LOST = ConnectionLostError("nsqd:4150", "reset by the peer")
DISK = server_error(b"E_PUB_FAILED disk")
TOO_BIG = server_error(b"E_BAD_MESSAGE too big")


class AnsweringNodes(FakeNodes):
    """Settles each publish at once, with the next of the given outcomes."""

    def __init__(self, *answers):
        super().__init__()
        self._answers = list(answers)

    def send(self, command, token, until):
        """Send, and answer."""
        super().send(command, token, until)
        if self._answers:
            token.settle(*self._answers.pop(0))
        if not self._answers:
            self.go_down()


def publish(*answers, timeout=0.3, retry_unknown=True, body=b"x", prepare=None):
    """Publish to an nsqd that gives these answers; return how often it was sent, and retried."""
    nodes = AnsweringNodes(*answers)
    if prepare is not None:
        prepare(nodes)
    statistics = Statistics()
    publisher = SyncPublisher(nodes, retry_unknown, statistics)
    publisher.publish("t", body, time.monotonic() + timeout, timeout)
    return len(nodes.sent), statistics.snapshot(0, [], []).retried


def test_stored_at_once():
    """One OK, one try."""
    assert publish((PublishOutcome.STORED, None)) == (1, 0)


@pytest.mark.parametrize(
    "answer",
    [
        (PublishOutcome.NOT_READ, TOO_BIG), (PublishOutcome.UNKNOWN, LOST),
        (PublishOutcome.REJECTED, DISK),
    ],
    ids=["not read", "unknown", "disk"],
)
def test_what_may_pass_is_tried_again(answer):
    """A lost connection or a full disk costs a retry."""
    assert publish(answer, (PublishOutcome.STORED, None)) == (2, 1)


def test_a_permanent_refusal_is_not_retried():
    """What nsqd refuses is not tried again."""
    with pytest.raises(PublishRejectedError) as caught:
        publish((PublishOutcome.REJECTED, TOO_BIG), (PublishOutcome.STORED, None))
    assert caught.value.code == "E_BAD_MESSAGE" and caught.value.__cause__ is TOO_BIG


def test_refused_after_an_unknown_try():
    """An earlier try may have stored it, so it is unknown."""
    with pytest.raises(PublishUnknownError, match="E_BAD_MESSAGE"):
        publish((PublishOutcome.UNKNOWN, LOST), (PublishOutcome.REJECTED, TOO_BIG))


def test_unknown_where_no_retry_is_allowed():
    """With retry_unknown=False the first lost connection is the outcome."""
    with pytest.raises(PublishUnknownError, match="reset"):
        publish((PublishOutcome.UNKNOWN, LOST), (PublishOutcome.STORED, None), retry_unknown=False)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((PublishOutcome.NOT_READ, TOO_BIG), PublishNotSentError),
        ((PublishOutcome.UNKNOWN, LOST), PublishUnknownError),
        ((PublishOutcome.REJECTED, DISK), PublishRejectedError),
    ],
    ids=["not read", "unknown", "disk"],
)
def test_the_deadline_ends_the_retries(answer, error):
    """When no further try succeeds in time, the outcome is that of what was tried."""
    with pytest.raises(error):
        publish(answer)


def test_no_answer_in_time():
    """Sent, and no outcome at the deadline: unknown."""
    with pytest.raises(PublishUnknownError, match="no answer"):
        publish(timeout=0.05)


def test_an_answer_that_comes_while_the_outcome_is_looked_at_counts(monkeypatch):
    """Its thread has given the nsqd up, and the OK comes just before it decides."""
    class Answered(PendingPublish):
        @property
        def error(self):
            self.outcome = PublishOutcome.STORED
            return None

    nodes = FakeNodes()
    monkeypatch.setattr(producer_module, "PendingPublish", Answered)
    monkeypatch.setattr(nodes.group, "publish", lambda *args: None)
    SyncPublisher(nodes, True, Statistics()).publish("t", b"x", time.monotonic() + 30, 30)


def test_a_large_body_may_have_been_refused():
    """A connection lost behind a large body: the error says what else it may be."""
    with pytest.raises(PublishUnknownError, match="max-msg-size"):
        publish((PublishOutcome.UNKNOWN, LOST), retry_unknown=False, body=b"x" * 100_000)


def test_a_connection_that_just_ended_costs_nothing():
    """Nothing was sent on it, so it is no try."""
    def prepare(nodes):
        nodes.stale = 3

    assert publish((PublishOutcome.STORED, None), prepare=prepare) == (1, 0)


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
    """The error has the reason, and whether a later publish may succeed."""
    with pytest.raises(PublishNotSentError) as caught:
        publish(prepare=lambda nodes: setattr(nodes, "error", reason))
    assert caught.value.retryable is retryable and caught.value.__cause__ is reason


def test_no_nsqd_can_be_used_any_more():
    """After an unknown try the message is not said to be unsent."""
    nodes = AnsweringNodes((PublishOutcome.UNKNOWN, LOST))
    refused = NegotiationError("no TLS there")
    statistics = Statistics()
    statistics.count_retried = lambda: setattr(nodes, "error", refused)
    with pytest.raises(PublishUnknownError, match="no TLS"):
        SyncPublisher(nodes, True, statistics).publish("t", b"x", time.monotonic() + 1, 1)


@pytest.mark.parametrize("sent_before", [False, True])
def test_close_ends_a_publish_that_waits(sent_before):
    """close() ends a publish that waits: unknown when it was sent before, else ClosedError."""
    nodes = AnsweringNodes(*[(PublishOutcome.UNKNOWN, LOST)] * sent_before)
    if not sent_before:
        nodes.go_down()
    timer = threading.Timer(0.1, nodes.close)
    timer.start()
    with pytest.raises(PublishUnknownError if sent_before else ClosedError):
        SyncPublisher(nodes, True, Statistics()).publish("t", b"x", time.monotonic() + 10, 10)
    timer.join()
