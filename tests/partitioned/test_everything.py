"""Producers on partitioned NSQ while leaders crash and hang, and the example of order.

At length, with the times of a real cluster: ``python -m benchmarks.partition_failures``.
"""

import runpy
from pathlib import Path

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


def test_the_example_keeps_the_order(capsys):
    path = Path(__file__).resolve().parents[2] / "examples" / "ordered.py"
    runpy.run_path(str(path), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"order-{n} placed -> paid -> shipped" for n in range(1, 5)]
