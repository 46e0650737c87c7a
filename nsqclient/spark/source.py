"""``NsqDataSource``: the format ``nsq``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from nsqclient.errors import ConfigError, NSQError
from nsqclient.spark.options import BATCH, ROW_DDL, STREAM, check_load, read_options, write_options
from nsqclient.spark.session import brief_errors, check_version

if TYPE_CHECKING:
    from nsqclient.spark.reading.batch_reader import NsqBatchReader
    from nsqclient.spark.publishing import NsqStreamWriter, NsqWriter


class NsqDataSource(DataSource):
    """NSQ as a data source, to read and to write; see ``docs/topics/spark.rst``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        # Spark makes and pickles one instance for each load(), so all its actions share this name.
        self._load = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"

    @classmethod
    def name(cls) -> str:
        return "nsq"

    @brief_errors()
    def schema(self) -> str:
        """The columns of a row. ``load()`` calls this, so it checks the options."""
        check_load(self.options)
        return ROW_DDL

    @brief_errors()
    def reader(self, schema: Any) -> NsqBatchReader:
        from nsqclient.spark.reading.batch_reader import NsqBatchReader

        options = read_options(self.options, BATCH)
        _check_schema(schema)
        return NsqBatchReader(options, self._load)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """If an option is wrong, return a reader that fails: Spark would hide an error here."""
        try:
            check_version(pyspark.__version__, streams=True)
            options = read_options(self.options, STREAM)
            _check_schema(schema)
        except NSQError as exc:
            return FailedStreamReader(exc.with_traceback(None))
        from nsqclient.spark.reading.reader import NsqStreamReader

        return NsqStreamReader(options)

    @brief_errors()
    def writer(self, schema: Any, overwrite: bool) -> NsqWriter:
        from nsqclient.spark.publishing import NsqWriter, check_appends

        check_appends(overwrite)
        return NsqWriter(write_options(self.options), schema)

    @brief_errors()
    def streamWriter(self, schema: Any, overwrite: bool) -> NsqStreamWriter:
        from nsqclient.spark.publishing import NsqStreamWriter, check_appends

        check_appends(overwrite)
        # Spark passes its own option too.
        options = {
            name: value for name, value in self.options.items()
            if name.lower() != "checkpointlocation"}
        return NsqStreamWriter(write_options(options), schema)


class FailedStreamReader(DataSourceStreamReader):
    """Raises an error in its first call.

    If ``streamReader()`` itself raised it, PySpark would still call ``stop()`` of the reader, and
    show its own UnboundLocalError.
    """

    def __init__(self, error: NSQError) -> None:
        self._error = error

    @brief_errors()
    def _fail(self, *arguments: Any) -> Any:
        raise self._error

    initialOffset: Any = _fail
    latestOffset: Any = _fail
    partitions: Any = _fail
    read: Any = _fail


def _check_schema(schema: Any) -> None:
    names = ", ".join(schema.fieldNames())
    wanted = ", ".join(column.split()[0] for column in ROW_DDL.split(", "))
    if names != wanted:
        raise ConfigError(f"nsq has its own schema ({wanted}): leave out .schema(), then select")
