"""What Spark asks the data source for, and the version and the Python that it needs. No JVM."""

import sys
from types import SimpleNamespace

import pyspark
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructField, StructType, StringType

from nsqclient.errors import ConfigError, NSQError
from nsqclient.spark.options import ROW_DDL
from nsqclient.spark.session import check_python, check_version, choose_python
from nsqclient.spark.source import NsqDataSource

ROWS = StructType([
    StructField(column.split()[0], StringType()) for column in ROW_DDL.split(", ")])
GOOD = {"topic": "t", "channel": "c", "nsqd": "127.0.0.1:4150"}


@pytest.mark.parametrize("options", [
    {}, {"mode": "drain", "storage": "/data"}, {"maxLogBytes": "5", "STORAGE": "/data"},
])
def test_the_schema_is_known_at_load(options):
    """The schema does not depend on the options, for a stream or a batch."""
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
    """PySpark hides an error of ``streamReader`` behind its own UnboundLocalError."""
    monkeypatch.setattr(pyspark, "__version__", version)
    reader = NsqDataSource(CaseInsensitiveDict({**GOOD, **options})).streamReader(schema)
    for call in (reader.initialOffset, reader.latestOffset):
        with pytest.raises(NSQError, match=words):
            call()
    reader.stop()


@pytest.mark.parametrize("options, words", [
    ({"connections": "0", "storage": "/data"}, "from 1"),
    ({"maxLogBytes": "5"}, "option storage is missing"),
    ({"mode": "drain", "storage": "/data", "maxLogBytes": "5"}, "it is for readStream"),
    ({"provider": "nsq", "option.topic": "t"}, "write CREATE TEMPORARY VIEW name USING nsq"),
])
def test_a_wrong_option_is_refused_at_load(options, words):
    """Not later, at the first batch, which another process plans."""
    source = NsqDataSource(CaseInsensitiveDict({**GOOD, **options}))
    with pytest.raises(ConfigError, match=words):
        source.schema()


@pytest.mark.parametrize("options, overwrite, words", [
    ({}, False, "INSERT and CREATE TABLE"), (GOOD, True, "NSQ can only append"),
])
def test_a_write_of_a_table_or_over_one_is_refused(options, overwrite, words):
    """INSERT and CREATE TABLE AS SELECT have no options."""
    with pytest.raises(ConfigError, match=words):
        NsqDataSource(CaseInsensitiveDict(options)).writer(ROWS, overwrite)


def test_workers_of_one_machine_run_the_python_of_the_program(monkeypatch):
    """Whatever the path begins with. PYSPARK_PYTHON is kept."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    context = SimpleNamespace(pythonExec="python3")
    for _ in range(2):
        choose_python(context, is_local=True)
        assert context.pythonExec == sys.executable
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


def test_a_python_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file.*PYSPARK_PYTHON"):
        check_python(str(tmp_path / "python9"))


def test_a_python_without_nsqclient_is_refused_unless_spark_sends_it(tmp_path, monkeypatch):
    """The error names it and PYSPARK_PYTHON. A zip file of --py-files counts."""
    for name in ("nsqclient", "pyarrow"):
        (tmp_path / f"{name}.py").touch()
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ncd /\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(ConfigError, match=f"run {python}.*No module named.*PYSPARK_PYTHON to"):
        check_python(str(python))
    check_python(str(python), [str(tmp_path)])


@pytest.mark.parametrize("version, streams, is_enough", [
    ("4.0.1", False, False), ("4.1.0", False, True), ("4.1.2.dev0", False, True),
    ("4.1.2.dev0", True, False), ("4.2.0", True, True), ("4.10.0", True, True),
])
def test_pyspark_4_1_is_needed_and_4_2_for_streaming_reads(version, streams, is_enough):
    if is_enough:
        check_version(version, streams=streams)
    else:
        with pytest.raises(ConfigError, match=f"streaming reads 4.2; this is {version}: pip"):
            check_version(version, streams=streams)
