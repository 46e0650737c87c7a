"""BatchHandler by value: when a batch is handed over, and how its messages are answered."""

import logging
import sys

import pytest

from nsqclient.consumer import batch as module
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.retry import decide
from nsqclient.errors import ConfigError, ConnectionLostError
from nsqclient.message import Message, Requeue
from tests.support.processes import start_threads
from tests.support.virtual_time import VirtualTimer


class Answers:
    address = "nsqd:4150"

    def __init__(self):
        self.by_body = {}

    def _note(self, message, *answer):
        message.has_responded = True
        self.by_body[message.body] = answer

    def finish(self, message):
        self._note(message, "FIN")

    def requeue(self, message, delay, backoff):
        self._note(message, "REQ", delay, backoff)

    def drop_expired(self, message):
        self._note(message, "expired")


class FakeConsumer:
    """A stand-in for the consumer of a BatchHandler; tasks for workers run at once."""

    topic, channel = "t", "c"

    def __init__(self):
        self.timer = VirtualTimer()
        self.run_later = self.timer.schedule
        self.starved = False
        self.retry = None
        self.late = []

    def is_starved(self):
        return self.starved

    def note_late(self, messages, seconds, has_failed):
        self.late.append((len(messages), has_failed))

    def run_on_worker(self, task):
        task()

    def decide_failure(self, message, exc):
        if message.has_responded:
            return None
        return decide(self.retry, message, exc, message.attempts, 5)

    def on_failure(self, message, decision):
        message.requeue(decision.requeue.delay, decision.requeue.backoff)


class Bench:
    """A bound BatchHandler; ``feed`` gives it messages with these bodies."""

    def __init__(self, monkeypatch, handle=lambda batch: None, **options):
        self.batches = []
        self.answers = Answers()
        self.consumer = FakeConsumer()
        monkeypatch.setattr(module.time, "monotonic", lambda: self.consumer.timer.now)

        def keep(batch):
            self.batches.append(b"".join(message.body for message in batch))
            return handle(batch)

        self.handler = BatchHandler(keep, **options)
        self.handler.bind(self.consumer)

    def feed(self, bodies, life=60.0):
        now = self.consumer.timer.now
        for number in range(len(bodies)):
            body = bodies[number:number + 1]
            self.handler(Message(body, b"%016d" % number, 1, 1, now, now + life, self.answers))

    def answered(self, *answer):
        return b"".join(body for body, what in self.answers.by_body.items() if what == answer)


@pytest.fixture
def bench(monkeypatch):
    return lambda *arguments, **options: Bench(monkeypatch, *arguments, **options)


def test_a_full_batch_is_handed_over(bench):
    bench = bench(size=3)
    bench.feed(b"abcde")
    assert (bench.batches, bench.answered("FIN")) == ([b"abc"], b"abc")


def test_a_batch_does_not_get_older_than_max_wait(bench):
    bench = bench(size=3, max_wait=2)
    bench.feed(b"a")
    bench.consumer.timer.advance(1.5)
    bench.feed(b"bc")
    bench.consumer.timer.advance(0.25)
    bench.feed(b"d")
    bench.consumer.timer.advance(1.9)
    assert bench.batches == [b"abc"]
    bench.consumer.timer.advance(0.2)
    assert bench.batches == [b"abc", b"d"]


def test_no_timer_runs_without_messages(bench):
    bench = bench(size=2, max_wait=1)
    bench.feed(b"abc")
    bench.consumer.timer.advance(10)
    asked = len(bench.consumer.timer.delays)
    bench.consumer.timer.advance(100)
    assert len(bench.consumer.timer.delays) == asked


def test_a_starved_consumer_waits_for_nothing(bench):
    """No more would come before these are answered."""
    bench = bench(size=10)
    bench.feed(b"ab")
    bench.consumer.starved = True
    bench.feed(b"c")
    assert bench.batches == [b"abc"]


def raising(failure):
    def handle(batch):
        raise failure

    return handle


@pytest.mark.parametrize("handle, answer", [
    (raising(RuntimeError("x")), ("REQ", None, True)),
    (raising(SystemExit()), ("REQ", None, True)),
    (raising(Requeue(delay=5, backoff=False)), ("REQ", 5, False)),
    (lambda batch: Requeue(delay=5, backoff=False), ("REQ", 5, False)),
])
def test_an_exception_requeues_all(bench, handle, answer):
    bench = bench(handle, size=2)
    bench.feed(b"ab")
    assert bench.answered(*answer) == b"ab"


@pytest.mark.parametrize("retry, delays", [
    (lambda message, exc: Requeue(int(message.body)), "1 to 3 s"),
    (lambda message, exc: Requeue(2), "2 s"),
    (lambda message, exc: Requeue(2 if message.body == b"2" else None), "the default delay"),
])
def test_a_batch_whose_retry_is_planned_is_one_warning(bench, retry, delays, caplog):
    caplog.set_level(logging.DEBUG, "nsqclient.batch")
    bench = bench(lambda batch: 1 / 0, size=3)
    bench.consumer.retry = retry
    bench.feed(b"123")
    line = f"t/c: retrying a batch of 3 after {delays}"
    assert [(record.levelname, record.getMessage(), bool(record.exc_info))
            for record in caplog.records] == [
        ("WARNING", f"{line}: ZeroDivisionError: division by zero", False), ("DEBUG", line, True)]
    assert bench.answered("FIN") == b""


def test_a_batch_with_a_retry_that_is_not_planned_is_an_error(bench, caplog):
    bench = bench(lambda batch: 1 / 0, size=2)
    bench.consumer.retry = lambda message, exc: Requeue(2) if message.body == b"2" else None
    bench.feed(b"12")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "t/c: handler failed for a batch of 2")]
    assert caplog.records[0].exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_the_messages_that_are_returned_are_finished(bench, kind):
    bench = bench(lambda batch: kind(batch[1:]), size=3)
    bench.feed(b"abc")
    assert bench.answered("FIN") == b"bc"
    assert bench.answered("REQ", None, True) == b"a"


def test_what_was_answered_stays_answered(bench):
    def handle(batch):
        batch[0].finish()
        raise RuntimeError("the second failed")

    bench = bench(handle, size=2)
    bench.feed(b"ab")
    assert (bench.answered("FIN"), bench.answered("REQ", None, True)) == (b"a", b"b")


def fails_while_it_is_read(batch):
    return map(lambda number: batch[number], [0, 7])


async def coroutine(batch):
    """Does nothing unless awaited."""


@pytest.mark.parametrize("handle", [
    lambda batch: 3, lambda batch: ["id"], fails_while_it_is_read, lambda batch: coroutine(batch),
])
def test_a_result_that_is_no_list_of_the_batch_requeues_all(bench, handle, caplog):
    """Any result but None or a list of messages is an error. No message is left unanswered."""
    bench = bench(handle, size=2)
    bench.feed(b"ab")
    assert bench.answered("REQ", None, True) == b"ab"
    assert "batch of 2" in caplog.text


def test_messages_that_expired_while_they_waited_are_dropped(bench):
    """nsqd gives them to somebody else; they are counted, and the rest is handled."""
    bench = bench(size=3, max_wait=100)
    bench.feed(b"a", life=5)
    bench.consumer.timer.advance(10)
    bench.feed(b"bc")
    assert (bench.batches, bench.answered("expired")) == ([b"bc"], b"a")


def test_a_lost_connection_does_not_keep_the_others_from_their_answer(bench, monkeypatch):
    bench = bench(size=3)
    finish = Answers.finish

    def lose_the_first(answers, message):
        if message.body == b"a":
            raise ConnectionLostError("nsqd:4150", "gone")
        finish(answers, message)

    monkeypatch.setattr(Answers, "finish", lose_the_first)
    bench.feed(b"abc")
    assert bench.answered("FIN") == b"bc"


def test_what_could_not_be_handled_is_requeued(bench):
    bench = bench(size=10)
    bench.feed(b"ab")
    bench.handler.requeue_pending()
    bench.handler.requeue_pending()
    assert (bench.batches, bench.answered("REQ", 0, False)) == ([], b"ab")


def test_many_workers_fill_one_batch(bench):
    bench = bench(size=7)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in start_threads(4, lambda: bench.feed(b"x" * 700)):
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert bench.batches == [b"x" * 7] * 400


def test_it_serves_one_consumer(bench):
    """A second consumer must make another one; after a fork the same one binds again."""
    bench = bench(size=2)
    bench.handler.bind(bench.consumer)
    with pytest.raises(ConfigError):
        bench.handler.bind(FakeConsumer())


@pytest.mark.parametrize("function, options", [
    (print, {"size": 0}), (print, {"size": True}), (print, {"max_wait": -1}), (coroutine, {}),
    (list, {}),
])
def test_arguments_that_cannot_be_right_are_refused(function, options):
    with pytest.raises(ConfigError, match=f"^{next(iter(options), 'handle')}"):
        BatchHandler(function, **options)
