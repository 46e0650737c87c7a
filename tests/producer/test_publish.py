"""One publish in the calling thread: nsqd's answers, outcomes and retries."""

import asyncio
import math
import threading
import time
from types import SimpleNamespace

import pytest

import nsqclient.partitioned

from nsqclient import Producer
from nsqclient.connection.blocking import Answer
from nsqclient.errors import (
    ClosedError, ConnectError, ConnectionLostError, DiscoveryError, NegotiationError,
    NSQConnectionError, PublishNotSentError, PublishRejectedError, PublishUnknownError,
    server_error,
)
from nsqclient.producer.outcome import (
    Attempts, StaleConnection, is_one_at_fault, may_be_stored, rejection,
)
from nsqclient.producer.publisher import Publisher
from nsqclient.producer.stats import Statistics
from nsqclient.runtime.deadline import Deadline

WAIT = 20.0
LOST = ConnectionLostError("nsqd:4150", "reset by the peer")
DISK = server_error(b"E_PUB_FAILED disk")
TOO_BIG = server_error(b"E_BAD_MESSAGE too big")


class Answers:
    """Stands in for a NodePool, its one nsqd, and the connection to it: answers each publish.

    Each answer is None for stored, nsqd's error, or what ends the connection.
    """

    address = "nsqd:4150"
    failures = responses = progress = suspected_at = 0
    used_at = opened_at = dialed_at = 0.0
    is_plain = is_closed = waiting = False
    heard_at = silence = math.inf

    def __init__(self, *answers, stale=0, error=None):
        self._answers = list(answers)
        self.sent = 0
        self.stale = stale
        self.error = error
        self.pauses = []
        self.closed = threading.Event()
        self.idle = []
        self.timer = self.pool = self

    @property
    def connected(self):
        return (self,) if self._answers and self.error is None else ()

    def acquire(self, deadline, is_async):
        if self.error is not None:
            raise self.error
        if self.closed.wait(deadline.remaining()):
            raise ClosedError("the producer is closed")
        raise ConnectError(self.address, "nobody is there")

    def take(self, now):
        self.stale -= 1
        return None if self.stale >= 0 else self

    def wait_for_connection(self, node, pool, until, interval, is_reentrant):
        """As NodePool's: its connections are lost."""

    def shortage(self, seconds):
        return "none is free"

    def pause(self, seconds):
        self.pauses.append(seconds)

    def do_nothing(self, *arguments):
        """How real connections work does not matter to a publish."""

    wake = drop = on_lost = on_refused = do_nothing

    def begin(self, command, read_answer):
        self.sent += 1

    def wait(self, until, data):
        answer = self._answers.pop(0)
        self.is_ended = answer is not None
        if isinstance(answer, NSQConnectionError):
            raise answer
        return Answer(answer)


def publish(*answers, timeout=WAIT, retry_unknown=True, command=b"x", **state):
    """Publish to an nsqd that gives these answers; return how often it was sent, and retried."""
    nodes = Answers(*answers, **state)
    statistics = Statistics()
    publisher = Publisher(nodes, retry_unknown, statistics)
    publisher.publish(command, time.monotonic() + timeout, timeout)
    return nodes.sent, statistics.snapshot(0, [], [], {}).retried


@pytest.mark.parametrize("stale", [0, 3])
def test_a_connection_that_just_ended_costs_nothing(stale):
    assert publish(None, stale=stale) == (1, 0)


@pytest.mark.parametrize("sticky, count", [(False, 2), (True, 1)])
def test_the_connected_nsqds_take_turns_unless_one_is_to_be_kept(sticky, count):
    nodes = SimpleNamespace(connected=("a", "b"))
    publisher = Publisher(nodes, True, Statistics(), sticky)
    used = []
    publisher.attempt = lambda node, *arguments, **options: used.append(node) or Answer()
    for _ in range(10):
        publisher.publish(b"x", WAIT, WAIT)
    assert len(set(used)) == count


def test_a_message_that_one_nsqd_cannot_store_goes_to_another_at_once():
    nodes = [SimpleNamespace(address=name) for name in "abc"]
    pauses = []
    publisher = Publisher(
        SimpleNamespace(connected=tuple(nodes), pause=pauses.append), True, Statistics(), True)
    used = []

    def attempt(node, *arguments, **options):
        used.append(node.address)
        return Answer(DISK if len(used) < 4 else None)

    publisher.attempt = attempt
    publisher.publish(b"x", time.monotonic() + WAIT, WAIT)
    assert used == ["a", "b", "c", "a"] and len(pauses) == 1


@pytest.mark.parametrize("answer", [LOST, DISK], ids=["unknown", "disk"])
def test_what_may_pass_is_tried_again(answer):
    assert publish(answer, None) == (2, 1)


def test_a_publish_that_no_nsqd_can_store_pauses_alone():
    nodes = Answers(*[DISK] * 6, None)
    Publisher(nodes, True, Statistics()).publish(b"x", time.monotonic() + WAIT, WAIT)
    assert nodes.pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5])


def test_a_permanent_refusal_is_not_retried():
    with pytest.raises(PublishRejectedError) as caught:
        publish(TOO_BIG, None)
    assert caught.value.code == "E_BAD_MESSAGE" and caught.value.__cause__ is TOO_BIG


@pytest.mark.parametrize("conn", [SimpleNamespace(), None])
def test_ping_waits_for_a_connection_that_is_in_use(conn):
    pool = SimpleNamespace(take=lambda now: None, idle=[], serve=lambda: None)
    nodes = SimpleNamespace(
        acquire=lambda deadline: SimpleNamespace(address="nsqd:4150", pool=pool),
        wait_for_connection=lambda *arguments: conn)
    ping = Publisher(nodes, True, Statistics()).ping
    if conn is None:
        with pytest.raises(ConnectError, match="no connection in time"):
            ping(Deadline(0))
    else:
        ping(Deadline(0))
        assert pool.idle == [conn]


def test_refused_after_an_unknown_try():
    with pytest.raises(PublishUnknownError, match="E_BAD_MESSAGE"):
        publish(LOST, TOO_BIG)


@pytest.mark.parametrize("answer, command, why", [
    (LOST, b"x", "reset"), (LOST, b"x" * 100_000, "max-msg-size"),
    (server_error(b"E_MPUB_FAILED disk"), b"x", "E_MPUB_FAILED"),
], ids=["lost", "large", "part"])
def test_unknown_where_no_retry_is_allowed(answer, command, why):
    """A large body may have been refused; nsqd stores the messages of an MPUB one by one."""
    with pytest.raises(PublishUnknownError, match=why):
        publish(answer, None, retry_unknown=False, command=command)


@pytest.mark.parametrize(("answer", "error"), [
    (LOST, PublishUnknownError), (DISK, PublishRejectedError),
], ids=["unknown", "disk"])
def test_the_deadline_ends_the_retries(answer, error):
    with pytest.raises(error):
        publish(answer, timeout=0.3)


@pytest.mark.parametrize(("reason", "retryable"), [
    (NegotiationError("no TLS there"), False), (server_error(b"E_AUTH_FAILED"), False),
    (DiscoveryError("lookupd:4161", "refused"), True),
], ids=lambda value: type(value).__name__)
def test_no_nsqd_can_be_used(reason, retryable):
    with pytest.raises(PublishNotSentError) as caught:
        publish(error=reason)
    assert caught.value.retryable is retryable and caught.value.__cause__ is reason


def test_no_nsqd_can_be_used_any_more():
    """After an unknown try the message is not said to be unsent."""
    nodes = Answers(LOST)
    refused = NegotiationError("no TLS there")
    statistics = Statistics()
    statistics.count_retried = lambda messages: setattr(nodes, "error", refused)
    with pytest.raises(PublishUnknownError, match="no TLS"):
        Publisher(nodes, True, statistics).publish(b"x", time.monotonic() + 1, 1)


@pytest.mark.parametrize("sent_before", [False, True])
def test_close_ends_a_publish_that_waits(sent_before):
    nodes = Answers(*[LOST] * sent_before)
    timer = threading.Timer(0.1, nodes.closed.set)
    timer.start()
    with pytest.raises(PublishUnknownError if sent_before else ClosedError):
        Publisher(nodes, True, Statistics()).publish(b"x", time.monotonic() + 10, 10)
    timer.join()


@pytest.mark.parametrize(("error", "expected"), [
    (server_error(b"E_PUB_FAILED disk"), False), (server_error(b"E_MPUB_FAILED disk"), True),
    (ConnectError("nsqd:4150", "reset"), True), (StaleConnection("nsqd:4150", "lost"), False),
])
def test_what_an_attempt_that_failed_may_have_stored(error, expected):
    assert may_be_stored(error) is expected


@pytest.mark.parametrize(("answer", "retryable", "one"), [
    (b"E_BAD_TOPIC t", False, False), (b"E_BAD_MESSAGE too big", False, True),
    (b"E_BAD_BODY too big", False, True), (b"E_PUB_FAILED disk", True, False),
    (b"E_DPUB_FAILED disk", True, False),
])
def test_what_a_refusal_says(answer, retryable, one):
    """A rejection has nsqd's code and address, and says whether a retry is worth it."""
    error = server_error(answer)
    refused = rejection("nsqd:4150", error)
    assert (refused.code, refused.retryable) == (error.code, retryable)
    assert "nsqd:4150" in str(refused)
    assert is_one_at_fault(error, 2) is one
    assert not is_one_at_fault(error, 1)


@pytest.mark.parametrize("maybe_stored, text", [
    (False, "no nsqd stored the message within 2 s: nsqd:4150: refused"),
    (True, "the outcome is unknown: no nsqd confirmed the message within 2 s: nsqd:4150: refused"),
])
def test_an_unknown_outcome_is_not_called_not_stored(maybe_stored, text):
    attempts = Attempts(2.0, 100, True, maybe_stored=maybe_stored)
    assert str(attempts.timed_out(ConnectError("nsqd:4150", "refused"))).startswith(text)


def test_a_producer_shows_its_documented_api_and_nothing_else():
    with Producer(["127.0.0.1:4150"]) as producer:
        shown = {name for name in dir(producer) if not name.startswith("_")}
    assert shown == {
        "close", "config", "flush", "healthy", "ping", "publish", "publish_async",
        "publish_json", "publish_many", "stats",
    }


def test_a_refusal_says_what_to_do():
    error = server_error(b"E_INVALID cannot PUB in current state (TLS required)")
    assert "set tls_v1" in str(rejection("nsqd:4150", error))


def test_an_asynchronous_context_says_what_to_write():
    async def enter():
        with Producer(["127.0.0.1:1"]) as producer:
            async with producer:
                pass

    with pytest.raises(TypeError, match="write with, not async with"):
        asyncio.run(enter())


@pytest.mark.parametrize("kind", [Producer, nsqclient.partitioned.Producer])
@pytest.mark.parametrize("name, hint", [
    ("delay", ": write defer="), ("time_out", ": write timeout="), ("xyz", "")])
def test_an_unknown_argument_says_what_to_write(kind, name, hint):
    with kind(["127.0.0.1:1"]) as producer:
        for publish in (producer.publish, producer.publish_async):
            with pytest.raises(TypeError) as caught:
                publish("t", b"x", **{name: 5})
            assert str(caught.value).endswith(f"() has no argument '{name}'{hint}")
