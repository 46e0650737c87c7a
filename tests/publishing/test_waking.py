"""Waking many threads, each by the one before it."""

from __future__ import annotations

import threading

from nsqclient.publishing.attempts import Companion
from nsqclient.publishing.verdicts import Verdict
from nsqclient.publishing.waking import WakingLine
from nsqclient.runtime.bell import Bell
from tests.support.interrupts import interrupt_everywhere
from tests.support.waiting import wait_until


class CountingBell(Bell):
    """Counts its rings; a sleep ends at once."""

    __slots__ = ("rings",)

    def __init__(self):
        super().__init__()
        self.rings = 0
        self.ring = self._count
        self.sleep = lambda: None

    def _count(self):
        self.rings += 1


class Sleeper:
    """A thread that waits for one companion."""

    def __init__(self, line):
        self.companion = Companion("t", b"x", Bell())
        self.thread = threading.Thread(target=self._run, args=(line,), daemon=True)
        self.thread.start()
        wait_until(lambda: self.companion.is_waiting)

    def _run(self, line):
        while not self.companion.is_done:
            line.sleep(self.companion, 30.0)


def settled(count=1):
    """Companions that have their outcome, and wait."""
    companions = [Companion("t", b"x", CountingBell()) for _ in range(count)]
    for one in companions:
        one.set(Verdict.STORED, None)
        one.is_waiting = True
    return companions


def rings(companions):
    """How often each was woken."""
    return [one.bell.rings for one in companions]


def wake_up(line, companion):
    """Let its thread run, as if it had slept."""
    line.sleep(companion, 1.0)


def test_all_are_woken_and_the_end_is_told():
    """Each thread wakes the next; after the last one, and only then, the line is over."""
    over = []
    line = WakingLine(lambda: over.append([one.companion.is_done for one in sleepers]))
    sleepers = [Sleeper(line) for _ in range(8)]
    for sleeper in sleepers:
        sleeper.companion.set(Verdict.STORED, None)
    line.wake([sleeper.companion for sleeper in sleepers])
    for sleeper in sleepers:
        sleeper.thread.join(10)
    assert over and over[-1] == [True] * 8 and not line.is_moving


def test_one_after_the_other():
    """While the first one does not run, the others stay where they are."""
    line = WakingLine(lambda: None)
    companions = settled(3)
    line.wake(companions)
    assert rings(companions) == [1, 0, 0]
    wake_up(line, companions[0])
    assert rings(companions) == [1, 1, 0]


def test_it_moves_until_the_last_one_runs():
    """What others publish until then travels together."""
    over = []
    line = WakingLine(lambda: over.append(line.is_moving))
    (one,) = settled()
    line.wake([one])
    assert line.is_moving and not over
    wake_up(line, one)
    assert over == [False]


def test_who_comes_later_is_woken_by_those_that_are_on_the_way():
    """A second nsqd answers while the line moves: there is still only one awake."""
    line = WakingLine(lambda: None)
    first, second = settled(2)
    line.wake([first])
    line.wake([second])
    assert rings([first, second]) == [1, 0]
    wake_up(line, first)
    assert rings([first, second]) == [1, 1]


def test_who_comes_in_the_last_moment_is_not_forgotten(monkeypatch):
    """Added after the last one found the line empty, and before it said so."""
    # The deque below is no C code, as that of the line is.
    monkeypatch.setattr("nsqclient.publishing.waking.is_foreign", lambda error: False)
    line = WakingLine(lambda: None)
    first, late = settled(2)

    class Closing(type(line._line)):
        def popleft(self):
            if not self and late not in seen:
                seen.append(late)
                line.wake([late])  # it moves, so this wakes nobody
                raise IndexError
            return super().popleft()

    seen = []
    line._line = Closing()
    line.wake([first])
    wake_up(line, first)
    assert rings([late]) == [1]


def test_nobody_waits_for_turns_that_take_long(monkeypatch):
    """Where something else computes, all are woken at once."""
    line = WakingLine(lambda: None)
    companions = settled(3)
    now = [100.0]
    monkeypatch.setattr("nsqclient.publishing.waking.time.monotonic", lambda: now[0])
    line.wake(companions)
    now[0] += 0.002
    wake_up(line, companions[0])
    assert rings(companions) == [1, 1, 1] and not line.is_moving and line.is_slow
    more = settled(2)
    line.wake(more)
    assert rings(more) == [1, 1]
    wake_up(line, more[0])
    assert not line.is_slow


def test_those_that_do_not_wait_are_passed_over():
    """One that has left, or has not come yet, holds up nobody."""
    over = []
    line = WakingLine(lambda: over.append(True))
    late, sleeping = settled(2)
    late.is_waiting = False
    line.wake([late, sleeping])
    assert rings([late, sleeping]) == [0, 1]
    wake_up(line, late)  # it finds its outcome, and has nothing to pass on
    assert not over
    wake_up(line, sleeping)
    assert over == [True]


def test_who_is_woken_for_nothing_wakes_the_next():
    """It may have been its turn in the very moment its time was over, or who had it is gone."""
    line = WakingLine(lambda: None)
    companions = settled(2)
    line.wake(companions)
    wake_up(line, Companion("t", b"x", CountingBell()))
    assert rings(companions) == [1, 1]


def test_who_is_to_receive_leaves_the_line_alone():
    """It was not its turn."""
    over = []
    line = WakingLine(lambda: over.append(True))
    one = Companion("t", b"x", CountingBell())
    one.receives_from = object()
    wake_up(line, one)
    assert not over


def test_ctrl_c_in_one_wakes_the_next():
    """Wherever a thread is interrupted while it waits, the line goes on."""
    def work():
        line = WakingLine(lambda: None)
        first, second = settled(2)
        first.is_done = False
        first.has_turn = True
        line._line.append(second)
        line._woken_at = float("inf")
        try:
            line.sleep(first, 5)
        except KeyboardInterrupt:
            pass

        def check():
            wake_up(line, Companion("t", b"x", CountingBell()))  # whoever comes next
            assert second.bell.rings

        return check

    assert interrupt_everywhere(WakingLine.sleep, work) > 1


def test_ctrl_c_in_one_that_wakes():
    """The reader does it once more."""
    def work():
        line = WakingLine(lambda: None)
        companions = settled(2)
        try:
            line.wake(companions)
        except KeyboardInterrupt:
            pass

        def check():
            line.wake(companions)
            wake_up(line, Companion("t", b"x", CountingBell()))
            wake_up(line, Companion("t", b"x", CountingBell()))
            assert all(rings(companions))

        return check

    for function in (WakingLine.wake, WakingLine._go_on):
        assert interrupt_everywhere(function, work) > 1
