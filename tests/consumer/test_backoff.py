"""Backoff: go-nsq's machine, one step after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.consumer.backoff import Backoff, Outcome, Phase
from tests.support.fuzz import fuzz

SUCCESS, FAILURE, NEUTRAL = Outcome.SUCCESS, Outcome.FAILURE, Outcome.NEUTRAL


def _doubling(attempt):
    return 2.0 ** attempt


def _backoff(maximum=120.0, delay=_doubling):
    return Backoff(delay, maximum)


def _play(backoff, outcomes):
    """Give one result after each wait; return the waits."""
    waits = []
    for outcome in outcomes:
        waits.append(backoff.on_result(outcome))
        backoff.on_wait_over()
    return waits


@pytest.mark.parametrize("outcome", [SUCCESS, NEUTRAL])
def test_successes_change_nothing_while_messages_flow(outcome):
    backoff = _backoff()
    assert _play(backoff, [outcome] * 3) == [None] * 3
    assert (backoff.phase, backoff.counter) == (Phase.FLOWING, 0)


def test_a_failure_leads_from_flowing_through_waiting_to_testing():
    backoff = _backoff()
    assert backoff.on_result(FAILURE) == 2.0
    assert (backoff.phase, backoff.counter) == (Phase.WAITING, 1)
    backoff.on_wait_over()
    assert backoff.phase is Phase.TESTING
    assert backoff.on_result(SUCCESS) is None
    assert (backoff.phase, backoff.counter) == (Phase.FLOWING, 0)


def test_waits_grow_and_saturate():
    backoff = _backoff(maximum=120.0)
    assert _play(backoff, [FAILURE] * 9) == [2, 4, 8, 16, 32, 64, 64, 64, 64]
    assert backoff.counter == 6


def test_saturation_does_not_pile_up():
    backoff = _backoff(maximum=8.0)
    _play(backoff, [FAILURE] * 50)
    assert backoff.counter == 3
    assert _play(backoff, [SUCCESS] * 3) == [4, 2, None]


@pytest.mark.parametrize("outcome", Outcome)
def test_one_result_counts_for_each_wait(outcome):
    backoff = _backoff()
    backoff.on_result(FAILURE)
    assert backoff.on_result(outcome) is None
    assert (backoff.phase, backoff.counter) == (Phase.WAITING, 1)


def test_a_neutral_result_repeats_the_test():
    """A requeue without backoff says nothing: the same wait again, or the test would stall."""
    backoff = _backoff()
    _play(backoff, [FAILURE, FAILURE])
    assert backoff.on_result(NEUTRAL) == 4.0
    assert (backoff.phase, backoff.counter) == (Phase.WAITING, 2)


def test_a_longest_wait_of_zero_turns_backoff_off():
    backoff = _backoff(maximum=0.0)
    assert _play(backoff, [FAILURE] * 5) == [None] * 5
    assert (backoff.phase, backoff.counter) == (Phase.FLOWING, 0)


def test_the_first_failure_always_counts():
    """A delay over the maximum from the start is cut to it, and is no reason for no backoff."""
    backoff = _backoff(maximum=1.0)
    assert _play(backoff, [FAILURE, FAILURE]) == [1.0, 1.0]
    assert backoff.counter == 1


def test_a_delay_of_zero_is_a_wait_of_zero():
    backoff = _backoff(delay=lambda attempt: 0.0)
    assert backoff.on_result(FAILURE) == 0.0
    assert backoff.phase is Phase.WAITING


@pytest.mark.parametrize("before, outcome", [([], FAILURE), ([FAILURE], NEUTRAL)])
def test_a_strategy_that_raises_changes_nothing(before, outcome):
    backoff = _backoff()
    _play(backoff, before)
    then = (backoff.phase, backoff.counter)
    backoff._delay = lambda attempt: 1 / 0
    with pytest.raises(ZeroDivisionError):
        backoff.on_result(outcome)
    assert (backoff.phase, backoff.counter) == then


@fuzz
@given(st.lists(st.sampled_from([*Outcome, None]), max_size=60), st.sampled_from([0, 1, 8, 1e9]))
def test_any_results_keep_phase_and_counter_in_step(steps, maximum):
    """A wait is announced when, and only when, one begins; the counter is 0 when all flows."""
    backoff = _backoff(maximum)
    for step in steps:
        was_waiting = backoff.phase is Phase.WAITING
        wait = backoff.on_wait_over() if step is None else backoff.on_result(step)
        begins = backoff.phase is Phase.WAITING and not was_waiting
        assert (wait is not None) == begins
        assert wait is None or 0 < wait <= maximum
        assert (backoff.phase is Phase.FLOWING) == (backoff.counter == 0)
