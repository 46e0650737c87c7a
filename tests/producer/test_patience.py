"""How long a publish waits for an answer: pure decisions, with times as numbers."""

import pytest

from nsqclient.producer.outcome import Patience, Step

BEGAN = 100.0


def patience(until=110.0, idle=0.0, silence=20.0):
    """A publish that began at 100 on a connection that had been idle for some seconds."""
    return Patience(BEGAN, until, 1.0, BEGAN - idle, silence, 0)


def decide(waiting, now, progress=0, heard_at=0.0, has_others=False, dialed_at=0.0):
    return waiting.decide(now, progress, heard_at, has_others, dialed_at)


def test_a_publish_waits_for_a_slow_nsqd_until_its_deadline():
    """A connection in steady use is not doubted."""
    waiting = patience(until=103.5)
    assert [decide(waiting, now) for now in (101.0, 102.0, 103.0)] == [Step.WAIT] * 3
    assert waiting.next_look(103.0) == 103.5
    assert decide(waiting, 103.5) is Step.LATE


def test_a_stalled_nsqd_is_left_if_there_is_another():
    assert decide(patience(), 101.0, has_others=True) is Step.STALLED


def test_an_nsqd_that_answers_others_or_takes_bytes_is_not_stalled():
    waiting = patience()
    assert decide(waiting, 101.0, progress=1, has_others=True) is Step.WAIT
    assert decide(waiting, 102.0, progress=2, has_others=True) is Step.WAIT
    assert decide(waiting, 103.0, progress=2, has_others=True) is Step.STALLED


def test_silence_ends_a_publish_with_a_long_timeout():
    """Two heartbeats are missing; bytes that arrive meanwhile count."""
    waiting = patience(until=1000.0)
    assert decide(waiting, 119.9) is Step.WAIT
    assert decide(waiting, 120.0, heard_at=110.0) is Step.WAIT
    assert decide(waiting, 130.0, heard_at=110.0) is Step.SILENT


def test_a_connection_that_was_idle_is_compared_with_a_new_one():
    """The idle connection is dead if nsqd completes a new handshake but does not answer on it."""
    waiting = patience(idle=1.0)
    assert decide(waiting, 101.0, dialed_at=99.0) is Step.PROBE
    assert waiting.next_look(101.0) == pytest.approx(101.1)
    assert decide(waiting, 101.1, dialed_at=99.0) is Step.WAIT
    assert decide(waiting, 101.2, dialed_at=101.15) is Step.DEAD


def test_a_connection_in_use_is_not_dead_because_another_one_was_dialed():
    assert decide(patience(idle=0.9), 101.0, dialed_at=100.5) is Step.WAIT
