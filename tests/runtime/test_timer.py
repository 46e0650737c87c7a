"""The timer thread."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.timer import Timer

WAIT = 30.0
LATER = 3600.0


@pytest.fixture
def timer() -> Iterator[Timer]:
    """A running timer that is stopped and joined after the test."""
    timer = Timer("nsq-timer-test")
    timer.start()
    yield timer
    assert timer.stop(Deadline(WAIT))


@pytest.fixture
def parked(monkeypatch) -> Iterator[Timer]:
    """A timer that is not running yet, on a clock that stands still; all is due at its start."""
    timer = Timer("nsq-timer-test")
    monkeypatch.setattr(time, "monotonic", lambda: -1e6)
    yield timer
    monkeypatch.undo()
    assert timer.stop(Deadline(WAIT))


def _start(timer: Timer, monkeypatch) -> None:
    """Let the clock go and run everything that was scheduled on a parked timer."""
    monkeypatch.undo()
    timer.start()
    assert _schedule(timer).wait(WAIT)


def _schedule(timer: Timer, delay: float = 0.0) -> threading.Event:
    """Schedule an event to be set; tasks due before it have run when it is."""
    fired = threading.Event()
    timer.schedule(delay, fired.set)
    return fired


def test_tasks_run_in_the_order_of_their_times(parked, monkeypatch):
    seen = []
    for delay in (3.0, 1.0, 2.0, 0.0, -1.0):
        parked.schedule(delay, lambda delay=delay: seen.append(delay))
    _start(parked, monkeypatch)
    assert seen == [0.0, -1.0, 1.0, 2.0, 3.0]


def test_a_task_never_runs_early(timer):
    early = threading.Event()
    task = timer.schedule(LATER, early.set)
    assert _schedule(timer).wait(WAIT)
    assert not early.is_set()
    task.cancel()


def test_a_cancelled_task_does_not_run(parked, monkeypatch):
    seen = []
    task = parked.schedule(1.0, lambda: seen.append("cancelled"))
    done = parked.schedule(0.0, lambda: seen.append("done"))
    task.cancel()
    task.cancel()
    _start(parked, monkeypatch)
    done.cancel()
    assert seen == ["done"]


def test_a_task_that_raises_does_not_end_the_timer(timer, caplog):
    with caplog.at_level(logging.ERROR, "nsqclient.timer"):
        timer.schedule(0.0, lambda: 1 / 0)
        assert _schedule(timer).wait(WAIT)
    assert "ZeroDivisionError" in caplog.text


def test_an_endless_delay_is_accepted(timer):
    task = timer.schedule(float("inf"), lambda: None)
    assert _schedule(timer).wait(WAIT)
    assert _schedule(timer).wait(WAIT)
    task.cancel()


def test_stop_drops_tasks():
    timer = Timer()
    seen = []
    timer.schedule(0.0, lambda: seen.append("before the start"))
    assert timer.stop()
    timer.schedule(0.0, lambda: seen.append("after stop"))
    timer.start()
    assert timer.stop()
    assert seen == []
    assert not [thread for thread in threading.enumerate() if thread.name == "nsq-timer"]


def test_stop_waits_for_the_running_task():
    timer = Timer()
    timer.start()
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def task():
        started.set()
        release.wait(WAIT)
        ended.set()

    timer.schedule(0.0, task)
    assert started.wait(WAIT)
    assert timer.stop(Deadline(0.0)) is False
    release.set()
    assert timer.stop(Deadline(WAIT)) is True
    assert ended.is_set()


def test_stop_from_a_task():
    timer = Timer()
    seen = []
    timer.schedule(0.0, lambda: seen.append(timer.stop()))
    timer.schedule(0.0, lambda: seen.append("later"))
    timer.start()
    assert timer.stop(Deadline(WAIT))
    assert seen in ([], [True])
