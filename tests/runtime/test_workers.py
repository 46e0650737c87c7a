"""The worker pool."""

import contextlib
import logging
import threading

import pytest

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.workers import WorkerPool
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.processes import start_threads
from tests.support.waiting import wait_until

WAIT = 30.0


@pytest.fixture
def make_pool():
    """Factory of pools that are stopped and joined after the test."""
    pools = []

    def make(threads, run, idle=None, started=True):
        pool = WorkerPool("nsq-test", threads, run, idle)
        pools.append(pool)
        if started:
            pool.start()
        return pool

    yield make
    for pool in pools:
        assert pool.stop(Deadline(WAIT)) == []


class Gate:
    """A task that waits in the middle: ``entered`` is set while it waits, ``open`` ends it."""

    def __init__(self):
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, item=None):
        self.entered.release()
        assert self.open.wait(WAIT)


def test_one_worker_keeps_the_order(make_pool):
    seen = []
    pool = make_pool(1, seen.append)
    for n in range(0, 100, 5):
        pool.put(n)
        pool.put_many(range(n + 1, n + 5))
    wait_until(lambda: len(seen) == 100)
    assert seen == list(range(100))


def test_items_can_be_looked_at_and_taken_out(make_pool):
    pool = make_pool(1, lambda item: None, started=False)
    pool.put_many(range(6))
    assert pool.items() == [0, 1, 2, 3, 4, 5]
    assert pool.take_where(lambda item: item % 2 == 0) == [0, 2, 4]
    assert pool.items() == [1, 3, 5]
    assert pool.take_where(lambda item: True) == [1, 3, 5]
    assert pool.take_where(lambda item: True) == []


def test_taking_items_out_loses_none_of_the_others(make_pool):
    """While workers take items and others are put, each is run or taken out, once."""
    seen, taken = [], []
    pool = make_pool(3, seen.append)
    for start in range(0, 3000, 10):
        pool.put_many(range(start, start + 10))
        taken += pool.take_where(lambda item: item % 3 == 0)
    wait_until(lambda: len(seen) + len(taken) == 3000)
    assert sorted(seen + taken) == list(range(3000))
    assert all(item % 3 == 0 for item in taken)


@pytest.mark.parametrize("many", [False, True])
def test_a_burst_reaches_all_workers(make_pool, many):
    together = threading.Barrier(4)
    pool = make_pool(3, lambda item: together.wait(WAIT))
    wait_until(lambda: len(pool._sleepers) == 3)
    if many:
        pool.put_many([1, 2, 3])
    else:
        for item in (1, 2, 3):
            pool.put(item)
    together.wait(WAIT)


def test_exception_keeps_the_worker(make_pool, caplog):
    seen = []

    def run(item):
        if item == 0:
            raise ZeroDivisionError("on purpose")
        seen.append(item)

    with caplog.at_level(logging.ERROR, "nsqclient.workers"):
        make_pool(1, run).put_many([0, 1, 0, 2])
        wait_until(lambda: seen == [1, 2])
    assert caplog.text.count("ZeroDivisionError: on purpose") == 2


def test_idle_is_called_before_a_worker_sleeps(make_pool):
    seen = []
    pool = make_pool(1, seen.append, lambda: seen.append("idle"), started=False)
    pool.put_many([1, 2])
    pool.start()
    wait_until(lambda: len(pool._sleepers) == 1)
    assert seen == [1, 2, "idle"]
    pool.put(3)
    wait_until(lambda: seen == [1, 2, "idle", 3, "idle"])


def test_idle_that_raises(make_pool, caplog):
    seen = []
    with caplog.at_level(logging.ERROR, "nsqclient.workers"):
        pool = make_pool(1, seen.append, lambda: 1 / 0)
        wait_until(lambda: len(pool._sleepers) == 1)
        pool.put(1)
        wait_until(lambda: seen == [1])
    assert "idle hook failed" in caplog.text


def test_take_moves_the_first_item(make_pool):
    pool = make_pool(0, None)
    pool.put_many([1, 2])
    assert [pool.take(None), pool.take(0.0), pool.take(0.0)] == [1, 2, None]


def test_take_shares_a_burst(make_pool):
    pool = make_pool(0, None)
    together = threading.Barrier(3)

    def take():
        assert pool.take(WAIT) is not None
        together.wait(WAIT)

    takers = start_threads(2, take)
    wait_until(lambda: len(pool._sleepers) == 2)
    pool.put_many([1, 2])
    together.wait(WAIT)
    for taker in takers:
        taker.join(WAIT)


def test_take_ends_with_stop(make_pool):
    pool = make_pool(0, None)
    found = []
    taker = threading.Thread(target=lambda: found.append(pool.take(None)))
    taker.start()
    wait_until(lambda: len(pool._sleepers) == 1)
    assert pool.stop() == []
    taker.join(WAIT)
    pool.put(1)
    assert found == [None]
    assert (pool.take(None), pool.take(None)) == (1, None)


def test_an_interrupted_worker_does_not_count_as_asleep():
    """Or no further worker would be started for it."""
    pool = WorkerPool("nsq-test", 1, lambda item: None)

    def work():
        with contextlib.suppress(KeyboardInterrupt):
            pool.take(0.001)
        return lambda: None

    assert interrupt_everywhere(WorkerPool._sleep, work) > 1
    assert not pool._sleepers


def test_stop_lets_workers_finish_what_is_queued(make_pool):
    seen = []
    pool = make_pool(2, seen.append, started=False)
    pool.put_many(range(1000))
    pool.start()
    assert pool.stop(Deadline(WAIT)) == []
    assert sorted(seen) == list(range(1000))
    assert pool.stop() == []


def test_stop_without_start(make_pool):
    seen = []
    pool = make_pool(2, seen.append, started=False)
    pool.put(1)
    assert pool.stop() == []
    pool.start()
    assert (pool.take_all(), seen) == ([1], [])


def test_stop_names_the_stuck(make_pool):
    gate = Gate()
    pool = make_pool(3, gate)
    pool.put_many([1, 2])
    for _ in range(2):
        assert gate.entered.acquire(timeout=WAIT)
    stuck = pool.stop(Deadline(0.2))
    assert len(stuck) == 2
    assert set(stuck) < {"nsq-test-1", "nsq-test-2", "nsq-test-3"}
    gate.open.set()
    assert pool.stop(Deadline(WAIT)) == []


def test_stop_from_a_worker(make_pool):
    results = []
    pool = make_pool(2, lambda item: results.append(pool.stop(Deadline(WAIT))), started=False)
    pool.put(None)
    pool.start()
    wait_until(lambda: results == [[]])


def test_stop_during_start(make_pool, monkeypatch):
    pool = make_pool(2, None, started=False)
    first, second = pool._threads
    launch = first.launch
    stopped = []

    def interrupted():
        stopped.append(pool.stop(Deadline(WAIT)))
        launch()

    monkeypatch.setattr(first, "launch", interrupted)
    pool.start()
    assert stopped == [[]]
    assert pool.stop(Deadline(WAIT)) == []
    assert not first.is_alive() and not second.is_alive()
