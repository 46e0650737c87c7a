"""What Spark asks the data source for, without Spark. No JVM."""

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
    {}, {"mode": "drain", "storage": "/data"}, {"maxLogBytes": "5", "STORAGE": "/data"},
])
def test_the_schema_is_known_at_load(options):
    """It does not depend on the options, which may be those of a stream or of a batch."""
    assert NsqDataSource(CaseInsensitiveDict({**GOOD, **options})).schema() == ROW_DDL


@pytest.mark.parametrize("version, options, schema, words", [
    ("4.1.1", {"storage": "/data"}, ROWS, "for streaming reads 4.2"),
    ("4.2.0", {}, ROWS, "option storage is missing"),
    ("4.2.0", {"storage": "/data", "topic": "no spaces"}, ROWS, "no spaces"),
    ("4.2.0", {"storage": "/data"}, StructType([]), r"leave out \.schema\(\)"),
])
def test_a_stream_that_cannot_be_read_fails_in_its_first_call(
    monkeypatch, version, options, schema, words
):
    """PySpark hides an error of ``streamReader`` itself behind an UnboundLocalError of its own."""
    monkeypatch.setattr(pyspark, "__version__", version)
    reader = NsqDataSource(CaseInsensitiveDict({**GOOD, **options})).streamReader(schema)
    for call in (reader.initialOffset, reader.latestOffset):
        with pytest.raises(NSQError, match=words):
            call()
    reader.stop()


@pytest.mark.parametrize("options, words", [
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


@pytest.mark.parametrize("options, overwrite, words", [
    ({}, False, "INSERT and CREATE TABLE"), (GOOD, True, "NSQ can only append"),
])
def test_a_write_of_a_table_or_over_one_is_refused(options, overwrite, words):
    """SQL's INSERT and CREATE TABLE AS SELECT come without options."""
    with pytest.raises(ConfigError, match=words):
        NsqDataSource(CaseInsensitiveDict(options)).writer(ROWS, overwrite)
