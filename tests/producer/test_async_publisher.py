"""The pipeline of asynchronous publishes: what shares an MPUB, and what each outcome leads to."""

from __future__ import annotations

import threading
import time

import pytest

from nsqclient.errors import (
    ClosedError,
    ConfigError,
    NegotiationError,
    PublishNotSentError,
    PublishRejectedError,
    PublishUnknownError,
    server_error,
)
from nsqclient.producer.async_publisher import AsyncPublisher
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.outcome import PublishOutcome
from nsqclient.producer.stats import Statistics
from nsqclient.runtime.deadline import Deadline
from tests.support.fake_nodes import FakeNodes
from tests.support.waiting import wait_until

WAIT = 30.0


class World:
    """A pipeline, the nsqd it sends to, and what it counts."""

    def __init__(self):
        self.nodes = FakeNodes()
        self._statistics = Statistics()
        self.pipelines = []

    def pipeline(self, **options):
        """Make a pipeline; it is closed after the test."""
        defaults = {
            "max_pending": 100, "max_pending_bytes": 10_000, "block": True, "linger": 0.0,
            "retry_unknown": True, "max_body_size": 5_000,
        }
        options = {"statistics": self._statistics, **defaults, **options}
        self.pipelines.append(AsyncPublisher(self.nodes, **options))
        return self.pipelines[-1]

    @property
    def counts(self):
        """The counters that are not 0."""
        stats = self._statistics.snapshot(0, [], [], {})
        names = ("published", "rejected", "unknown", "retried")
        return {name: getattr(stats, name) for name in names if getattr(stats, name)}


@pytest.fixture
def world():
    """Nothing yet but an nsqd that takes all and answers nothing by itself."""
    world = World()
    yield world
    world.nodes.close()
    for pipeline in world.pipelines:
        assert pipeline.close(Deadline(WAIT))


def future(topic="t", body=b"x", delay_ms=None, timeout=WAIT):
    """A message for the pipeline."""
    return PublishFuture(topic, body, delay_ms, time.monotonic() + timeout, timeout)


def put(pipeline, *items):
    """Queue messages."""
    for item in items:
        pipeline.put(item)
    return items


def test_a_stored_message_has_its_outcome(world):
    """One message goes as PUB; with nsqd's OK its Future is done and counted."""
    pipeline = world.pipeline()
    (item,) = put(pipeline, future())
    assert world.nodes.sent_line(0) == b"PUB t"
    world.nodes.token(0).settle(PublishOutcome.STORED, None)
    assert item.result(WAIT) is None and pipeline.pending == 0
    assert world.counts == {"published": 1}


def test_messages_of_one_topic_share_an_mpub(world):
    """What waits together for one topic leaves together; another topic and a delay part it."""
    world.nodes.go_down()
    pipeline = world.pipeline(linger=0.1)
    put(pipeline, future("a"), future("a"), future("b"), future("b", delay_ms=5), future("b"))
    world.nodes.come_up()
    assert [world.nodes.sent_line(n) for n in range(3)] == [b"MPUB a", b"PUB b", b"DPUB b 5"]
    world.nodes.token(0).settle(PublishOutcome.STORED, None)
    assert world.nodes.sent_line(3) == b"PUB b"


@pytest.mark.parametrize("limit, line", [(212, b"MPUB t"), (211, b"PUB t")])
def test_an_mpub_stays_under_the_body_limit(world, limit, line):
    """Messages that are too much for one MPUB, were it by a byte, leave in several."""
    world.nodes.go_down()
    pipeline = world.pipeline(linger=0.1, max_body_size=limit)
    put(pipeline, *[future(body=b"x" * 100) for _ in range(4)])
    world.nodes.come_up()
    assert [world.nodes.sent_line(n) for n in range(2)] == [line, line]


def test_few_commands_are_unanswered_at_once(world):
    """The rest waits in the queue, where batches grow."""
    pipeline = world.pipeline()
    put(pipeline, *[future(f"t{n}") for n in range(3)])
    world.nodes.token(2)
    put(pipeline, *[future("late") for _ in range(3)])
    world.nodes.token(1).settle(PublishOutcome.STORED, None)
    assert world.nodes.sent_line(3) == b"MPUB late"


def test_capacity_that_was_freed_while_nothing_was_queued_is_used_at_once(world):
    """After the answers to all batches in flight, the next message does not wait."""
    pipeline = world.pipeline()
    put(pipeline, *[future(f"t{n}") for n in range(3)])
    world.nodes.token(2)
    wait_until(lambda: pipeline._is_full and pipeline._publisher_sleeps)
    for number in range(3):
        world.nodes.token(number).settle(PublishOutcome.STORED, None)
    began = time.monotonic()
    put(pipeline, future("next"))
    assert world.nodes.sent_line(3) == b"PUB next" and time.monotonic() - began < 0.9
    world.nodes.token(3).settle(PublishOutcome.STORED, None)


@pytest.mark.parametrize("outcome", [PublishOutcome.NOT_READ, PublishOutcome.UNKNOWN])
def test_what_may_be_sent_again_is_sent_again(world, outcome):
    """A lost connection costs a retry, and the Future has a good outcome."""
    (item,) = put(world.pipeline(), future())
    world.nodes.token(0).settle(outcome, None)
    world.nodes.token(1).settle(PublishOutcome.STORED, None)
    assert item.result(WAIT) is None
    assert world.counts == {"published": 1, "retried": 1}


def test_an_unknown_outcome_is_reported_where_no_retry_is_allowed(world):
    """With retry_unknown=False the Future ends with PublishUnknownError."""
    (item,) = put(world.pipeline(retry_unknown=False), future())
    world.nodes.token(0).settle(PublishOutcome.UNKNOWN, None)
    assert isinstance(item.exception(WAIT), PublishUnknownError)
    assert world.counts == {"unknown": 1}


def test_what_nsqd_cannot_store_now_is_sent_again(world):
    """E_PUB_FAILED may pass: the message is tried again."""
    (item,) = put(world.pipeline(), future())
    world.nodes.token(0).settle(PublishOutcome.REJECTED, server_error(b"E_PUB_FAILED disk"))
    world.nodes.token(1).settle(PublishOutcome.STORED, None)
    assert item.result(WAIT) is None


def test_what_nsqd_refuses_is_rejected(world):
    """The Future has nsqd's code."""
    (item,) = put(world.pipeline(), future())
    world.nodes.token(0).settle(PublishOutcome.REJECTED, server_error(b"E_BAD_TOPIC t"))
    error = item.exception(WAIT)
    assert isinstance(error, PublishRejectedError) and error.code == "E_BAD_TOPIC"
    assert world.counts == {"rejected": 1}


def test_a_refusal_after_an_unknown_try_is_unknown(world):
    """What an earlier try may have stored is not called rejected."""
    (item,) = put(world.pipeline(), future())
    world.nodes.token(0).settle(PublishOutcome.UNKNOWN, None)
    world.nodes.token(1).settle(PublishOutcome.REJECTED, server_error(b"E_BAD_TOPIC t"))
    assert isinstance(item.exception(WAIT), PublishUnknownError)


def test_a_refused_mpub_is_taken_apart(world):
    """Each message is tried alone, so that only the rejected one fails."""
    world.nodes.go_down()
    pipeline = world.pipeline(linger=0.1)
    good, bad = put(pipeline, future(body=b"good"), future(body=b"bad"))
    world.nodes.come_up()
    refusal = server_error(b"E_BAD_MESSAGE too big")
    world.nodes.token(0).settle(PublishOutcome.REJECTED, refusal)
    world.nodes.token(1).settle(PublishOutcome.STORED, None)
    world.nodes.token(2).settle(PublishOutcome.REJECTED, refusal)
    assert good.result(WAIT) is None
    assert isinstance(bad.exception(WAIT), PublishRejectedError)


def test_an_answer_that_comes_too_late_changes_nothing(world):
    """At its deadline a message without an answer is unknown, and stays so."""
    (item,) = put(world.pipeline(), future(timeout=1))
    assert isinstance(item.exception(WAIT), PublishUnknownError)
    world.nodes.token(0).settle(PublishOutcome.STORED, None)
    assert isinstance(item.exception(0), PublishUnknownError)
    assert world.counts == {"unknown": 1}


@pytest.mark.parametrize("state", ["no nsqd is connected", "nsqd does not answer"])
def test_a_short_deadline_does_not_wait_for_the_long_ones_before_it(world, state):
    """Each queued message ends at its own deadline, whatever is before it."""
    if state == "no nsqd is connected":
        world.nodes.go_down()
    pipeline = world.pipeline()
    put(pipeline, *[future(f"t{n}", timeout=60) for n in range(5)])
    began = time.monotonic()
    (item,) = put(pipeline, future(timeout=0.1))
    assert isinstance(item.exception(WAIT), PublishNotSentError)
    assert time.monotonic() - began < 30


def test_a_connection_that_just_ended_costs_nothing(world):
    """The message goes to the next connection at once."""
    world.nodes.stale = 2
    put(world.pipeline(), future())
    assert world.nodes.sent_line(0) == b"PUB t"


def test_a_reason_that_waiting_cannot_help_fails_at_once(world):
    """Refused TLS, say: PublishNotSentError with the reason, not at the deadline."""
    world.nodes.error = NegotiationError("no TLS there")
    (item,) = put(world.pipeline(), future())
    error = item.exception(WAIT)
    assert isinstance(error, PublishNotSentError) and "no TLS" in str(error)


def test_a_bug_costs_one_batch_and_not_the_thread(world, caplog):
    """Whatever goes wrong with one command, the next one is sent."""
    world.nodes.broken = RuntimeError("a bug")
    pipeline = world.pipeline()
    (item,) = put(pipeline, future())
    assert isinstance(item.exception(WAIT), PublishUnknownError)
    put(pipeline, future("next"))
    assert world.nodes.sent_line(0) == b"PUB next"
    assert "publisher failed" in caplog.text


def test_a_publisher_that_cannot_start_fails_at_once(world, no_thread):
    """Nothing stays pending, and the next publish tries again."""
    pipeline = world.pipeline()
    with no_thread("nsq-publisher"), pytest.raises(RuntimeError, match="new thread"):
        pipeline.put(future())
    assert pipeline.pending == 0
    put(pipeline, future())
    assert world.nodes.sent_line(0) == b"PUB t"
    world.nodes.token(0).settle(PublishOutcome.STORED, None)


def test_close_logs_failures_that_nobody_looked_at(world, caplog):
    """A Future that was dropped, and that failed, leaves a warning."""
    pipeline = world.pipeline()
    pipeline.put(future())
    world.nodes.token(0).settle(PublishOutcome.REJECTED, server_error(b"E_BAD_TOPIC t"))
    world.nodes.sent.clear()
    wait_until(lambda: pipeline.pending == 0)
    assert pipeline.close(Deadline(WAIT))
    assert "1 asynchronous publish failed" in caplog.text


def test_a_cancelled_message_is_not_sent(world):
    """Until it is sent a message can be taken back."""
    world.nodes.go_down()
    pipeline = world.pipeline()
    put(pipeline, future("a"))
    (item,) = put(pipeline, future("b"))
    assert item.cancel()
    world.nodes.come_up()
    world.nodes.token(0).settle(PublishOutcome.STORED, None)
    wait_until(lambda: pipeline.pending == 0)
    assert len(world.nodes.sent) == 1


def test_the_window_admits_one_after_the_other(world):
    """A put over the limit waits for an outcome."""
    pipeline = world.pipeline(max_pending=1)
    put(pipeline, future("a"))
    second = threading.Thread(target=put, args=(pipeline, future("b")))
    second.start()
    world.nodes.token(0).settle(PublishOutcome.STORED, None)
    second.join(WAIT)
    assert world.nodes.sent_line(1) == b"PUB b"


def test_a_window_that_stays_full_is_an_error_at_the_deadline(world):
    """A put that waits for space ends with its message's deadline; bytes count too."""
    pipeline = world.pipeline(max_pending_bytes=100)
    put(pipeline, future(body=b"x" * 80))
    with pytest.raises(PublishNotSentError, match="max_pending"):
        pipeline.put(future(body=b"x" * 80, timeout=0.1))
    with pytest.raises(ConfigError, match="max_pending_bytes"):
        pipeline.put(future(body=b"x" * 101))


def test_flush_waits_for_the_last_answer(world):
    """flush is true once nothing is pending, and false when time is over."""
    pipeline = world.pipeline()
    put(pipeline, future())
    assert not pipeline.flush(Deadline(0.05))
    world.nodes.token(0).settle(PublishOutcome.STORED, None)
    assert pipeline.flush(Deadline(WAIT))


def test_close_gives_every_pending_message_an_outcome(world):
    """What was sent is unknown, what was not is not sent; a put that waits for space raises."""
    pipeline = world.pipeline()
    sent = put(pipeline, *[future(f"t{n}") for n in range(3)])
    world.nodes.token(2)
    (queued,) = put(pipeline, future())
    assert pipeline.close(Deadline(WAIT))
    assert all(isinstance(item.exception(0), PublishUnknownError) for item in sent)
    assert isinstance(queued.exception(0), PublishNotSentError)
    with pytest.raises(ClosedError):
        pipeline.put(future())


@pytest.mark.parametrize(("outcome", "error"), [
    (PublishOutcome.UNKNOWN, PublishUnknownError), (PublishOutcome.NOT_READ, PublishNotSentError),
])
def test_a_retry_that_close_prevents_has_an_outcome(world, outcome, error):
    """A connection lost during close(): the message is not put back; nobody waits for ever."""
    pipeline = world.pipeline()
    (item,) = put(pipeline, future())
    token = world.nodes.token(0)
    wait_until(lambda: pipeline.pending == 1)
    with pipeline._lock:
        pipeline._closed = True
    token.settle(outcome, None)
    assert type(item.exception(WAIT)) is error


@pytest.mark.parametrize("place", ["with the publisher", "queued", "unanswered"])
def test_a_forked_child_fails_all_that_was_pending(world, place):
    """Wherever a message is at the fork, its Future in the child does not wait for ever."""
    if place == "with the publisher":
        world.nodes.go_down()
    pipeline = world.pipeline()
    items = put(pipeline, *[future(f"t{n}") for n in range(1 if "publisher" in place else 4)])
    if place == "with the publisher":
        wait_until(lambda: not pipeline._queue)
    else:
        world.nodes.token(2)
    pipeline.abandon()
    assert all(isinstance(item.exception(0), ClosedError) for item in items)


def test_a_retry_that_is_queued_at_close_may_be_stored(world):
    """After an unknown try a message that still waits is not said to be unsent."""
    pipeline = world.pipeline()
    (item,) = put(pipeline, future())
    token = world.nodes.token(0)
    world.nodes.go_down()
    token.settle(PublishOutcome.UNKNOWN, None)
    world.nodes.close()
    assert pipeline.close(Deadline(WAIT))
    assert isinstance(item.exception(0), PublishUnknownError)


class BrokenPipeline:
    """A way to partitions with a bug."""

    next_due = 0.0

    def __init__(self):
        self.items = []

    def __iter__(self):
        return iter(self.items)

    def run(self, items, is_hurried):
        self.items += items
        if items:
            raise RuntimeError("bug")
        self.next_due = float("inf")

    def close(self):
        self.fail_all("closed")

    def fail_all(self, reason, items=()):
        for item in self.items:
            self.delegate.on_failed(item, PublishNotSentError(reason))
        self.items = []


def test_a_bug_in_the_way_to_partitions_fails_the_messages(world, caplog):
    """It is logged, no Future waits for ever, and later messages have their chance."""
    broken = BrokenPipeline()

    def make_pipeline(node, publisher, options):
        broken.delegate = publisher
        return broken

    pipeline = world.pipeline(make_pipeline=make_pipeline)
    for _ in range(3):
        (item,) = put(pipeline, future())
        with pytest.raises(PublishNotSentError, match="internal error: RuntimeError"):
            item.result(WAIT)
        wait_until(lambda: pipeline.pending == 0)
    assert caplog.text.count("the publisher failed; it continues") == 3


def test_a_bug_between_two_messages_fails_what_is_pending(world, caplog, monkeypatch):
    """What was sent may be stored; what was queued is not."""
    pipeline = world.pipeline()
    (sent,) = put(pipeline, future())
    token = world.nodes.token(0)
    bugs = [RuntimeError("bug")]

    def stalled(now):
        if bugs and pipeline._queue:
            raise bugs.pop()
        return []

    monkeypatch.setattr(pipeline._in_flight, "stalled", stalled)
    (queued,) = put(pipeline, future())
    with pytest.raises(PublishUnknownError, match="internal error"):
        sent.result(WAIT)
    with pytest.raises(PublishNotSentError, match="internal error"):
        queued.result(WAIT)
    token.settle(PublishOutcome.STORED, None)
    (later,) = put(pipeline, future())
    world.nodes.token(1).settle(PublishOutcome.STORED, None)
    assert later.result(WAIT) is None and pipeline.pending == 0
