"""Loops over messages: when messages flow, and what becomes of the last turn."""

import time
from types import SimpleNamespace

import pytest

from nsqclient.consumer.core import iterate
from nsqclient.message import Message
from nsqclient.runtime.workers import WorkerPool


class FakeProcessor:
    """Accepts every message; records the finished ones."""

    def __init__(self, workers):
        self.workers = workers
        self.finished, self._turns = [], set()

    @property
    def turns(self):
        return len(self._turns)

    def flush(self):
        pass

    def should_handle(self, message, now):
        return message.responder

    def begin_iteration(self, message):
        self._turns.add(message)

    def end_iteration(self, message):
        self._turns.discard(message)

    def finish(self, message, sub):
        message.has_responded = True
        self.finished.append(message.body)


class FakeSubscription:
    def __init__(self):
        self.back = []

    def requeue(self, message, delay, backoff):
        message.has_responded = True
        self.back.append(message.body)

    def requeue_unstarted(self, messages):
        self.back += [message.body for message in messages]
        for message in messages:
            message.has_responded = True


class FakeFlow:
    def __init__(self):
        self.loops = set()
        self.begin_loop, self.end_loop = self.loops.add, self.loops.discard


class Bench:
    def __init__(self, bodies=b"abc"):
        self.pool = WorkerPool("nsq-test", 0, print)
        self.sub, self.processor = FakeSubscription(), FakeProcessor(self.pool)
        self.flow = FakeFlow()
        self.stop = SimpleNamespace(has_begun=False)
        self.waited_since, self.looks = [], 1
        for number in range(len(bodies)):
            body = bodies[number:number + 1]
            self.pool.put(Message(body, b"0" * 16, 1, 1, 0.0, time.monotonic() + 60, self.sub))

    def loop(self, timeout=0.0, idle=()):
        core = SimpleNamespace(processor=self.processor, flow=self.flow, shutdown=self.stop)
        return iterate(core, timeout, self.check, idle)

    def check(self, since):
        self.waited_since.append(since)
        return len(self.waited_since) >= self.looks


@pytest.mark.parametrize("how", ["break", "raise"])
def test_a_loop_that_is_left_requeues_its_message(how):
    bench = Bench()
    with pytest.raises(StopIteration if how == "break" else RuntimeError):
        for message in bench.loop():
            if how == "raise":
                raise RuntimeError("x")
            break
        raise StopIteration
    del message
    assert (bench.sub.back, bench.processor.turns) == ([b"a"], 0)
    assert [message.body for message in bench.loop()] == [b"b", b"c"]


def test_a_stop_between_the_queue_and_the_turn_requeues_the_message():
    bench = Bench(b"a")

    def stop_now(message, now):
        bench.stop.has_begun = True
        return message.responder

    bench.processor.should_handle = stop_now
    assert list(bench.loop()) == []
    assert (bench.sub.back, bench.processor.turns) == ([b"a"], 0)


def test_a_loop_waits_on_until_the_end_is_there():
    bench = Bench(b"a")
    bench.looks = 3
    assert [m and m.body for m in bench.loop(idle=[None])] == [b"a", None, None]
    assert len(bench.waited_since) == 3 and len(set(bench.waited_since)) == 1


def test_a_loop_that_is_stopped_does_not_ask_for_a_connection():
    bench = Bench(b"")
    loop = bench.loop(timeout=None)
    bench.pool.take = lambda timeout: setattr(bench.stop, "has_begun", True)
    assert list(loop) == [] and bench.waited_since == []
