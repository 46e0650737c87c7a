"""Which address is dialed next; and by which threads: as few as possible, never too many."""

import threading

import pytest

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import DialQueue, DialScheduler, Standing, standing_of
from nsqclient.runtime.threads import LibraryThread
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.inline_thread import InlineThread
from tests.support.virtual_time import VirtualTimer
from tests.support.waiting import wait_until

WAIT = 10.0
UNTRIED, LOST, FAILING, FAILED = (
    Standing.UNTRIED, Standing.LOST, Standing.FAILING, Standing.FAILED,
)


def make_queue(limit=16, sources="ab", **wanted):
    """A queue; ``wanted`` has lists of addresses by their sources, all untried."""
    queue = DialQueue(limit, sources)
    for names, addresses in wanted.items():
        for address in addresses:
            queue.put(address, names, UNTRIED)
    return queue


def drain(queue):
    """Take all that may be dialed now."""
    taken = []
    while (key := queue.take()) is not None:
        taken.append(key)
    return taken


@pytest.mark.parametrize(("has_worked", "failures", "standing"), [
    (True, 0, LOST), (True, 3, FAILING), (False, 0, UNTRIED), (False, 1, FAILED),
])
def test_an_address_is_classified_by_its_dials(has_worked, failures, standing):
    assert standing_of(has_worked, failures) is standing


def test_sources_take_turns():
    queue = make_queue(a=range(1000), b=["x", "y"])
    assert drain(queue)[:4] == [0, "x", 1, "y"]


def test_a_source_never_uses_the_share_of_another():
    """So what another one names later is dialed at once, whatever hangs."""
    queue = make_queue(a=range(1000))
    assert len(drain(queue)) == 8
    queue.put("x", "b", UNTRIED)
    assert drain(queue) == ["x"]


@pytest.mark.parametrize("limit, sources, share", [(16, "abc", 5), (4, "abcdefgh", 1)])
def test_shares_are_equal_and_at_least_one(limit, sources, share):
    assert len(drain(make_queue(limit, sources, a=range(100)))) == share


def test_no_more_than_the_limit_are_under_way():
    queue = make_queue(2, "abc", a=[1, 2], b=[3, 4], c=[5, 6])
    assert drain(queue) == [1, 3]
    queue.finish(1)
    assert drain(queue) == [5]
    assert queue.under_way == 2


def test_an_address_of_two_sources_is_dialed_once():
    queue = make_queue(4, ab=["x"], a=range(10), b="yz")
    assert drain(queue) == ["x", "y", 0, "z"]


@pytest.mark.parametrize(("standings", "order"), [
    ([FAILED, UNTRIED, LOST], [LOST, UNTRIED, FAILED]),
    ([UNTRIED, FAILING, FAILED], [FAILING, UNTRIED, FAILED]),
    ([UNTRIED, FAILING, LOST], [LOST, FAILING, UNTRIED]),
])
def test_those_that_worked_come_first_and_those_that_never_did_last(standings, order):
    queue = make_queue(sources="a")
    for number, standing in enumerate(standings):
        queue.put((number, standing), "a", standing)
    assert [standing for _, standing in drain(queue)] == order


def test_those_that_fail_again_and_again_leave_every_second_dial_to_the_others():
    queue = make_queue(6, "a", a="xyz")
    for number in range(10):
        queue.put(number, "a", FAILING)
    assert drain(queue) == [0, "x", 1, "y", 2, "z"]


def test_what_no_source_names_is_not_dialed():
    queue = make_queue(a=["x", "y"])
    for key in ("x", "never put"):
        queue.discard(key)
    assert "x" not in queue and queue.count_ready() == 1
    assert drain(queue) == ["y"]


def test_an_address_keeps_its_place_when_another_source_names_it_too():
    """And loses it only with the last source that named it so early."""
    queue = make_queue(a=["x", "y"], b=range(3))
    assert queue.count_ready() == 5
    queue.set_sources("x", "ab")
    queue.set_sources("y", "b")
    queue.set_sources("unknown", "b")
    assert drain(queue) == ["x", 0, 1, 2, "y"]


def test_of_two_calls_the_last_counts():
    queue = make_queue(a=["x", "y"])
    queue.put("x", "b", FAILED)
    queue.put("x", "a", FAILED)
    assert drain(queue) == ["y", "x"] and drain(queue) == []


def test_what_is_being_dialed_is_queued_again_when_that_has_ended():
    """Never twice at the same time."""
    queue = make_queue(a=["x"])
    assert drain(queue) == ["x"] and "x" in queue
    queue.put("x", "a", FAILED)
    queue.set_sources("x", "b")
    assert drain(queue) == []
    queue.finish("x")
    assert drain(queue) == ["x"]


def test_what_is_being_dialed_may_be_dropped():
    queue = make_queue(a=["x"])
    drain(queue)
    queue.put("x", "a", FAILED)
    queue.discard("x")
    queue.finish("x")
    assert "x" not in queue and drain(queue) == []


# -- threads


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
    scheduler, dials = make(limit=3, schedule=VirtualTimer().schedule)
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


@pytest.fixture
def timer(monkeypatch):
    """A clock that a test moves."""
    timer = VirtualTimer()
    monkeypatch.setattr("time.monotonic", lambda: timer.now)
    return timer


def test_what_rests_is_dialed_when_its_time_has_come(make, timer):
    """By itself. It takes no place of the others meanwhile."""
    scheduler, dials = make(schedule=timer.schedule, make_thread=InlineThread, limit=1)
    for key, retry_at in (("late", 5.0), ("early", 2.0), ("with it", 2.0), ("never", 2.0)):
        scheduler.put(key, "a", FAILED, retry_at)
    scheduler.put("x", "a", UNTRIED)
    scheduler.discard("never")
    scheduler.dispatch()
    timer.advance(1.9)
    assert dials.begun == ["x"] and "late" in scheduler and "never" not in scheduler
    timer.advance(3.1)
    assert dials.begun == ["x", "early", "with it", "late"]


def test_what_rests_may_be_put_anew(make, timer):
    """Of two calls the last counts."""
    scheduler, dials = make(schedule=timer.schedule, make_thread=InlineThread)
    scheduler.put("x", "a", FAILED, 1.0)
    scheduler.put("y", "a", FAILED, 1.0)
    scheduler.put("x", "a", FAILED, 2.0)
    scheduler.put("y", "a", UNTRIED)
    scheduler.dispatch()
    assert dials.begun == ["y"]
    timer.advance(1.0)
    assert dials.begun == ["y"]
    timer.advance(1.0)
    assert dials.begun == ["y", "x"]


def test_what_rests_may_get_another_source(make, timer):
    """Its dial counts for the new one, behind what that one named before."""
    scheduler, dials = make("ab", timer.schedule, make_thread=InlineThread)
    scheduler.put("x", "a", FAILED, 1.0)
    scheduler.set_sources("x", "b")
    scheduler.put("y", "b", FAILED, 1.0)
    timer.advance(1.0)
    assert dials.begun == ["x", "y"]
    assert scheduler._queue.count_ready() == 0


def test_what_rests_is_not_dialed_after_the_end(make, timer):
    scheduler, dials = make(schedule=timer.schedule, make_thread=InlineThread)
    scheduler.put("x", "a", FAILED, 1.0)
    scheduler.close()
    timer.advance(1.0)
    assert dials.begun == []


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


def test_without_a_thread_an_address_is_dialed_later(make, timer, caplog):
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
    DialQueue.put, DialQueue.count_ready,
])
def test_an_exception_of_a_signal_handler_loses_no_address(make, function):
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
