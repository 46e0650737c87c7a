"""When everything that was there has come."""

from __future__ import annotations

import pytest

from nsqclient.spark.ingest.draining import Drain, DrainState

QUIET = DrainState(stored=0, silence=9.0, is_connected=True, dials_failed=0, is_idle=True,
                   waiting=0, out=0, is_complete=True, is_stale=False)


@pytest.mark.parametrize("target, change, over", [
    (100, {"stored": 100, "silence": 0.0}, True),
    (100, {"stored": 100, "is_idle": False}, False),
    (100, {"stored": 99, "silence": 0.1, "is_complete": False}, False),
    (0, {"is_connected": False}, True),
    (100, {"stored": 60, "waiting": 0, "out": 0}, True),
    (100, {"stored": 60, "waiting": 0, "out": 40}, False),
    (100, {"stored": 60, "waiting": 0, "out": 40, "silence": 16.0}, True),
    (100, {"stored": 60, "waiting": 40, "out": 0}, False),
    (100, {"stored": 60, "waiting": 40, "out": 0, "silence": 16.0}, True),
    (100, {"stored": 60, "waiting": 0, "out": 0, "is_stale": True}, False),
    (None, {"silence": 1.9, "is_complete": False}, False),
    (None, {"silence": 2.0, "is_complete": False}, True),
    (None, {"silence": 0.0}, True),
    (None, {"stored": 99, "waiting": 5, "silence": 15.0, "is_complete": False}, False),
    (None, {"stored": 99, "out": 5, "silence": 15.0, "is_complete": False}, False),
    (None, {"stored": 99, "waiting": 5, "silence": 16.0, "is_complete": False}, True),
    (100, {"stored": 60, "silence": 15.9, "is_complete": False}, False),
    (100, {"stored": 60, "silence": 16.0, "is_complete": False}, True),
    (None, {"is_complete": False, "is_stale": True}, False),
    (None, {"is_connected": False, "silence": 99.0}, False),
    (None, {"is_connected": False, "is_unknown": True}, True),
    (None, {"is_complete": False, "is_unknown": True, "silence": 0.0}, False),
])
def test_a_drain_ends_when_everything_that_was_there_is_stored(target, change, over):
    """Other consumers, messages that a crash left in flight, and unknown depths are considered."""
    drain = Drain(target, idle=2.0, return_time=16.0)
    assert drain.is_over(QUIET._replace(**change)) is over


def test_without_any_nsqd_a_drain_is_hopeless_after_a_while():
    """Better an error than an end with nothing."""
    drain = Drain(None, idle=2.0, return_time=16.0)
    alone = QUIET._replace(is_connected=False, dials_failed=1)
    assert not drain.is_hopeless(alone, 4.9)
    assert drain.is_hopeless(alone, 5.0)
    assert not drain.is_hopeless(QUIET, 99.0)
