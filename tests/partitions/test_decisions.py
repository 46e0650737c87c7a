"""Order, reactions and traces by value."""

from __future__ import annotations

import pytest

from nsqclient.partitions.ordering import OrderCheck, Turn
from nsqclient.partitions.reactions import (
    Reaction,
    SubReaction,
    on_publish_refused,
    on_sub_refused,
    pause_before,
)
from nsqclient.partitions.tracing import ConsumeTrace, PublishTrace, TraceSwitch, trace_line


@pytest.mark.parametrize(("internal_id", "offset", "turn"), [
    (10, 100, Turn.AGAIN), (11, 140, Turn.NEXT), (9, 60, Turn.BEHIND), (11, 60, Turn.BEHIND),
    (9, 140, Turn.BEHIND),
])
def test_order_is_checked_by_id_and_offset(internal_id, offset, turn):
    """Both must not fall behind the last message that was finished."""
    check = OrderCheck()
    check.on_finished(10, 100)
    assert check.turn_of(internal_id, offset) is turn


def test_a_new_connection_begins_anywhere():
    """Before anything was finished there is no order to break."""
    assert OrderCheck().turn_of(1, 0) is Turn.NEXT


@pytest.mark.parametrize(("code", "reaction"), [
    ("E_FAILED_ON_NOT_LEADER", Reaction.REFRESH),
    ("E_FAILED_ON_NOT_WRITABLE", Reaction.REFRESH),
    ("E_TOPIC_NOT_EXIST", Reaction.REFRESH),
    ("E_PUB_FAILED", Reaction.RETRY),
    ("E_MPUB_FAILED", Reaction.RETRY),
    ("E_PUB_TOO_MUCH_WAITING", Reaction.RETRY),
    ("E_SOMETHING_NEW", Reaction.RETRY),
    ("E_BAD_MESSAGE", Reaction.RAISE),
    ("E_BAD_BODY", Reaction.RAISE),
    ("E_BAD_TOPIC", Reaction.RAISE),
    ("E_EXT_NOT_SUPPORT", Reaction.RAISE),
    ("E_INVALID_JSON_HEADER", Reaction.RAISE),
    ("INVALID_TRACE_ID", Reaction.RAISE),
    ("E_UNAUTHORIZED", Reaction.RAISE),
])
def test_retry_table(code, reaction):
    """Each code of the table leads to its reaction, however often it comes."""
    assert {on_publish_refused(code, "", tries) for tries in (1, 2, 3)} == {reaction}


@pytest.mark.parametrize("code", ["E_INVALID", "E_BAD_PARTITION"])
def test_errors_of_the_caller_have_one_more_try(code):
    """Metadata may be stale; a second refusal means what it says."""
    assert on_publish_refused(code, "cannot PUB", 1) is Reaction.REFRESH
    assert on_publish_refused(code, "cannot PUB", 2) is Reaction.RAISE


def test_an_unknown_command_stays_unknown():
    """No retry where the server does not know the command."""
    assert on_publish_refused("E_INVALID", "invalid command [[80]]", 1) is Reaction.RAISE


def test_pauses_grow_and_are_longer_while_a_leader_moves():
    """A planned move takes most of a second; other errors pass sooner."""
    assert pause_before(1, False) < pause_before(2, False) < pause_before(2, True)
    assert pause_before(99, True) == pause_before(5, True)
    assert pause_before(0, False) == pause_before(1, False)


@pytest.mark.parametrize(("code", "reaction"), [
    ("E_SUB_EXTEND_NEED", SubReaction.FLIP_EXTEND),
    ("E_SUB_EXTEND_FORBIDDON", SubReaction.FLIP_EXTEND),
    ("E_SUB_ORDER_IS_MUST", SubReaction.GIVE_UP),
    ("E_FAILED_ON_NOT_LEADER", SubReaction.REFRESH),
    ("E_FAILED_ON_NOT_WRITABLE", SubReaction.REFRESH),
    ("E_TOPIC_NOT_EXIST", SubReaction.REFRESH),
    ("E_SUB_CHANNEL_NOT_REGISTERED", SubReaction.REFRESH),
    ("E_BAD_PARTITION", SubReaction.REFRESH),
])
def test_refused_subscriptions(code, reaction):
    """Each refusal of SUB leads to its reaction."""
    assert on_sub_refused(code) is reaction


def test_tracing_can_be_turned_per_topic():
    """A topic's own setting counts until all are set again."""
    switch = TraceSwitch()
    assert not switch.is_on("t")
    switch.set(True)
    switch.set(False, "t")
    assert switch.is_on("other") and not switch.is_on("t")
    switch.set(True)
    assert switch.is_on("t")
    switch.set(False)
    switch.set(True, "t")
    assert switch.is_on("t") and not switch.is_on("other")


def test_trace_lines_have_every_field_that_is_known():
    """The fields of the article stand in one line, by name."""
    line = trace_line("published", PublishTrace("t", 1, "n:1", 7, 77, 195, 41))
    assert line == (
        "published topic=t partition=1 nsqd=n:1 internal_id=7 trace_id=77 offset=195 size=41"
    )
    line = trace_line("received", ConsumeTrace(
        "t", "c", 0, 7, 77, None, None, 123, 1, "10.0.0.1", "n:1"))
    assert "offset" not in line and "size" not in line
    assert "timestamp=123 attempts=1 consumer=10.0.0.1 nsqd=n:1" in line
