"""Blocking publishes of many threads: who travels together, and what happens on the way."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time

import pytest

from nsqclient.errors import ConnectionLostError, server_error
from nsqclient.publishing.attempts import Attempt, Companion
from nsqclient.publishing.company import Company, Part, Trip
from nsqclient.publishing.verdicts import Verdict
from nsqclient.runtime.bell import Bell
from nsqclient.runtime.deadline import Deadline
from tests.support.fake_links import FakeLinks
from tests.support.interrupts import interrupt_everywhere
from tests.support.waiting import wait_until

WAIT = 30.0
LOST = ConnectionLostError("nsqd:4150", "reset")


@pytest.fixture
def links():
    """One nsqd that takes all and answers nothing by itself."""
    return FakeLinks()


def make(links, max_body_size=5_000):
    """A company whose messages are not tried again."""
    return Company(links, max_body_size, lambda *args: None)


def lines(links):
    """The first lines of the commands that were sent."""
    return [command.partition(b"\n")[0] for command, _ in links.sent]


def settle_all(links):
    """Answer everything that was sent so far."""
    for _, part in list(links.sent):
        part.settle(Verdict.STORED, None)


def join(company, *topics):
    """Add a message to each of the topics."""
    companions = [Companion(topic, b"x", Bell()) for topic in topics]
    for companion in companions:
        company.join(companion)
    return companions


def test_those_that_wait_together_travel_together(links):
    """The first leaves at once; what comes until it is answered leaves then, topic by topic."""
    company = make(links)
    first, *others = join(company, "a", "a", "b", "a")
    assert lines(links) == [b"PUB a"]
    links.token(0).settle(Verdict.STORED, None)
    assert first.is_settled() and lines(links)[1:] == [b"MPUB a", b"PUB b"]
    for number in (1, 2):
        links.token(number).settle(Verdict.STORED, None)
    assert [one.verdict for one in others] == [Verdict.STORED] * 3
    join(company, "c")
    assert lines(links)[3:] == [b"PUB c"]


def test_an_mpub_stays_under_the_body_limit(links):
    """What does not fit travels next."""
    company = make(links, 100)
    for _ in range(4):
        company.join(Companion("a", b"x" * 40, Bell()))
    for number in range(3):
        links.token(number).settle(Verdict.STORED, None)
    assert lines(links) == [b"PUB a", b"MPUB a", b"PUB a"]


def test_only_one_of_them_is_guilty(links):
    """When nsqd refuses an MPUB for one of its messages, each is to try again alone."""
    company = make(links)
    _, *others = join(company, "a", "a", "a")
    links.token(0).settle(Verdict.STORED, None)
    links.token(1).settle(Verdict.REJECTED, server_error(b"E_BAD_MESSAGE too big"))
    assert [one.verdict for one in others] == [Verdict.NOT_READ] * 2


def test_who_gave_up_is_not_sent(links):
    """A message whose deadline has passed in the queue stays here."""
    company = make(links)
    _, late, other = join(company, "a", "late", "b")
    assert late.withdraw()
    links.token(0).settle(Verdict.STORED, None)
    assert lines(links) == [b"PUB a", b"PUB b"]


def test_a_connection_that_just_ended(links):
    """All of the trip try again by themselves, and the nsqd is free for others."""
    company = make(links)
    links.just_ended = 1
    (one,) = join(company, "a")
    assert one.verdict is Verdict.NOT_READ
    join(company, "b")
    assert lines(links) == [b"PUB b"]


def test_without_any_nsqd_everybody_waits_for_one_by_himself(links):
    """The queue is emptied when the last connection is lost."""
    company = make(links)
    first, second = join(company, "a", "b")
    links.go_down()
    links.token(0).settle(Verdict.UNKNOWN, LOST)
    assert (first.verdict, second.verdict) == (Verdict.UNKNOWN, Verdict.NOT_READ)


def test_ctrl_c_in_one_does_not_hold_up_the_others(links):
    """Who sends for others may be interrupted: they are told, and the nsqd is free again."""
    company = make(links)
    links.broken = KeyboardInterrupt()
    one = Companion("a", b"x", Bell())
    with pytest.raises(KeyboardInterrupt):
        company.join(one)
    assert one.verdict is Verdict.UNKNOWN
    join(company, "b")
    assert lines(links) == [b"PUB b"]


def test_one_that_waits_is_asked_to_receive(links):
    """It is woken for that, receives, and then waits for its outcome like all others."""
    company = make(links)
    first, second = join(company, "a", "a")
    second.is_waiting = True
    links.token(0).settle(Verdict.STORED, None)
    assert second.receives_from is links and second.bell._lock.acquire(blocking=False)
    waiter = threading.Thread(target=company.wait, args=(second, WAIT, time.monotonic() + WAIT))
    waiter.start()
    wait_until(lambda: links.helped == [Part])
    links.token(1).settle(Verdict.STORED, None)
    waiter.join(WAIT)
    assert not waiter.is_alive() and not links.calls


def test_who_sends_its_own_receives(links):
    """It is about to wait anyway; nobody has to be woken."""
    company = make(links)
    (one,) = join(company, "a")
    assert one.receives_from is links and not links.calls


def test_where_nobody_waits_the_reader_receives(links):
    """Those that were sent are only on their way to their beds."""
    company = make(links)
    _, second = join(company, "a", "a")
    links.token(0).settle(Verdict.STORED, None)
    assert second.receives_from is None and links.calls == 1


def test_who_was_asked_and_leaves_calls_the_reader(links):
    """Its time was over just then."""
    company = make(links)
    (one,) = join(company, "a")
    one.is_done = True  # by the reader, say
    company.wait(one, 0.0, 0.0)
    assert one.receives_from is None and links.calls == 1


def test_a_signal_is_no_verdict(links):
    """Its handler runs, and the publish goes on waiting."""
    company = make(links)
    handled = []
    before = signal.signal(signal.SIGALRM, lambda *args: handled.append(len(links.sent)))

    def answer():
        links.sent_line(0)
        wait_until(lambda: len(handled) >= 3)
        settle_all(links)

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        company.publish("a", b"x", Deadline(WAIT))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    answering.join(WAIT)
    assert len(handled) >= 3 and company.close(Deadline(WAIT), True) == []


def test_a_trip_that_is_over_keeps_nothing(links):
    """No circle waits for the garbage collector: it would hold file descriptors."""
    company = make(links)
    (one,) = join(company, "a")
    bell = one.bell.ref
    links.token(0).settle(Verdict.STORED, None)
    gc.disable()
    try:
        links.sent.clear()
        del one
        assert bell() is None
    finally:
        gc.enable()


def test_beside_something_that_computes_bells_are_locks(links):
    """Who rings a kernel's bell gives the interpreter away, and waits to get it back."""
    company = make(links)
    company._line.is_slow = True
    links.receive = lambda *args: settle_all(links)
    company.publish("a", b"x", Deadline(WAIT))
    assert not company._bells._free and company._bells._thread is None


def test_a_line_that_stands_is_got_going(links, monkeypatch):
    """Whatever happened to the one that was to send: whoever is woken by the ticker sends."""
    monkeypatch.setattr("nsqclient.runtime.bell.TICK", 0.01)
    company = make(links)
    company._line.is_moving = True
    publisher = threading.Thread(target=company.publish, args=("a", b"x", Deadline(WAIT)))
    publisher.start()
    links.token(0).settle(Verdict.STORED, None)
    publisher.join(WAIT)
    assert not publisher.is_alive() and company.close(Deadline(WAIT), True) == []


@pytest.mark.parametrize("function", [Part.settle, Trip.on_part_settled, Company.wake])
def test_a_verdict_that_was_interrupted_is_told_once_more(function):
    """Ctrl-C in a thread that receives for others: the reader repeats what it did not finish."""
    def work():
        links = FakeLinks()
        company = make(links)
        _, *others = join(company, "a", "b", "b", "c")
        for one in others:
            one.is_waiting = True
        for number in range(3):
            try:
                links.token(number).settle(Verdict.STORED, None)
            except KeyboardInterrupt:
                links.token(number).settle(Verdict.STORED, None)
            company.send_waiting()  # as the last one that was woken does

        def check():
            assert all(one.verdict is Verdict.STORED for one in others)
            assert list(links.lane) == [None]

        return check

    assert interrupt_everywhere(function, work) > 1


@pytest.mark.parametrize("function", [Company.publish, Company.wait, Company.join])
def test_ctrl_c_in_a_publish(function):
    """Whoever comes next is served."""
    def work():
        links = FakeLinks()
        company = make(links)
        links.receive = lambda *args: settle_all(links)
        links.call_reader = lambda: settle_all(links)
        with contextlib.suppress(KeyboardInterrupt):
            company.publish("a", b"x", Deadline(WAIT))

        def check():
            settle_all(links)  # the reader comes back by itself
            company.publish("b", b"x", Deadline(WAIT))
            assert lines(links)[-1] in (b"PUB b", b"MPUB b") and list(links.lane) == [None]
            assert company.close(Deadline(WAIT), True) == []

        return check

    assert interrupt_everywhere(function, work) > 1


@pytest.mark.parametrize(
    "function", [Company._try_trip, Company._take, Company._appoint, Trip.__init__, Trip.begin]
)
def test_ctrl_c_anywhere_gives_the_nsqd_free(function):
    """Whatever was interrupted, the next message is sent."""
    def work():
        links = FakeLinks()
        company = make(links)
        one = Companion("a", b"x", Bell())
        with contextlib.suppress(KeyboardInterrupt):
            company.join(one)

        def check():
            settle_all(links)
            join(company, "b")
            assert lines(links)[-1] == b"PUB b"

        return check

    assert interrupt_everywhere(function, work) > 0


@pytest.mark.parametrize("function", [Company._try_trip, Trip.abort, Attempt.settle, Attempt.set])
def test_ctrl_c_while_a_connection_ends_frees_the_nsqd_and_settles_all(function):
    """Those that were to travel have an outcome, and the next message is sent."""
    def work():
        links = FakeLinks()
        company = make(links)
        links.just_ended = 1
        companions = [Companion(topic, b"x", Bell()) for topic in ("a", "b", "b", "c")]
        company._queue.extend(companions)
        with contextlib.suppress(KeyboardInterrupt):
            company.send_waiting()  # as the last one that was woken does

        def check():
            links.just_ended = 0
            company.send_waiting()
            settle_all(links)
            assert all(one.is_done for one in companions)
            join(company, "d")
            assert lines(links)[-1] == b"PUB d"
            settle_all(links)
            assert list(links.lane) == [None]

        return check

    assert interrupt_everywhere(function, work) > 1
