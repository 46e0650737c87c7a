"""Which address is dialed next; and by which threads: as few as possible, never too many."""

import threading

import pytest

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import DialScheduler
from nsqclient.runtime.threads import LibraryThread
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.inline_thread import InlineThread
from tests.support.virtual_time import VirtualTimer
from tests.support.waiting import wait_until

WAIT = 10.0


class Dials:
    """Notes dialed addresses; a dial lasts until ``release`` is set."""

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

    def build(sources="a", *schedule, **options):
        dials = Dials()
        scheduler = DialScheduler(sources, dials.dial, *schedule, **options)
        made.append((scheduler, dials))
        return scheduler, dials

    yield build
    for scheduler, dials in made:
        dials.release.set()
        scheduler.close()
        assert scheduler.join(Deadline(WAIT)) == []


# -- order


def put(scheduler, **wanted):
    """Queue addresses by the names of their sources."""
    for sources, keys in wanted.items():
        for key in keys:
            scheduler.put(key, sources)


@pytest.fixture
def order(make):
    """Queue addresses as ``put``; returns the order in which a single thread dials them."""
    def order(sources, **wanted):
        scheduler, dials = make(sources, make_thread=InlineThread)
        put(scheduler, **wanted)
        scheduler.dispatch()
        return dials.begun

    return order


@pytest.fixture
def under_way(make):
    """Returns the addresses whose dials hang; a further call of the scheduler adds others."""
    def under_way(count, limit=16, sources="ab", **wanted):
        scheduler, dials = make(sources, limit=limit)
        dials.release.clear()
        put(scheduler, **wanted)
        scheduler.dispatch()
        wait_until(lambda: len(dials.begun) == count)
        return scheduler, dials.begun

    return under_way


def test_sources_take_turns(order):
    assert order("ab", a=range(4), b=["x", "y"]) == [0, "x", 1, "y", 2, 3]


def test_a_source_never_uses_the_share_of_another(under_way):
    """So what another one names later is dialed at once, whatever hangs."""
    scheduler, begun = under_way(8, a=range(1000))
    assert scheduler._next() is None
    scheduler.put("x", "b")
    scheduler.dispatch()
    wait_until(lambda: len(begun) == 9)
    assert begun[-1] == "x"


@pytest.mark.parametrize("limit, sources, share", [(16, "abc", 5), (4, "abcdefgh", 1)])
def test_shares_are_equal_and_at_least_one(under_way, limit, sources, share):
    scheduler, _ = under_way(share, limit, sources, a=range(100))
    assert scheduler._next() is None


def test_no_more_than_the_limit_are_under_way(under_way):
    scheduler, begun = under_way(2, 2, "abc", a=[1, 2], b=[3, 4], c=[5, 6])
    assert sorted(begun) == [1, 3] and scheduler._next() is None


def test_an_address_of_two_sources_is_dialed_once(order):
    assert order("ab", ab=["x"], a=range(2), b="yz") == ["x", "y", 0, "z", 1]


def test_those_that_worked_come_first_and_those_that_failed_last(make):
    scheduler, dials = make(make_thread=InlineThread)
    scheduler.put("failed", "a", failures=1)
    scheduler.put("failing", "a", has_worked=True, failures=1)
    scheduler.put("new", "a")
    scheduler.put("lost", "a", has_worked=True)
    scheduler.dispatch()
    assert dials.begun == ["lost", "new", "failed", "failing"]


def test_what_no_source_names_is_not_dialed(make):
    scheduler, dials = make(make_thread=InlineThread)
    put(scheduler, a=["x", "y"])
    for key in ("x", "never put"):
        scheduler.discard(key)
    assert "x" not in scheduler and "y" in scheduler
    scheduler.dispatch()
    assert dials.begun == ["y"]


def test_what_is_being_dialed_is_dialed_again_when_that_has_ended(make):
    """Never twice at the same time."""
    scheduler, dials = make()
    dials.release.clear()
    put(scheduler, a=["x", "y"])
    scheduler.dispatch()
    wait_until(lambda: len(dials.begun) == 2)
    put(scheduler, a=["x", "y"])
    scheduler.discard("y")
    assert scheduler._next() is None and "y" in scheduler
    dials.release.set()
    wait_until(lambda: "x" not in scheduler and "y" not in scheduler)
    assert sorted(dials.begun) == ["x", "x", "y"]


# -- threads


def dialing_threads():
    return [thread.name for thread in threading.enumerate() if "nsq-dialer" in thread.name]


def test_there_are_no_more_threads_than_dials_under_way(make):
    scheduler, dials = make("a", VirtualTimer().schedule, limit=3)
    scheduler.put("later", "a", retry_at=float("inf"))
    dials.release.clear()
    for number in range(100):
        scheduler.put(number, "a")
        scheduler.dispatch()
    wait_until(lambda: len(dials.begun) == 3)
    assert sorted(dialing_threads()) == ["nsq-dialer-0", "nsq-dialer-1", "nsq-dialer-2"]
    dials.release.set()
    wait_until(lambda: len(dials.begun) == 100)
    wait_until(lambda: not dialing_threads())
    assert 5 not in scheduler and "later" in scheduler


@pytest.fixture
def timer(monkeypatch):
    """A clock that a test moves."""
    timer = VirtualTimer()
    monkeypatch.setattr("time.monotonic", lambda: timer.now)
    return timer


def test_what_rests_is_dialed_when_its_time_has_come(make, timer):
    """By itself. It takes no place of the others meanwhile."""
    scheduler, dials = make("a", timer.schedule, make_thread=InlineThread, limit=1)
    for key, retry_at in (("late", 5.0), ("early", 2.0), ("with it", 2.0), ("never", 2.0)):
        scheduler.put(key, "a", failures=1, retry_at=retry_at)
    scheduler.put("x", "a")
    scheduler.discard("never")
    scheduler.dispatch()
    timer.advance(1.9)
    assert dials.begun == ["x"] and "late" in scheduler and "never" not in scheduler
    timer.advance(3.1)
    assert dials.begun == ["x", "early", "with it", "late"]


def test_what_rests_is_not_dialed_after_the_end(make, timer):
    scheduler, dials = make("a", timer.schedule, make_thread=InlineThread)
    scheduler.put("x", "a", retry_at=1.0)
    scheduler.close()
    timer.advance(1.0)
    assert dials.begun == []


def test_a_dial_that_raises_ends_no_thread(make, caplog):
    scheduler, dials = make(limit=1)
    dials.on_dial = lambda key: 1 / (key - 1)
    for key in (1, 2):
        scheduler.put(key, "a")
    scheduler.dispatch()
    wait_until(lambda: dials.begun == [1, 2])
    assert "1: unexpected error while dialing" in caplog.text


class NoThread(InlineThread):
    """A thread that the system does not give."""

    def launch(self):
        raise RuntimeError("can't start new thread")


def test_without_a_thread_an_address_is_dialed_later(make, timer, caplog):
    kinds = [NoThread, NoThread, NoThread]
    scheduler, dials = make(
        "a", timer.schedule,
        make_thread=lambda target, name: (kinds.pop() if kinds else InlineThread)(target, name))
    for key in "xy":
        scheduler.put(key, "a")
        scheduler.dispatch()
    assert dials.begun == [] and "x" in scheduler
    timer.advance(1.0)
    assert dials.begun == [] and caplog.text.count("cannot start a thread to dial") == 1
    timer.advance(1.0)
    assert dials.begun == ["x", "y"]


def test_a_thread_that_runs_dials_what_another_one_could_not(make):
    threads = [LibraryThread]
    scheduler, dials = make(
        make_thread=lambda target, name: (threads.pop() if threads else NoThread)(target, name)
    )
    dials.release.clear()
    for key in "xyz":
        scheduler.put(key, "a")
        scheduler.dispatch()
    dials.release.set()
    wait_until(lambda: sorted(dials.begun) == ["x", "y", "z"])


def test_close_dials_nothing_more(make):
    scheduler, dials = make(limit=1)
    dials.release.clear()
    for key in "xy":
        scheduler.put(key, "a")
    scheduler.dispatch()
    wait_until(lambda: dials.begun == ["x"])
    scheduler.close()
    scheduler.put("z", "a")
    scheduler.dispatch()
    assert scheduler.join(Deadline(0.01)) == ["nsq-dialer-x"]
    dials.release.set()
    assert scheduler.join(Deadline(WAIT)) == [] and dials.begun == ["x"]


def test_close_does_not_wait_for_a_look_through_many_addresses(make):
    """With thousands of addresses, dialing threads look for the next one nearly all the time."""
    looks, may_go_on, closed = (threading.Event() for _ in range(3))

    class LongList(tuple):
        def __contains__(self, source):
            looks.set()
            return may_go_on.wait()

    scheduler, dials = make()
    scheduler.put("x", LongList())
    looking = threading.Thread(target=scheduler.dispatch)
    looking.start()
    assert looks.wait(WAIT)
    closing = threading.Thread(target=lambda: (scheduler.close(), closed.set()))
    closing.start()
    try:
        assert closed.wait(WAIT)
    finally:
        may_go_on.set()
        looking.join()
        closing.join()


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
    scheduler.put("x", "a")
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
    scheduler.put("x", "a")
    scheduler.dispatch()
    wait_until(lambda: len(seen) == 2)
    assert seen == [True, []] and not scheduler.is_dialer()


@pytest.mark.parametrize("function", [
    DialScheduler.put, DialScheduler.dispatch, DialScheduler._next,
])
def test_an_exception_of_a_signal_handler_loses_no_address(make, function):
    def work():
        scheduler, dials = make()
        was_put = []
        try:
            scheduler.put("x", "a")
            was_put.append(True)
            scheduler.dispatch()
        except KeyboardInterrupt:
            pass

        def check():
            if not was_put:
                scheduler.put("x", "a")
            scheduler.dispatch()
            wait_until(lambda: dials.begun)

        return check

    assert interrupt_everywhere(function, work) > 0
