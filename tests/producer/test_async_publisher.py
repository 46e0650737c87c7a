"""Asynchronous publishes: what shares an MPUB, and what each outcome leads to."""

import ctypes
import threading
import time

import pytest

from nsqclient.connection.blocking import Answer
from nsqclient.errors import (
    ClosedError, ConfigError, ConnectError, ConnectionLostError, PartitionError,
    PublishNotSentError, PublishRejectedError, PublishUnknownError, ReentrantCallError,
    server_error,
)
from nsqclient.producer.async_publisher import AsyncPublisher, Window
from nsqclient.producer.futures import PublishFuture, start_all
from nsqclient.producer.publisher import Publisher
from nsqclient.producer.stats import Statistics
from nsqclient.producer.timer import PoolTimer
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread
from tests.support.packages import HAS_INTERPRETER_LOCK
from tests.support.waiting import wait_until

WAIT = 30.0
LOST = ConnectionLostError("nsqd:4150", "lost")
REFUSAL = server_error(b"E_BAD_MESSAGE too big")


class FakeNodes:
    """Stands in for NodePool, and for the one NsqdNode that it has."""

    address = "nsqd:4150"

    def __init__(self):
        self._changed = threading.Condition()
        self._is_up = True
        self._closed = False
        self.timer = PoolTimer(lambda now: now + 1.0)

    def go_down(self):
        """From now on no nsqd is connected."""
        self._is_up = False

    def close(self):
        """Refuse whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.timer.stop(Deadline(10.0))

    @property
    def connected(self):
        return (self,) if self._is_up and not self._closed else ()

    def acquire(self, deadline, is_async=False):
        with self._changed:
            self._changed.wait_for(lambda: self._is_up or self._closed, deadline.remaining())
            if self._closed:
                raise ClosedError("the producer is closed")
            if not self._is_up:
                raise ConnectError(self.address, "nobody is there")
        return self


class Sent:
    """One attempt that waits for its outcome."""

    def __init__(self, command):
        self.line = command.partition(b"\n")[0]
        self._is_settled = threading.Event()
        self._error = None

    def settle(self, error=None):
        """Nsqd has stored it; or it has refused it, or the connection has ended."""
        self._error = error
        self._is_settled.set()

    def wait(self, until):
        """Return the outcome of the attempt; unknown at the deadline."""
        if not self._is_settled.wait(max(0.0, until - time.monotonic())):
            return Answer(ConnectError("nsqd:4150", "no answer in time"))
        return Answer(self._error)


class ScriptedPublisher(Publisher):
    """A Publisher whose attempts the test settles."""

    def __init__(self, *args):
        super().__init__(*args)
        self.sent = []
        #: Raised by the next attempt.
        self.broken = None

    def attempt(self, node, command, until, interval, is_async):
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.sent.append(Sent(command))
        return self.sent[-1].wait(until)

    def settle_all(self):
        for sent in self.sent:
            sent.settle()

    def line(self, number):
        """Wait for an attempt, by its number from 0, and return the line of the command."""
        return self.token(number).line

    def token(self, number):
        """Wait for an attempt, by its number from 0."""
        wait_until(lambda: len(self.sent) > number)
        return self.sent[number]


class World:
    """Asynchronous publishes, the nsqd that they go to, and what is counted."""

    def __init__(self):
        self.nodes = FakeNodes()
        self._statistics = Statistics()
        self._made = []
        self.sends = None

    def publisher(
        self, retry_unknown=True, max_body_size=5_000, take_over=lambda items: False, **window
    ):
        """Make an AsyncPublisher; it is closed after the test."""
        options = {"messages": 100, "size": 10_000, "blocks": True, **window}
        self.sends = ScriptedPublisher(self.nodes, retry_unknown, self._statistics)
        made = AsyncPublisher(
            self.sends, self.nodes.timer, Window(**options), self._statistics, max_body_size,
            take_over)
        self._made.append((made, self.sends))
        return made

    def close(self):
        self.nodes.close()
        for made, sends in self._made:
            sends.settle_all()
            assert made.close(Deadline(WAIT))

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
    world.close()


def future(topic="t", body=b"x", delay_ms=None, timeout=WAIT):
    """A message to publish."""
    return PublishFuture(topic, body, delay_ms, time.monotonic() + timeout, timeout)


def put(publisher, *items):
    for item in items:
        publisher.put(item)
    return items


def busy(world, publisher):
    """Have the worker of topic t wait for an answer, so that the next messages wait together."""
    put(publisher, future())
    return world.sends.token(0)


def test_a_stored_message_is_counted_before_anybody_hears_of_it(world):
    """One message goes as PUB; stats() agrees with the outcomes that are there."""
    publisher, item, seen = world.publisher(), future(), []
    item.add_done_callback(lambda done: seen.append((world.counts, publisher.pending)))
    put(publisher, item)
    assert world.sends.line(0) == b"PUB t"
    world.sends.token(0).settle()
    assert item.result(WAIT) is None
    wait_until(lambda: seen == [({"published": 1}, 0)])


def test_messages_of_one_topic_share_an_mpub(world):
    publisher = world.publisher()
    first = busy(world, publisher)
    put(publisher, future(), future(), future(delay_ms=5), future())
    for number, line in enumerate([b"PUB t", b"MPUB t", b"DPUB t 5", b"PUB t"]):
        assert world.sends.line(number) == line
        world.sends.token(number).settle()
    assert first is world.sends.token(0)


def test_a_topic_does_not_wait_for_the_answer_to_another_one(world):
    publisher = world.publisher()
    put(publisher, *[future(f"t{number}") for number in range(5)])
    assert {world.sends.line(number) for number in range(5)} == {
        b"PUB t%d" % number for number in range(5)}


@pytest.mark.parametrize("limit, line", [(212, b"MPUB t"), (211, b"PUB t")])
def test_an_mpub_stays_under_the_body_limit(world, limit, line):
    publisher = world.publisher(max_body_size=limit)
    first = busy(world, publisher)
    put(publisher, *[future(body=b"x" * 100) for _ in range(4)])
    first.settle()
    for number in (1, 2):
        assert world.sends.line(number) == line
        world.sends.token(number).settle()


def test_messages_wait_for_others_until_somebody_waits_for_them(world):
    publisher = world.publisher(linger=10 * WAIT)
    put(publisher, future(), future())
    flushed = threading.Thread(target=publisher.flush, args=(Deadline(WAIT),))
    flushed.start()
    assert world.sends.line(0) == b"MPUB t"
    world.sends.token(0).settle()
    flushed.join(WAIT)
    assert not publisher.pending


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_refusal_after_an_unknown_try_is_unknown(world, is_alone):
    publisher = world.publisher()
    first = busy(world, publisher)
    items = put(publisher, *[future() for _ in range(1 if is_alone else 2)])
    first.settle()
    world.sends.token(1).settle(LOST)
    world.sends.token(2).settle(REFUSAL)
    if not is_alone:
        for number in (3, 4):
            world.sends.token(number).settle(REFUSAL)
    assert all(isinstance(item.exception(WAIT), PublishUnknownError) for item in items)


def test_a_refused_mpub_is_taken_apart(world):
    publisher = world.publisher()
    first = busy(world, publisher)
    good, bad = put(publisher, future(body=b"good"), future(body=b"bad"))
    first.settle()
    world.sends.token(1).settle(REFUSAL)
    world.sends.token(2).settle()
    world.sends.token(3).settle(REFUSAL)
    assert good.result(WAIT) is None
    assert isinstance(bad.exception(WAIT), PublishRejectedError)


def test_without_an_answer_a_message_is_unknown_at_its_deadline(world):
    (item,) = put(world.publisher(), future(timeout=0.3))
    assert isinstance(item.exception(WAIT), PublishUnknownError)
    wait_until(lambda: world.counts.get("unknown") == 1)


@pytest.mark.parametrize("state", ["no nsqd is connected", "nsqd does not answer"])
def test_a_short_deadline_does_not_wait_for_the_long_ones_before_it(world, state):
    if state == "no nsqd is connected":
        world.nodes.go_down()
    publisher = world.publisher()
    put(publisher, future(timeout=60))
    wait_until(lambda: state == "no nsqd is connected" or world.sends.sent)
    (item,) = put(publisher, future(timeout=0.1))
    with pytest.raises((PublishNotSentError, TimeoutError)) as caught:
        item.result(WAIT)
    assert isinstance(caught.value, PublishNotSentError)


def test_a_bug_costs_one_batch_and_not_the_thread(world, caplog):
    publisher = world.publisher()
    world.sends.broken = RuntimeError("a bug")
    (item,) = put(publisher, future())
    assert isinstance(item.exception(WAIT), PublishUnknownError)
    put(publisher, future("next"))
    assert world.sends.line(0) == b"PUB next"
    assert "publisher failed" in caplog.text


@pytest.mark.parametrize("role", ["nsq-publisher", "nsq-timer"])
def test_without_a_thread_nothing_is_pending(world, no_thread, role):
    """The error is Python's; the next publish tries again."""
    publisher = world.publisher()
    with no_thread(role), pytest.raises(RuntimeError, match="new thread"):
        publisher.put(future())
    assert publisher.pending == 0
    put(publisher, future())
    assert world.sends.line(0) == b"PUB t"


@pytest.mark.skipif(not HAS_INTERPRETER_LOCK, reason="a worker's object goes when it runs again")
def test_failures_are_logged_that_nobody_looked_at(world, caplog):
    publisher = world.publisher()
    publisher.put(future())
    world.sends.token(0).settle(server_error(b"E_BAD_TOPIC t"))
    wait_until(lambda: "1 asynchronous publish failed" in caplog.text)


def test_a_cancelled_message_is_not_sent(world):
    publisher = world.publisher()
    first = busy(world, publisher)
    (item,) = put(publisher, future())
    assert item.cancel()
    first.settle()
    wait_until(lambda: publisher.pending == 0)
    assert len(world.sends.sent) == 1


def test_the_window_admits_one_after_the_other(world):
    publisher = world.publisher(messages=1)
    put(publisher, future("a"))
    second = threading.Thread(target=put, args=(publisher, future("b")))
    second.start()
    world.sends.token(0).settle()
    second.join(WAIT)
    assert world.sends.line(1) == b"PUB b"


def test_a_window_that_stays_full_is_an_error_at_the_deadline(world):
    """A put that waits for space ends with its message's deadline; bytes count too."""
    publisher = world.publisher(size=100)
    put(publisher, future(body=b"x" * 80))
    with pytest.raises(PublishNotSentError, match="max_pending"):
        publisher.put(future(body=b"x" * 80, timeout=0.1))
    with pytest.raises(ConfigError, match="max_pending_bytes"):
        publisher.put(future(body=b"x" * 101))


def test_a_callback_that_would_wait_for_its_own_thread_gets_an_error(world):
    """The window is full, and a worker would wait for a worker."""
    publisher = world.publisher(messages=2)
    (item,) = put(publisher, future("a"))
    raised = []

    def publish_two(_):
        try:
            put(publisher, future("b"), future("c"), future("d"))
        except ReentrantCallError as exc:
            raised.append(exc)

    item.add_done_callback(publish_two)
    world.sends.token(0).settle()
    wait_until(lambda: raised)
    assert {world.sends.line(1), world.sends.line(2)} == {b"PUB b", b"PUB c"}


def test_close_gives_every_pending_message_an_outcome(world):
    publisher = world.publisher()
    busy(world, publisher)
    (queued,) = put(publisher, future())
    closing = threading.Thread(target=publisher.close, args=(Deadline(0.1),))
    closing.start()
    assert isinstance(queued.exception(WAIT), PublishNotSentError)
    closing.join(WAIT)
    assert publisher.pending == 0
    wait_until(lambda: world.counts == {"unknown": 1, "rejected": 1})
    with pytest.raises(ClosedError):
        publisher.put(future())
    assert publisher.pending == 0


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_forked_child_fails_all_that_was_pending(world, is_sent):
    if not is_sent:
        world.nodes.go_down()
    publisher = world.publisher()
    items = put(publisher, *[future() for _ in range(4)])
    if is_sent:
        world.sends.token(0)
    publisher.abandon()
    assert all(isinstance(item.exception(0), ClosedError) for item in items)


def test_many_topics_share_a_queue(world, monkeypatch):
    """A program that makes topics without end makes no queues without end."""
    monkeypatch.setattr("nsqclient.producer.async_publisher._MAX_QUEUES", 1)
    publisher = world.publisher()
    put(publisher, *[future(f"t{number}") for number in range(4)])
    assert not publisher.flush(Deadline(0.05))
    for number in range(4):
        world.sends.token(number).settle()
    assert publisher.flush(Deadline(WAIT))
    assert {sent.line for sent in world.sends.sent} == {b"PUB t%d" % number for number in range(4)}


def test_an_interrupted_call_leaves_nothing_behind(world, monkeypatch):
    publisher = world.publisher()
    first = busy(world, publisher)

    class Interrupt(BaseException):
        pass

    class Queue(type(publisher._queues["t"].items)):
        def append(self, item):
            super().append(item)
            raise Interrupt

    queue = publisher._queues["t"]
    items, queue.items = queue.items, Queue()
    with pytest.raises(Interrupt):
        publisher.put(future())
    queue.items = items
    first.settle()
    assert publisher.flush(Deadline(WAIT)) and len(world.sends.sent) == 1


def test_a_queue_that_nobody_was_called_for_is_served_nevertheless(world):
    """A signal handler raised between the mark and the call: the timer calls."""
    publisher = world.publisher()
    busy(world, publisher).settle()
    assert publisher.flush(Deadline(WAIT))
    queue = publisher._queues["t"]
    wait_until(queue.has_turn)
    queue.is_called = True
    put(publisher, future())
    assert publisher.check(time.monotonic()) < time.monotonic() + 1
    assert world.sends.line(1) == b"PUB t"


@pytest.mark.parametrize("error", [MemoryError, SystemExit])
def test_an_interrupted_worker_goes_on(world, error):
    """A time limit raises in it while it waits: the next message is sent all the same."""
    publisher = world.publisher()
    busy(world, publisher).settle()
    assert publisher.flush(Deadline(WAIT))
    # None of them starts another one then: the exception would meet a thread that begins.
    wait_until(lambda: len(publisher._workers._sleepers) == len(started(publisher)))
    threads = started(publisher)
    for thread in threads:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(error))
    items = put(publisher, future(), future())
    for number in range(1, 3):
        wait_until(lambda number=number: len(world.sends.sent) > number or items[1].done())
        world.sends.settle_all()
    assert items[1].result(WAIT) is None
    assert all(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_workers_that_end_in_their_first_instruction_are_replaced(world):
    """A time limit has raised in them before they could catch anything."""
    publisher, left = world.publisher(), [MemoryError] * 3

    def end_thread(frame, event, argument):
        if frame.f_code.co_name == "run" and "nsq-publisher" in threading.current_thread().name:
            if left:
                raise left.pop()
        return end_thread

    threading.settrace(end_thread)
    try:
        put(publisher, future())
        assert world.sends.line(0) == b"PUB t" and not left
    finally:
        threading.settrace(None)


def test_there_are_no_more_workers_than_documented(world, monkeypatch):
    """Also if two of them find at once that all are busy."""
    monkeypatch.setattr("nsqclient.producer.async_publisher._MAX_WORKERS", 3)
    launch, both = LibraryThread.launch, threading.Barrier(2)

    def launch_together(thread):
        try:
            both.wait(0.3)
        except threading.BrokenBarrierError:
            both.reset()
        launch(thread)

    publisher = world.publisher()
    with monkeypatch.context() as context:
        context.setattr(LibraryThread, "launch", launch_together)
        put(publisher, *[future(f"t{number}") for number in range(12)])
        wait_until(lambda: len(world.sends.sent) == 3)
    assert len([one for one in threading.enumerate() if "nsq-publisher" in one.name]) == 3
    for number in range(12):
        world.sends.token(number).settle()


def test_an_interrupted_worker_gives_its_turn_back(world):
    """And a message that it had in hand is unknown soon after its deadline."""
    publisher = world.publisher()
    world.sends.broken = SystemExit("of a time limit")
    (first,) = put(publisher, future())
    assert isinstance(first.exception(WAIT), PublishUnknownError)
    (second,) = put(publisher, future(timeout=0.0))
    start_all([second])
    publisher._queues["t"].items.clear()
    publisher._unsettled.add(second)
    publisher.check(time.monotonic() + 2.0)
    assert isinstance(second.exception(0), PublishUnknownError)
    put(publisher, future())
    assert world.sends.line(0) == b"PUB t"


def test_a_message_that_was_refused_in_its_queue_keeps_no_bytes(world):
    """The worker may wait for long, and ``max_pending_bytes`` limits what is kept."""
    publisher = world.publisher()
    first = busy(world, publisher)
    late, other = put(publisher, future(body=b"y" * 1000, timeout=0.0), future(body=b"z" * 10))
    publisher.check(time.monotonic() + 0.5)
    assert isinstance(late.exception(0), PublishNotSentError)
    assert sum(len(item.body) for item in publisher._queues["t"].items) == 10
    assert publisher._bytes == len(b"x") + 10
    first.settle()
    world.sends.token(1).settle()
    assert other.result(WAIT) is None


def started(publisher):
    return [thread for thread in publisher._workers._threads if thread.ident is not None]


class TestPartitionedCluster:
    """On a partitioned cluster the queues of partitions take over the queue of a topic."""

    def test_they_get_the_whole_queue(self, world):
        taken = []

        def take_over(items):
            taken.extend(items)
            items.clear()
            return True

        publisher = world.publisher(take_over=take_over)
        (item,) = put(publisher, future())
        wait_until(lambda: taken == [item])
        publisher.refuse(item, PublishNotSentError("test"))

    def test_what_they_refuse_fails(self, world):
        errors = [PartitionError("no")]

        def take_over(items):
            if errors:
                raise errors.pop()
            return False

        publisher = world.publisher(take_over=take_over)
        (item,) = put(publisher, future())
        assert isinstance(item.exception(WAIT), PartitionError)
        put(publisher, future())
        assert world.sends.line(0) == b"PUB t"
