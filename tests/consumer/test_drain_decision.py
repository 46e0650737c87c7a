"""When a channel was seen empty."""

from __future__ import annotations

import pytest

from nsqclient.consumer.drain_decision import (
    DepthHistory, DrainRules, DrainState, NsqdState, Seen, Step, decide, is_empty,
)
from nsqclient.http.channel_depth import ChannelDepth, ChannelDepths

RULES = DrainRules(patience=60.0)
ALLOWED = DrainRules(patience=60.0, silence=2.0)
LOOP = DrainRules(is_loop=True)
EMPTY = NsqdState("a:1", Seen.KNOWN, has_answered=True)
WAITING = NsqdState("a:1", Seen.KNOWN, waiting=3, has_answered=True)
HELD = NsqdState("a:1", Seen.KNOWN, in_flight=3, has_answered=True)
DEFERRED = EMPTY._replace(deferred=3)
NEVER = NsqdState("b:1", Seen.NEVER_ASKED)
UNKNOWN = NsqdState("b:1", Seen.UNKNOWN)
FROZEN = UNKNOWN._replace(has_answered=True)
WITHOUT = UNKNOWN._replace(has_http=False)
#: Nothing is left, and was asked for twice.
DONE = DrainState((EMPTY,), silence=9.0, quiet=9.0, settled=9.0, empty_answers=2)


@pytest.mark.parametrize("nsqds, change, step", [
    ([EMPTY], {}, Step.END),
    ([], {}, Step.WAIT),
    ([EMPTY, NEVER], {}, Step.WAIT),
    ([EMPTY], {"empty_answers": 1}, Step.WAIT),
    ([WAITING], {}, Step.WAIT),
    ([WAITING._replace(stuck=60.0)], {}, Step.FAIL_STUCK),
    ([HELD], {"quiet": 999.0}, Step.WAIT),
    ([HELD], {"own": 3}, Step.FLUSH),
    ([WAITING, HELD], {"own": 3}, Step.WAIT),
    ([HELD, UNKNOWN], {"own": 3}, Step.FLUSH),
    ([EMPTY, UNKNOWN._replace(stuck=59.9)], {}, Step.WAIT),
    ([EMPTY, FROZEN._replace(stuck=60.0)], {}, Step.FAIL_STUCK),
    ([EMPTY, WITHOUT], {}, Step.FAIL_WITHOUT_HTTP),
    ([], {"is_topic_unknown": True}, Step.FAIL_UNKNOWN_TOPIC),
    ([DEFERRED], {}, Step.END),
    ([DEFERRED], {"settled": 5.9}, Step.WAIT),
])
def test_a_drain_ends_when_every_nsqd_that_counts_has_said_that_it_is_empty(nsqds, change, step):
    """A question without an answer is never taken for that; it fails when patience has passed."""
    assert decide(RULES, DONE._replace(nsqds=tuple(nsqds), **change)) is step


@pytest.mark.parametrize("nsqds, change, step", [
    ([EMPTY], {}, Step.END),
    ([EMPTY, UNKNOWN], {}, Step.END_UNKNOWN),
    ([EMPTY, WITHOUT], {}, Step.END_UNKNOWN),
    ([EMPTY, WITHOUT], {"quiet": 1.9}, Step.WAIT),
    ([EMPTY, WITHOUT], {"are_all_connected": False}, Step.WAIT),
    ([EMPTY, FROZEN], {}, Step.WAIT),
    ([UNKNOWN, FROZEN], {}, Step.WAIT),
    ([WAITING, UNKNOWN], {}, Step.WAIT),
    ([HELD, UNKNOWN], {}, Step.WAIT),
    ([NEVER, UNKNOWN], {}, Step.WAIT),
    ([EMPTY, UNKNOWN], {"own": 1}, Step.FLUSH),
    ([EMPTY, UNKNOWN._replace(stuck=60.0)], {"quiet": 0.0}, Step.FAIL_STUCK),
])
def test_a_silence_is_the_end_only_where_the_caller_allows_it(nsqds, change, step):
    """And only of an nsqd that has never answered: after an answer another one is expected."""
    assert decide(ALLOWED, DONE._replace(nsqds=tuple(nsqds), **change)) is step


@pytest.mark.parametrize("in_flight, silence, step", [
    (3, 2.0, Step.END), (3, 1.9, Step.WAIT), (4, 9.0, Step.WAIT),
])
def test_a_loop_does_not_wait_for_what_it_holds_itself(in_flight, silence, step):
    """Other threads have a moment to answer it; what others hold is waited for."""
    held = DONE._replace(nsqds=(HELD._replace(in_flight=in_flight),), own=3, silence=silence)
    assert decide(LOOP, held) is step


def test_deferred_messages_are_waited_for_where_that_is_wished():
    assert not is_empty(DrainRules(wait_deferred=True), (DEFERRED,), 0)
    assert is_empty(RULES, (DEFERRED,), 0)


def known(depth=0, **more):
    return ChannelDepths({"a:1": ChannelDepth(depth, 0, 1)._replace(**more)})


def seen(history, now=100.0, quiet=0.0):
    return {one.address: one for one in history.nsqds(now, quiet)}


def state_of(history):
    return history.state(
        100.0, was_connected=True, are_all_connected=True, silence=0.0, quiet=0.0)


def test_an_answer_counts_until_something_changes():
    """A message that came, or a connection that was made or lost."""
    history = DepthHistory(RULES, 0.2)
    assert seen(history) == {}
    history.on_answer(1.0, known(), 1.1)
    assert seen(history)["a:1"] == EMPTY
    history.on_change(1.0)
    assert seen(history)["a:1"].seen is Seen.NEVER_ASKED
    history.on_answer(1.5, known(2), 1.6)
    assert seen(history)["a:1"]._replace(stuck=0.0) == WAITING._replace(waiting=2)
    assert state_of(history).settled == 0.5


def test_paused_messages_are_not_expected():
    history = DepthHistory(RULES, 0.2)
    history.on_answer(1.0, known(5, is_paused=True), 1.1)
    assert seen(history)["a:1"].seen is Seen.KNOWN


def test_an_answer_before_or_after_an_outage_does_not_count():
    """An nsqd that answers again may have been restarted meanwhile."""
    history = DepthHistory(RULES, 0.2)
    for asked, depths, state in (
        (1.0, known(), Seen.KNOWN),
        (2.0, ChannelDepths({}, {"a:1": "refused"}), Seen.NEVER_ASKED),
        (3.0, ChannelDepths({}, {"a:1": "refused"}), Seen.UNKNOWN),
        (4.0, known(), Seen.NEVER_ASKED),
        (5.0, known(), Seen.KNOWN),
    ):
        assert history.on_answer(asked, depths, asked)
        assert not history.on_answer(asked, depths, asked)
        assert seen(history)["a:1"].seen is state
        assert seen(history)["a:1"].has_answered
        if state is Seen.NEVER_ASKED:
            assert state_of(history).empty_answers == 1  # those of before are forgotten


def watch(history, began, seconds, quiet=float("inf")):
    """Look ten times a second; return for how long the nsqd was in the way at the end."""
    states = [seen(history, began + tenth / 10, quiet) for tenth in range(seconds * 10 + 1)]
    return round(states[-1]["a:1"].stuck, 1)


@pytest.mark.parametrize("depths", [ChannelDepths({}, {"a:1": "refused"}), known(3)])
def test_an_nsqd_is_in_the_way_from_its_first_bad_answer_or_the_last_message(depths):
    """Not from before: another consumer may have held messages for long."""
    history = DepthHistory(RULES, 0.2)
    history.on_answer(1.0, known(in_flight=1), 1.0)
    assert watch(history, 1.0, 500) == 0.0
    history.on_answer(600.0, depths, 600.0)
    assert watch(history, 600.0, 5) == 5.0
    history.on_answer(605.0, depths, 605.0)
    assert watch(history, 605.0, 5) == 10.0
    history.on_change(610.0)
    assert watch(history, 610.0, 5) == 15.0
    history.on_change(615.0, is_message=True)
    assert watch(history, 615.0, 5) == 5.0
    history.on_answer(621.0, known(), 621.0)
    assert watch(history, 621.0, 5) == 0.0


def test_messages_that_wait_are_expected_while_a_connection_has_rdy_to_spare():
    history = DepthHistory(RULES, 0.2)
    history.on_answer(1.0, known(3), 1.0)
    assert watch(history, 1.0, 50, quiet=7.0) == 7.0


def test_a_time_in_which_the_process_was_suspended_is_not_counted():
    history = DepthHistory(RULES, 0.2)
    history.on_answer(1.0, ChannelDepths({}, {"a:1": "refused"}), 1.0)
    seen(history, 1.0)
    assert seen(history, 900.0)["a:1"].stuck == 0.2
