"""One try of a publish that a thread waits for."""

from __future__ import annotations

from nsqclient.publishing.attempts import Attempt, Companion
from nsqclient.publishing.link import Link
from nsqclient.publishing.verdicts import Verdict
from nsqclient.runtime.bell import Bell


def test_an_attempt_is_settled_once():
    """Who waits gets the verdict; without one in time, False."""
    attempt = Attempt()
    assert not attempt.wait(0.01)
    attempt.settle(Verdict.STORED)
    assert attempt.wait(None) and attempt.verdict is Verdict.STORED and attempt.error is None


def test_a_message_is_either_withdrawn_or_sent():
    """Whoever gives up in time knows that it was not sent."""
    assert Companion("t", b"x", Bell()).withdraw()
    taken = Companion("t", b"x", Bell())
    taken.link = Link("nsqd:4150", None)
    assert not taken.withdraw()
