"""When everything that was there has come."""

from __future__ import annotations

import pytest

from nsqclient.spark.ingest.draining import Drain, Progress

QUIET = Progress(stored=0, silence=9.0, is_connected=True, dials_failed=0, is_idle=True,
                 waiting=None, out=None, is_stale=False)


@pytest.mark.parametrize("target, change, over", [
    (100, {"stored": 100, "silence": 0.0}, True),
    (100, {"stored": 100, "is_idle": False}, False),
    (100, {"stored": 99, "silence": 0.1}, False),
    (0, {"is_connected": False}, True),
    (100, {"stored": 60, "waiting": 0, "out": 0}, True),
    (100, {"stored": 60, "waiting": 0, "out": 40}, False),
    (100, {"stored": 60, "waiting": 0, "out": 40, "silence": 16.0}, True),
    (100, {"stored": 60, "waiting": 40, "out": 0}, False),
    (100, {"stored": 60, "waiting": 40, "out": 0, "silence": 16.0}, True),
    (100, {"stored": 60, "waiting": 0, "out": 0, "is_stale": True}, False),
    (None, {"silence": 1.9}, False),
    (None, {"silence": 2.0}, True),
    (None, {"is_connected": False, "silence": 99.0}, False),
    (None, {"is_connected": False, "is_unknown": True}, True),
    (None, {"is_connected": True, "is_unknown": True, "silence": 0.0}, False),
])
def test_the_end_of_a_drain(target, change, over):
    """Others may take part, a crash may have left messages out, and nobody may be there to ask."""
    drain = Drain(target, idle=2.0, return_time=16.0)
    assert drain.is_over(QUIET._replace(**change)) is over


def test_without_any_nsqd_a_drain_is_hopeless_after_a_while():
    """Better an error than an end with nothing."""
    drain = Drain(None, idle=2.0, return_time=16.0)
    alone = QUIET._replace(is_connected=False, dials_failed=1)
    assert not drain.is_hopeless(alone, 4.9)
    assert drain.is_hopeless(alone, 5.0)
    assert not drain.is_hopeless(QUIET, 99.0)
