"""Waking many threads, each by the one before it."""

from __future__ import annotations

import threading

import pytest

from nsqclient.publishing.attempts import Companion
from nsqclient.publishing.verdicts import Verdict
from nsqclient.publishing.waking import WakingLine
from tests.support.interrupts import interrupt_everywhere
from tests.support.waiting import wait_until


class Sleeper:
    """A thread that waits for one companion."""

    def __init__(self, line, timeout=30.0):
        self.companion = Companion("t", b"x")
        self.result = None
        self.thread = threading.Thread(target=self._run, args=(line, timeout), daemon=True)
        self.thread.start()
        wait_until(lambda: self.companion.is_waiting or self.result is not None)

    def _run(self, line, timeout):
        self.result = line.wait(self.companion, timeout)


def settled(count=1):
    """Companions that have their outcome."""
    companions = [Companion("t", b"x") for _ in range(count)]
    for one in companions:
        one.set(Verdict.STORED, None)
    return companions


def test_all_are_woken_and_the_end_is_told():
    """Each thread wakes the next; after the last one, and only then, the line is over."""
    over = []
    line = WakingLine(lambda: over.append([sleeper.result for sleeper in sleepers]))
    sleepers = [Sleeper(line) for _ in range(8)]
    for sleeper in sleepers:
        sleeper.companion.set(Verdict.STORED, None)
    line.wake([sleeper.companion for sleeper in sleepers])
    for sleeper in sleepers:
        sleeper.thread.join(10)
    assert [sleeper.result for sleeper in sleepers] == [True] * 8
    assert over and not line.is_moving()


def test_one_after_the_other():
    """While the first one does not run, the others stay where they are."""
    line = WakingLine(lambda: None)
    first, second = settled(2)
    first.is_waiting = second.is_waiting = True
    line.wake([first, second])
    assert first.wait(0) and not second.wait(0) and line.is_moving()


def test_nobody_waits_for_turns_that_take_long(monkeypatch):
    """Where something else computes, all are woken at once."""
    line = WakingLine(lambda: None)
    companions = settled(3)
    for one in companions:
        one.is_waiting = True
    now = [100.0]
    monkeypatch.setattr("nsqclient.publishing.waking.time.monotonic", lambda: now[0])
    line.wake(companions)
    now[0] += 0.002
    line.wait(*settled(1), 0)  # the first one comes to run, late
    assert [one.wait(0) for one in companions] == [True] * 3 and not line.is_moving()


def test_those_that_do_not_wait_are_passed_over():
    """One that has left, or has not come yet, holds up nobody."""
    over = []
    line = WakingLine(lambda: over.append(True))
    late, sleeping = settled(2)
    sleeping.is_waiting = True
    line.wake([late, sleeping])
    assert sleeping.wait(0) and not over
    assert line.wait(late, 0)  # it finds its outcome
    assert over == [True]


def test_who_leaves_without_an_outcome_wakes_the_next():
    """It may have been its turn in the very moment its time was over."""
    line = WakingLine(lambda: None)
    first, second = settled(2)
    first.is_waiting = second.is_waiting = True
    line.wake([first, second])
    assert not line.wait(Companion("t", b"x"), 0)
    assert second.wait(0)


@pytest.mark.parametrize("function", [WakingLine.wait])
def test_ctrl_c_in_one_wakes_the_next(function):
    """Wherever a thread is interrupted while it waits, the line goes on."""
    def work():
        line = WakingLine(lambda: None)
        first, second = settled(2)
        first.is_done = False
        second.is_waiting = True
        first._settled.release()
        line._line.append(second)
        line._woken_at = float("inf")
        try:
            line.wait(first, 5)
        except KeyboardInterrupt:
            pass

        def check():
            line.wait(*settled(1), 0)  # whoever comes next
            assert second.wait(0)

        return check

    assert interrupt_everywhere(function, work) > 1
