"""Tests of the search for rows that fail alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.errors import NSQError
from nsqclient.spark.pipelines.streaming import find_bad_rows


@given(st.integers(0, 300).flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.integers(0, max(0, count - 1))))))
def test_exactly_the_bad_rows_are_found(case):
    count, bad = case
    bad = {row for row in bad if row < count}
    found = find_bad_rows(
        count, lambda low, high: "bad" if bad & set(range(low, high)) else None, count)
    assert list(found) == sorted(bad)


def test_one_bad_row_of_many_takes_few_tries():
    """Two for each halving."""
    tries = []

    def fails(low, high):
        tries.append((low, high))
        return f"row {high - 1}" if low <= 70_000 < high else None

    assert find_bad_rows(100_000, fails, 20) == {70_000: "row 70000"}
    assert len(tries) < 40


def test_too_many_bad_rows_are_the_transforms_fault():
    with pytest.raises(NSQError, match="more than 3 rows.*: broken"):
        find_bad_rows(1000, lambda low, high: "broken", 3)


def test_rows_that_only_fail_together_are_not_blamed():
    assert find_bad_rows(8, lambda low, high: "both" if high - low > 1 else None, 3) == {}
