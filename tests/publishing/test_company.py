"""Blocking publishes of many threads: who travels together, and what happens on the way."""

from __future__ import annotations

import contextlib

import pytest

from nsqclient.errors import ConnectionLostError, server_error
from nsqclient.publishing.attempts import Companion
from nsqclient.publishing.company import Company, Trip
from nsqclient.publishing.verdicts import Verdict
from tests.support.fake_links import FakeLinks
from tests.support.interrupts import interrupt_everywhere

LOST = ConnectionLostError("nsqd:4150", "reset")


@pytest.fixture
def links():
    """One nsqd that takes all and answers nothing by itself."""
    return FakeLinks()


def lines(links):
    """The first lines of the commands that were sent."""
    return [command.partition(b"\n")[0] for command, _ in links.sent]


def join(company, *topics):
    """Add a message to each of the topics."""
    companions = [Companion(topic, b"x") for topic in topics]
    for companion in companions:
        company.join(companion)
    return companions


def test_those_that_wait_together_travel_together(links):
    """The first leaves at once; what comes until it is answered leaves then, topic by topic."""
    company = Company(links, 5_000)
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
    company = Company(links, 100)
    for _ in range(4):
        company.join(Companion("a", b"x" * 40))
    for number in range(3):
        links.token(number).settle(Verdict.STORED, None)
    assert lines(links) == [b"PUB a", b"MPUB a", b"PUB a"]


def test_only_one_of_them_is_guilty(links):
    """When nsqd refuses an MPUB for one of its messages, each is to try again alone."""
    company = Company(links, 5_000)
    _, *others = join(company, "a", "a", "a")
    links.token(0).settle(Verdict.STORED, None)
    links.token(1).settle(Verdict.REJECTED, server_error(b"E_BAD_MESSAGE too big"))
    assert [one.verdict for one in others] == [Verdict.NOT_READ] * 2


def test_who_gave_up_is_not_sent(links):
    """A message whose deadline has passed in the queue stays here."""
    company = Company(links, 5_000)
    _, late, other = join(company, "a", "late", "b")
    assert late.withdraw()
    links.token(0).settle(Verdict.STORED, None)
    assert lines(links) == [b"PUB a", b"PUB b"]


def test_a_connection_that_just_ended(links):
    """All of the trip try again by themselves, and the nsqd is free for others."""
    company = Company(links, 5_000)
    links.just_ended = 1
    (one,) = join(company, "a")
    assert one.verdict is Verdict.NOT_READ
    join(company, "b")
    assert lines(links) == [b"PUB b"]


def test_without_any_nsqd_everybody_waits_for_one_by_himself(links):
    """The queue is emptied when the last connection is lost."""
    company = Company(links, 5_000)
    first, second = join(company, "a", "b")
    links.go_down()
    links.token(0).settle(Verdict.UNKNOWN, LOST)
    assert (first.verdict, second.verdict) == (Verdict.UNKNOWN, Verdict.NOT_READ)


def test_ctrl_c_in_one_does_not_hold_up_the_others(links):
    """Who sends for others may be interrupted: they are told, and the nsqd is free again."""
    company = Company(links, 5_000)
    links.broken = KeyboardInterrupt()
    one = Companion("a", b"x")
    with pytest.raises(KeyboardInterrupt):
        company.join(one)
    assert one.verdict is Verdict.UNKNOWN
    join(company, "b")
    assert lines(links) == [b"PUB b"]


@pytest.mark.parametrize("function", [Company._try_trip, Company._take, Trip.__init__, Trip.begin])
def test_ctrl_c_anywhere_gives_the_nsqd_free(function):
    """Whatever was interrupted, the next message is sent."""
    def work():
        links = FakeLinks()
        company = Company(links, 5_000)
        one = Companion("a", b"x")
        with contextlib.suppress(KeyboardInterrupt):
            company.join(one)

        def check():
            for _, part in list(links.sent):
                part.settle(Verdict.STORED, None)
            join(company, "b")
            assert lines(links)[-1] == b"PUB b"

        return check

    assert interrupt_everywhere(function, work) > 1
