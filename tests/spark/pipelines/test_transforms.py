"""Tests of functions by import path, and of mapping bodies."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from nsqclient import ConfigError
from nsqclient.spark.pipelines.transforms import RowMapper, check_pandas, load_function, sql
from tests.support.packages import needs


def mapped(function, bodies, dead="dead", max_size=100):
    """Map bodies; return (topic, body) pairs and how many failed."""
    counts = []
    mapper = RowMapper(function, "out", dead, max_size, counts.append)
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    rows = [row for part in mapper(iter([batch])) for row in part.to_pylist()]
    return [(row["topic"], row["body"]) for row in rows], sum(counts)


@pytest.mark.parametrize("result, published", [
    (b"x", [b"x"]), ("é", ["é".encode()]), (None, []), ([b"x", "y"], [b"x", b"y"]), ([], []),
])
def test_a_function_returns_one_body_several_or_none(result, published):
    """Text is UTF-8."""
    assert mapped(lambda body: result, [b"in"]) == ([("out", body) for body in published], 0)


def test_a_row_that_fails_goes_to_the_dead_letter_topic_as_it_came():
    """The others are not touched by it, and it is counted."""
    rows, failed = mapped(lambda body: json.loads(body)["a"], [b'{"a": "x"}', b"{", b'{"a": "y"}'])
    assert rows == [("out", b"x"), ("dead", b"{"), ("out", b"y")]
    assert failed == 1


@pytest.mark.parametrize("result", [b"", "", [b"ok", b""], b"x" * 101, 7, [7]])
def test_a_result_that_nsqd_would_refuse_is_a_failure(result):
    """Empty, too large or no body: nothing of it is published."""
    assert mapped(lambda body: result, [b"in"]) == ([("dead", b"in")], 1)


def test_without_a_dead_letter_topic_the_error_is_raised():
    """It ends the query."""
    with pytest.raises(ValueError, match="not this"):
        mapped(_fail, [b"in"], dead="")


def _fail(body):
    raise ValueError("not this")


def test_a_function_is_found_by_its_path():
    """package.module:function."""
    assert load_function("json:loads") is json.loads


@pytest.mark.parametrize("path, words", [
    ("json", "package.module:function"),
    ("json:", "package.module:function"),
    ("no_such_module_here:f", "cannot import no_such_module_here"),
    ("json:nothing", "json has no function 'nothing'"),
    ("json:__name__", "no function"),
])
def test_a_path_that_leads_nowhere_is_an_error(path, words):
    """It says what is missing."""
    with pytest.raises(ConfigError, match=words):
        load_function(path)


def test_an_empty_sql_text_is_an_error():
    """Before Spark sees it."""
    with pytest.raises(ConfigError, match="the SQL text is empty"):
        sql("  ")


@needs("pandas")
def test_mapping_bodies_without_pandas_is_refused(monkeypatch):
    """PySpark would say so later, and in other words."""
    check_pandas()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="map_body needs pandas.*pip install"):
        check_pandas()
