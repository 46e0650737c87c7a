"""Functions by import path, their results, and the search for rows that fail alone."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient import ConfigError
from nsqclient.errors import NSQError
from nsqclient.spark.pipelines.streaming import find_bad_rows
from nsqclient.spark.pipelines.transforms import (
    BodyMapper, bodies_of, check_pandas, load_function, sql,
)
from tests.support.packages import needs


@pytest.mark.parametrize("result, published", [
    (b"x", [b"x"]), ("é", ["é".encode()]), (None, []), ([b"x", "y"], [b"x", b"y"]), ([], []),
])
def test_a_function_returns_one_body_several_or_none(result, published):
    assert bodies_of(result) == published


@pytest.mark.parametrize("result", [b"", "", [b"ok", b""], b"x" * 101, 7, [7]])
def test_a_result_that_nsqd_would_refuse_is_a_failure(result):
    """An empty, too large or missing body. An archive accepts empty and large bodies."""
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"in"], pa.binary())})
    with pytest.raises((TypeError, ValueError), match="the function returned|not iterable"):
        list(BodyMapper(lambda body: result, None, str, max_size=100)(iter([batch])))


def test_a_function_is_found_by_its_path():
    assert load_function("json:loads") is json.loads


@pytest.mark.parametrize("path, words", [
    ("json:", "package.module:function"),
    ("no_such_module_here:f", "cannot import no_such_module_here"),
    ("json:nothing", "json has no function 'nothing'"),
    ("json:__name__", "no function"),
])
def test_a_path_that_leads_nowhere_is_an_error(path, words):
    with pytest.raises(ConfigError, match=words):
        load_function(path)


def test_an_empty_sql_text_is_an_error():
    with pytest.raises(ConfigError, match="the SQL text is empty"):
        sql("  ")


@needs("pandas")
def test_mapping_bodies_without_pandas_is_refused(monkeypatch):
    """PySpark's own error comes later, and is less clear."""
    check_pandas()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="map_body needs pandas.*pip install"):
        check_pandas()


@given(st.integers(0, 300).flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.integers(0, max(0, count - 1))))))
def test_exactly_the_bad_rows_are_found(case):
    count, bad = case
    bad = {row for row in bad if row < count}
    found = find_bad_rows(
        count, lambda low, high: "bad" if bad & set(range(low, high)) else None, count)
    assert list(found) == sorted(bad)


def test_one_bad_row_of_many_takes_few_tries():
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
