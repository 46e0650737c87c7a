"""``df.write`` and ``df.writeStream``: each task publishes its rows with a ``Producer`` of its own.

At least once: when a task fails, or a batch is run again, rows that were published are published
again. Nothing in NSQ could take them back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage,
)

from nsqclient.display import counted
from nsqclient.errors import ConfigError
from nsqclient.partitioned.producer import Producer
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.options import WriteOptions
from nsqclient.spark.session import brief_errors
from nsqclient.spark.writing.writer_rows import Columns, RowPublisher, check_columns

logger: logging.Logger = logging.getLogger("nsqclient.spark")


@dataclass
class Published(WriterCommitMessage):
    """The numbers of a task that ended well: published messages, skipped rows without a body."""

    messages: int
    skipped: int = 0


class _Publishing:
    """What both writers do in a task. At least once."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self._options = options
        self._columns = columns_of(schema, options)

    @brief_errors()
    def write(self, iterator: Iterator[Any]) -> Published:
        """Publish the rows of one task, on the executor."""
        return publish(iterator, self._options, self._columns)

    def commit(
        self, messages: list[WriterCommitMessage | None], batchId: int | None = None
    ) -> None:
        """Log the number of messages: every task of the write, or of the batch, has ended well."""
        logger.info("%s: published %s", _name(batchId), counted(_total(messages), "message"))
        skipped = sum(one.skipped for one in messages if isinstance(one, Published))
        if skipped:
            logger.warning("%s: skipped %s whose body is null or empty (emptyBodies=skip)",
                           _name(batchId), counted(skipped, "row"))

    def abort(
        self, messages: list[WriterCommitMessage | None], batchId: int | None = None
    ) -> None:
        """Log that a task has failed. Messages of other tasks stay, and come again."""
        logger.warning(
            "%s failed after it had published %s of %s", _name(batchId),
            counted(_total(messages), "message"),
            counted(sum(message is not None for message in messages), "task"))


class NsqWriter(_Publishing, DataSourceArrowWriter):
    """Publishes a DataFrame."""


class NsqStreamWriter(_Publishing, DataSourceStreamArrowWriter):
    """Publishes the batches of a stream."""


def columns_of(schema: Any, options: WriteOptions) -> Columns:
    """Check a DataFrame's schema; see :func:`nsqclient.spark.writing.writer_rows.check_columns`."""
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_columns(fields, options)


def check_appends(overwrite: bool) -> None:
    """Refuse what NSQ cannot do."""
    if overwrite:
        raise ConfigError(
            "NSQ can only append: mode('append') to write, outputMode('append') to stream; use"
            " foreachBatch to publish changing results")


def publish(batches: Iterator[Any], options: WriteOptions, columns: Columns) -> Published:
    """Publish record batches and wait for nsqd's responses.

    Without rows the first task of a job connects all the same, so that a rejected option
    is an error.
    """
    with Producer(
        options.nsqd, lookupd_http_addresses=options.lookupd, config=options.config,
    ) as producer:
        publisher = RowPublisher(producer, options, columns)
        for batch in batches:
            publisher.add(batch)
        published = Published(publisher.finish(), publisher.skipped)
    if not published.messages and _task_number() == 0:
        check_handshakes(options.nsqd, options.lookupd, "", options.config)
    return published


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _total(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.messages for message in messages if isinstance(message, Published))


def _name(batch: int | None) -> str:
    return "write" if batch is None else f"batch {batch}"
