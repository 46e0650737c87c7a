"""What Spark asks the data source for, without Spark. No JVM."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructField, StructType, StringType

from nsqclient.errors import ConfigError, NSQError
from nsqclient.spark.options import ROW_DDL
from nsqclient.spark.source import NsqDataSource


ROWS = StructType([
    StructField(column.split()[0], StringType()) for column in ROW_DDL.split(", ")])
GOOD = {"topic": "t", "channel": "c", "nsqd": "127.0.0.1:4150"}


@pytest.mark.parametrize("options", [
    {}, {"STORAGE": "/data/log"}, {"storage": ""}, {"mode": "drain", "storage": "/data"},
    {"maxLogBytes": "5", "storage": "/data"},
])
def test_the_schema_is_known_at_load(options):
    """It does not depend on the options, which may be those of a stream or of a batch."""
    assert NsqDataSource(CaseInsensitiveDict({**GOOD, **options})).schema() == ROW_DDL


@pytest.mark.parametrize("options, words", [
    ({}, "option storage is missing"),
    ({"storage": "/data", "chanel": "x"}, "did you mean channel"),
    ({"storage": "/data", "topic": "no spaces"}, "no spaces"),
])
def test_a_stream_with_wrong_options_fails_in_its_first_call(options, words):
    """PySpark hides an error of ``streamReader`` itself behind an UnboundLocalError of its own."""
    reader = NsqDataSource(CaseInsensitiveDict({**GOOD, **options})).streamReader(ROWS)
    for call in (reader.initialOffset, reader.latestOffset):
        with pytest.raises(NSQError, match=words):
            call()
    reader.stop()


def test_a_stream_on_an_older_pyspark_fails_in_its_first_call(monkeypatch):
    """It has not the classes that a stream needs; nothing imports them before."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    reader = NsqDataSource(CaseInsensitiveDict({**GOOD, "storage": "/data"})).streamReader(ROWS)
    with pytest.raises(ConfigError, match="^streaming reads need PySpark 4.2"):
        reader.initialOffset()


def test_a_stream_with_a_schema_of_its_own_fails_in_its_first_call():
    """The same: the error names what to leave out."""
    source = NsqDataSource(CaseInsensitiveDict({**GOOD, "storage": "/data"}))
    with pytest.raises(ConfigError, match=r"leave out \.schema\(\)"):
        source.streamReader(StructType([])).initialOffset()


@pytest.mark.parametrize("options, words", [
    ({"storage": "data/log"}, "give an absolute path"),
    ({"includeHeaders": "true"}, "a message of NSQ has no headers"),
    ({"connections": "0", "storage": "/data"}, "from 1"),
    ({"maxLogBytes": "5"}, "option storage is missing"),
    ({"mode": "drain"}, "option storage is missing"),
    ({"mode": "drain", "storage": "/data", "maxLogBytes": "5"}, "it is for readStream"),
    ({"mode": "drain", "storage": "/data", "nsqd": ""}, "give nsqd"),
    ({"provider": "nsq", "option.topic": "t"}, "write CREATE TEMPORARY VIEW name USING nsq"),
])
def test_a_wrong_option_is_refused_at_load(options, words):
    """Not at the first batch, which another process plans."""
    source = NsqDataSource(CaseInsensitiveDict({**GOOD, **options}))
    with pytest.raises(ConfigError, match=words):
        source.schema()


def test_a_write_without_options_names_tables():
    """SQL's INSERT and CREATE TABLE AS SELECT come without."""
    with pytest.raises(ConfigError, match="INSERT and CREATE TABLE"):
        NsqDataSource(CaseInsensitiveDict({})).writer(ROWS, False)
