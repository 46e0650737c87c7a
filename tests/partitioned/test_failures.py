"""Ten crashes and hangs of leaders and replicas under keyed publishes: nothing is lost.

At length, with the cluster's own times: ``python -m benchmarks.partition_failures``.
"""

from __future__ import annotations

import pytest

from benchmarks.partition_failures import run


@pytest.mark.long
def test_ten_failures_lose_nothing_and_keep_the_order_of_each_key():
    """Crashes and hangs in turn, 100 times as fast as on a real cluster."""
    result = run(scale=0.01, rate=200, failures=10, timeout=120.0)
    assert [row.name for row in result.rows].count("hang of a leader") >= 2
    assert len(result.rows) == 10
    assert result.errors == []
    assert result.lost == 0 and result.out_of_order == 0
    assert result.published == result.stored
