"""DialScheduler: threads for what a DialQueue says, as few as possible and never too many."""

import threading

import pytest

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import DialQueue, DialScheduler, Standing
from nsqclient.runtime.threads import LibraryThread
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.inline_thread import InlineThread
from tests.support.virtual_time import VirtualTimer
from tests.support.waiting import wait_until

WAIT = 10.0
UNTRIED, FAILED = Standing.UNTRIED, Standing.FAILED


class Dials:
    """Notes what is dialed; a dial lasts until ``release`` is set."""

    def __init__(self) -> None:
        self.begun = []
        self.release = threading.Event()
        self.release.set()
        self.on_dial = None

    def dial(self, key):
        self.begun.append(key)
        if self.on_dial is not None:
            self.on_dial(key)
        assert self.release.wait(WAIT)


@pytest.fixture
def make(request):
    """Factory of a scheduler with its dials; all threads end with the test."""
    made = []

    def build(sources="a", schedule=None, **options):
        dials = Dials()
        scheduler = DialScheduler(sources, dials.dial, schedule, **options)
        made.append((scheduler, dials))
        return scheduler, dials

    yield build
    for scheduler, dials in made:
        dials.release.set()
        scheduler.close()
        assert scheduler.join(Deadline(WAIT)) == []


def dialing_threads():
    return [thread.name for thread in threading.enumerate() if "nsq-dialer" in thread.name]


def test_there_are_no_more_threads_than_dials_under_way(make):
    scheduler, dials = make(limit=3)
    scheduler.put("later", "a", FAILED, retry_at=float("inf"))
    dials.release.clear()
    for number in range(100):
        scheduler.put(number, "a", UNTRIED)
        scheduler.dispatch()
    wait_until(lambda: len(dials.begun) == 3)
    assert sorted(dialing_threads()) == ["nsq-dialer-0", "nsq-dialer-1", "nsq-dialer-2"]
    dials.release.set()
    wait_until(lambda: len(dials.begun) == 100)
    wait_until(lambda: not dialing_threads())
    assert 5 not in scheduler and "later" in scheduler


def test_what_waits_is_dialed_when_its_time_has_come(make, monkeypatch):
    """By itself, where there is a timer; the earliest time counts."""
    timer = VirtualTimer()
    monkeypatch.setattr("time.monotonic", lambda: timer.now)
    scheduler, dials = make(schedule=timer.schedule, make_thread=InlineThread)
    for key, retry_at in (("late", 5.0), ("early", 2.0), ("with it", 2.0), ("never", 9.0)):
        scheduler.put(key, "a", FAILED, retry_at)
        scheduler.dispatch()
    scheduler.discard("never")
    timer.advance(1.9)
    assert dials.begun == []
    timer.advance(3.1)
    assert dials.begun == ["early", "with it", "late"]
    assert timer.delays == [5.0, 2.0, 3.0]


def test_a_dial_that_raises_ends_no_thread(make, caplog):
    scheduler, dials = make(limit=1)
    dials.on_dial = lambda key: 1 / (key - 1)
    for key in (1, 2):
        scheduler.put(key, "a", UNTRIED)
    scheduler.dispatch()
    wait_until(lambda: dials.begun == [1, 2])
    assert "1: unexpected error while dialing" in caplog.text


class NoThread(InlineThread):
    """A thread that the system does not give."""

    def launch(self):
        raise RuntimeError("can't start new thread")


def test_without_a_thread_an_address_is_dialed_later(make, monkeypatch, caplog):
    timer = VirtualTimer()
    monkeypatch.setattr("time.monotonic", lambda: timer.now)
    kinds = [NoThread, NoThread, NoThread]
    scheduler, dials = make(
        schedule=timer.schedule,
        make_thread=lambda target, name: (kinds.pop() if kinds else InlineThread)(target, name))
    for key in "xy":
        scheduler.put(key, "a", UNTRIED)
        scheduler.dispatch()
    assert dials.begun == [] and "x" in scheduler
    timer.advance(1.0)
    assert dials.begun == [] and caplog.text.count("no thread to dial, trying again") == 1
    timer.advance(1.0)
    assert dials.begun == ["x", "y"]


def test_a_thread_that_runs_dials_what_another_one_could_not(make):
    """Where the system gives only one."""
    threads = [LibraryThread]
    scheduler, dials = make(
        make_thread=lambda target, name: (threads.pop() if threads else NoThread)(target, name)
    )
    dials.release.clear()
    for key in "xyz":
        scheduler.put(key, "a", UNTRIED)
        scheduler.dispatch()
    dials.release.set()
    wait_until(lambda: sorted(dials.begun) == ["x", "y", "z"])


def test_close_dials_nothing_more(make):
    scheduler, dials = make(limit=1)
    dials.release.clear()
    for key in "xy":
        scheduler.put(key, "a", UNTRIED)
    scheduler.dispatch()
    wait_until(lambda: dials.begun == ["x"])
    scheduler.close()
    scheduler.put("z", "a", UNTRIED)
    scheduler.dispatch()
    assert scheduler.join(Deadline(0.01)) == ["nsq-dialer-x"]
    dials.release.set()
    assert scheduler.join(Deadline(WAIT)) == [] and dials.begun == ["x"]


def test_a_thread_with_nothing_left_to_dial_is_waited_for(make):
    """On a busy machine it may run for a while after it has looked for the last time."""
    has_looked, may_end = threading.Event(), threading.Event()

    class SlowThread(LibraryThread):
        """Has left its loop, and has not ended."""

        def run(self):
            super().run()
            has_looked.set()
            assert may_end.wait(WAIT)

    scheduler, dials = make(make_thread=SlowThread)
    scheduler.put("x", "a", UNTRIED)
    scheduler.dispatch()
    assert has_looked.wait(WAIT)
    scheduler.close()
    assert scheduler.join(Deadline(0.01)) == ["nsq-dialer-x"]
    may_end.set()
    assert scheduler.join(Deadline(WAIT)) == []


def test_a_dial_may_end_everything_itself(make):
    """A callback that stops its consumer runs on a thread that dials, and cannot wait for it."""
    scheduler, dials = make()
    seen = []

    def end(key):
        seen.append(scheduler.is_dialer())
        scheduler.close()
        seen.append(scheduler.join(Deadline(WAIT)))

    dials.on_dial = end
    scheduler.put("x", "a", UNTRIED)
    scheduler.dispatch()
    wait_until(lambda: len(seen) == 2)
    assert seen == [True, []] and not scheduler.is_dialer()


@pytest.mark.parametrize("function", [
    DialScheduler.put, DialScheduler.dispatch, DialScheduler._start_thread,
    DialQueue.put, DialQueue.count_ready, DialQueue.next_due, DialQueue._move_due,
])
def test_an_exception_of_a_signal_handler_loses_no_address(make, function):
    """Wherever it comes, no lock stays taken; what was put is dialed with the next dispatch()."""
    def work():
        scheduler, dials = make()
        was_put = []
        try:
            scheduler.put("x", "a", UNTRIED)
            was_put.append(True)
            scheduler.dispatch()
        except KeyboardInterrupt:
            pass

        def check():
            if not was_put:
                scheduler.put("x", "a", UNTRIED)
            scheduler.dispatch()
            wait_until(lambda: dials.begun)

        return check

    assert interrupt_everywhere(function, work) > 0
