"""Functions by import path, and what they may return."""

import json

import pyarrow as pa
import pytest

from nsqclient import ConfigError
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
    """Empty, too large or no body; an archive takes them, if they are bodies."""
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
    """PySpark would say so later, and in other words."""
    check_pandas()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="map_body needs pandas.*pip install"):
        check_pandas()
