"""``NsqDataSource``: what Spark knows as the format ``nsq``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from nsqclient.errors import ConfigError
from nsqclient.spark.options import BATCH, STREAM, read_options, write_options
from nsqclient.spark.schema import ROW_DDL

if TYPE_CHECKING:
    from nsqclient.spark.batch_reader import NsqBatchReader
    from nsqclient.spark.stream_reader import NsqStreamReader
    from nsqclient.spark.writer import NsqStreamWriter, NsqWriter


class NsqDataSource(DataSource):
    """NSQ as a data source, to read and to write.

    Reading a stream: exactly once from the spool into Spark's checkpoint; at least once from nsqd
    into the spool, with every duplicate suppressed that the source itself can cause; end to end
    exactly once with an idempotent sink (file sink, Delta). Nothing is finished at nsqd before it
    is on disk. Writing is at least once.

    The options stand in :mod:`nsqclient.spark.options`.
    """

    #: Whether executors see the driver's files at the same paths.
    shares_disk = False

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        # Spark makes one instance for each load() and pickles it: all actions share the name.
        self._snapshot = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"

    @classmethod
    def name(cls) -> str:
        """What ``format()`` is given."""
        return "nsq"

    def schema(self) -> str:
        """What a row has."""
        return ROW_DDL

    def reader(self, schema: Any) -> NsqBatchReader:
        """Build the reader of ``spark.read``.

        Raises:
            ConfigError: an option is wrong.
        """
        from nsqclient.spark.batch_reader import NsqBatchReader

        options = read_options(self.options, BATCH)
        _check_schema(schema)
        return NsqBatchReader(options, self._transport(options.transport), self._snapshot)

    def streamReader(self, schema: Any) -> NsqStreamReader:
        """Build the reader of ``spark.readStream``.

        Raises:
            ConfigError: an option is wrong.
        """
        from nsqclient.spark.stream_reader import NsqStreamReader

        options = read_options(self.options, STREAM)
        _check_schema(schema)
        return NsqStreamReader(options, self._transport(options.transport))

    def writer(self, schema: Any, overwrite: bool) -> NsqWriter:
        """Build the writer of ``df.write``.

        Raises:
            ConfigError: an option or a column is wrong, or the mode is not append.
        """
        from nsqclient.spark.writer import NsqWriter, check_appends

        check_appends(overwrite)
        return NsqWriter(write_options(self.options), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> NsqStreamWriter:
        """Build the writer of ``df.writeStream``.

        Raises:
            ConfigError: an option or a column is wrong, or the output mode is not append.
        """
        from nsqclient.spark.writer import NsqStreamWriter, check_appends

        check_appends(overwrite)
        # Spark hands its own option over with ours.
        options = {
            name: value for name, value in self.options.items()
            if name.lower() != "checkpointlocation"}
        return NsqStreamWriter(write_options(options), schema)

    def _transport(self, wanted: str) -> str:
        if wanted != "auto":
            return wanted
        return "file" if self.shares_disk else "inline"


class LocalNsqDataSource(NsqDataSource):
    """The same where driver and executors are on one machine."""

    shares_disk = True


def _check_schema(schema: Any) -> None:
    names = ", ".join(schema.fieldNames())
    wanted = ", ".join(column.split()[0] for column in ROW_DDL.split(", "))
    if names != wanted:
        raise ConfigError(f"nsq has its own schema ({wanted}): leave out .schema(), then select")
