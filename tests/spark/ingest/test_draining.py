"""When everything that was there has come."""

from __future__ import annotations

import pytest

from nsqclient.consumer.drain_decision import DrainRules, Step
from nsqclient.http.channel_depth import ChannelDepth, ChannelDepths
from nsqclient.spark.receiver import Drain, Progress

QUIET = Progress(stored=0, last_arrival=1.0, silence=9.0, is_connected=True, is_idle=True)
EMPTY = ChannelDepths({"a:1": ChannelDepth(0, 0, 1)})
WAITING = ChannelDepths({"a:1": ChannelDepth(5, 0, 1)})
UNKNOWN = ChannelDepths({}, {"a:1": "refused"})


@pytest.mark.parametrize("target, depths, change, step", [
    (100, WAITING, {"stored": 100}, Step.END),
    (100, WAITING, {"stored": 100, "is_idle": False}, Step.WAIT),
    (100, WAITING, {"stored": 99}, Step.WAIT),
    (100, EMPTY, {"stored": 60}, Step.END),
    (None, EMPTY, {}, Step.END),
    (None, EMPTY, {"last_arrival": 9.0}, Step.WAIT),
    (None, UNKNOWN, {}, Step.END_UNKNOWN),
    (None, UNKNOWN, {"silence": 1.9}, Step.WAIT),
    (None, UNKNOWN, {"is_connected": False}, Step.WAIT),
    (None, ChannelDepths({}, is_topic_unknown=True), {"is_connected": False},
     Step.FAIL_UNKNOWN_TOPIC),
])
def test_a_drain_ends_when_all_that_was_there_is_stored_or_the_channel_was_seen_empty(
    target, depths, change, step
):
    """A silence is the end where the depth is unknown, and the caller allows that."""
    drain = Drain(target, DrainRules(silence=2.0))
    drain.decide(QUIET, 1.0)
    for asked in (2.0, 3.0):
        drain.note(asked, depths, asked)
    drain.note(3.0, UNKNOWN, 3.0)  # the same answer
    assert drain.decide(QUIET._replace(**change), 4.0) is step
