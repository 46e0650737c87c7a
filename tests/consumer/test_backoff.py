"""Backoff: go-nsq's machine, one step after the other."""

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


@pytest.mark.parametrize("maximum, outcomes, waits, counter", [
    # While messages flow successes change nothing.
    (120.0, [SUCCESS] * 3, [None] * 3, 0),
    (120.0, [NEUTRAL] * 3, [None] * 3, 0),
    # Waits grow and saturate, and saturation does not pile up.
    (120.0, [FAILURE] * 9, [2, 4, 8, 16, 32, 64, 64, 64, 64], 6),
    (8.0, [FAILURE] * 50, [2, 4] + [8] * 48, 3),
    (8.0, [FAILURE] * 50 + [SUCCESS] * 3, [2, 4] + [8] * 48 + [4, 2, None], 0),
    # A delay over the maximum from the start is cut to it; a maximum of 0 turns backoff off.
    (1.0, [FAILURE, FAILURE], [1, 1], 1),
    (0.0, [FAILURE] * 5, [None] * 5, 0),
])
def test_outcomes_lead_to_waits(maximum, outcomes, waits, counter):
    backoff = _backoff(maximum)
    assert _play(backoff, outcomes) == waits
    assert backoff.counter == counter
    assert backoff.phase is (Phase.TESTING if counter else Phase.FLOWING)


def test_a_failure_leads_from_flowing_through_waiting_to_testing():
    backoff = _backoff()
    assert backoff.on_result(FAILURE) == 2.0
    assert (backoff.phase, backoff.counter) == (Phase.WAITING, 1)
    backoff.on_wait_over()
    assert backoff.phase is Phase.TESTING
    assert backoff.on_result(SUCCESS) is None
    assert (backoff.phase, backoff.counter) == (Phase.FLOWING, 0)


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
