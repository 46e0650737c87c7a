"""``df.write`` and ``df.writeStream``: each task publishes its rows with its own ``Producer``.

At least once: NSQ cannot undo a publish, so a task or batch that runs again publishes its rows
again.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage,
)

from nsqclient.display import counted
from nsqclient.errors import ConfigError, InvalidMessageError, PartitionError
from nsqclient.partitioned.producer import Producer
from nsqclient.spark.dead_letter_folder import FolderDeadLetters, Keep, batch_name
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.options import WriteOptions
from nsqclient.spark.session import brief_errors

logger: logging.Logger = logging.getLogger("nsqclient.spark")

TOPIC, DEFER = "topic", "defer_ms"
#: Replaces the hint of the producer's error, which names arguments that Spark's sink does not have.
_NO_KEYS = (": Spark's sink has no column for keys; publish to a topic that is not ordered, or with"
            " a Producer in foreachPartition")

#: Names of types in Spark's ``simpleString``.
_BODY_TYPES = ("binary", "string")
_DEFER_TYPES = ("tinyint", "smallint", "int", "bigint")


class Columns(NamedTuple):
    """The columns of the rows, besides the body."""

    body: str
    has_topic: bool
    has_defer: bool


def check_columns(columns: Sequence[tuple[str, str]], options: WriteOptions) -> Columns:
    types = dict(columns)
    body = options.body_column
    if body not in types:
        near = difflib.get_close_matches(body, types, n=1)
        hint = f"; name it with bodyColumn, {near[0]!r} perhaps" if near else ""
        raise ConfigError(
            f"there is no column {body!r} to publish, only {_listed(types)}{hint}:"
            " select(to_json(struct('*')).alias('body')) makes one of all")
    if types[body] not in _BODY_TYPES:
        raise ConfigError(
            f"column {body!r} is {types[body]}: a message is binary or string; cast it, or"
            " use to_json")
    if TOPIC in types and types[TOPIC] != "string" and body != TOPIC:
        raise ConfigError(f"column topic is {types[TOPIC]}: it must be string")
    if DEFER in types and types[DEFER] not in _DEFER_TYPES:
        raise ConfigError(f"column defer_ms is {types[DEFER]}: it must be a whole number")
    others = [name for name in types if name not in (body, TOPIC, DEFER)]
    if others and not options.dead_letter_path:
        raise ConfigError(
            f"a message has no place for {_listed(others)}: select {body}, and topic or defer_ms"
            " where rows have their own")
    has_topic = TOPIC in types and body != TOPIC
    if has_topic and options.topic:
        # The wrong one of the two may publish a topic into itself without end.
        raise ConfigError(
            f"both the option topic ({options.topic}) and a column topic are given: drop one")
    if not has_topic and not options.topic:
        raise ConfigError("give the option topic, or a column topic")
    return Columns(body, has_topic, DEFER in types)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


class RowPublisher:
    """Publishes the rows of one task, in order for each topic. Threads: one."""

    def __init__(
        self, producer: Producer, options: WriteOptions, columns: Columns,
        keep: Keep | None = None,
    ) -> None:
        self._producer = producer
        self._options = options
        self._columns = columns
        self._keep = keep  # stores the rows without a body
        self._waiting: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._deferred: list[Future[Any]] = []
        self._rows = 0
        self._published = 0
        self.skipped: int = 0  #: rows without a body

    def add(self, batch: Any) -> None:
        """Publish an Arrow record batch. The rows of an incomplete MPUB wait for the next call.

        Raises:
            InvalidMessageError, InvalidTopicError: a row cannot be published.
            PublishError: nsqd did not store messages.
        """
        import pyarrow as pa

        names = batch.schema.names
        column = batch.column(names.index(self._columns.body))
        if pa.types.is_string(column.type):
            column = column.cast(pa.binary())
        elif pa.types.is_large_string(column.type):
            column = column.cast(pa.large_binary())
        bodies = column.to_pylist()
        if not all(bodies):
            self._set_aside(batch, bodies)
            full = [row for row, body in enumerate(bodies) if body]
            self.skipped += len(bodies) - len(full)
            self._rows += len(bodies) - len(full)
            batch = batch.take(pa.array(full, pa.int64()))
            bodies = [bodies[row] for row in full]
        topics = (
            batch.column(names.index(TOPIC)).to_pylist() if self._columns.has_topic else None)
        delays = (
            batch.column(names.index(DEFER)).to_pylist() if self._columns.has_defer else None)
        if topics is not None and None in topics:
            raise InvalidMessageError(
                f"row {self._rows + topics.index(None)} of this task: its topic is null")
        default = self._options.defer_ms
        if delays is None and default is None and topics is None:
            self._extend(self._options.topic, bodies)
        else:
            for number, body in enumerate(bodies):
                topic = self._options.topic if topics is None else topics[number]
                delay = default
                if delays is not None and delays[number] is not None:
                    delay = delays[number] / 1000
                if delay:
                    self._defer(topic, body, delay)
                else:
                    self._extend(topic, [body])
        self._rows += len(bodies)

    def finish(self) -> int:
        """Publish the last rows and wait for nsqd; return the number of messages published."""
        for topic in list(self._waiting):
            self._send(topic)
        for future in self._deferred:
            future.result()
        return self._published + len(self._deferred)

    def _set_aside(self, batch: Any, bodies: list[bytes | None]) -> None:
        """Refuse, skip or keep the rows without a body."""
        import pyarrow as pa

        if self._options.empty_bodies == "skip":
            return
        empty = [row for row, body in enumerate(bodies) if not body]
        name = self._columns.body
        errors = [f"{name} is {'null' if bodies[row] is None else 'empty'}" for row in empty]
        if self._keep is None:
            raise InvalidMessageError(
                f"row {self._rows + empty[0]} of this task: {errors[0]}, and NSQ has no empty"
                " messages: filter such rows out, set emptyBodies=skip, or set"
                " emptyBodies=dead_letter with deadLetterPath, a folder for such rows")
        self._keep(batch.take(pa.array(empty, pa.int64())), errors)

    def _extend(self, topic: str, bodies: list[bytes]) -> None:
        most, limit = self._options.batch_size, self._options.batch_bytes
        waiting = self._waiting.setdefault(topic, [])
        size = self._sizes.get(topic, 4)
        for body in bodies:
            cost = len(body) + 4  # with its length
            if waiting and (len(waiting) >= most or size + cost > limit):
                self._send(topic)
                size = 4
            waiting.append(body)
            size += cost
        self._sizes[topic] = size

    def _send(self, topic: str) -> None:
        waiting = self._waiting[topic]
        if waiting:
            try:
                self._producer.publish_many(topic, waiting)
            except PartitionError as exc:
                raise PartitionError(re.sub(": give key=.*", _NO_KEYS, str(exc))) from exc
            self._published += len(waiting)
            waiting.clear()

    def _defer(self, topic: str, body: bytes, delay: float) -> None:
        self._deferred.append(self._producer.publish_async(topic, body, delay))


@dataclass
class Published(WriterCommitMessage):
    """The counts of a successful task: published messages, skipped rows without a body."""

    messages: int
    skipped: int = 0


class _Publishing:
    """The base of both writers: publishes the rows of a task at least once."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self._options = options
        self._columns = columns_of(schema, options)
        self._name = uuid.uuid4().hex  # of this write, the same in all its tasks
        self._letters = (
            FolderDeadLetters.prepare(
                options.dead_letter_path, functools.partial(_letter, options.topic))
            if options.dead_letter_path else None)

    @brief_errors()
    def write(self, iterator: Iterator[Any]) -> Published:
        if self._letters is None:
            return publish(iterator, self._options, self._columns)
        with self._letters.open(batch_name(self._name)) as keep:
            return publish(iterator, self._options, self._columns, keep)

    def commit(
        self, messages: list[WriterCommitMessage | None], batchId: int | None = None
    ) -> None:
        """Log the number of messages. Spark calls this after the success of every task."""
        logger.info("%s: published %s", _name(batchId), counted(_total(messages), "message"))
        skipped = sum(one.skipped for one in messages if isinstance(one, Published))
        if skipped:
            logger.warning(
                "%s: skipped %s whose body is null or empty (emptyBodies=%s)%s", _name(batchId),
                counted(skipped, "row"), self._options.empty_bodies,
                "" if self._letters is None else f": {self._letters.describe()}")

    def abort(
        self, messages: list[WriterCommitMessage | None], batchId: int | None = None
    ) -> None:
        """Log that a task has failed. The published messages of other tasks stay."""
        logger.warning(
            "%s failed after it had published %s of %s", _name(batchId),
            counted(_total(messages), "message"),
            counted(sum(message is not None for message in messages), "task"))


class NsqWriter(_Publishing, DataSourceArrowWriter):
    """Publishes a DataFrame."""


class NsqStreamWriter(_Publishing, DataSourceStreamArrowWriter):
    """Publishes the batches of a stream."""


def columns_of(schema: Any, options: WriteOptions) -> Columns:
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_columns(fields, options)


def check_appends(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError(
            "NSQ can only append: mode('append') to write, outputMode('append') to stream; use"
            " foreachBatch to publish changing results")


def publish(
    batches: Iterator[Any], options: WriteOptions, columns: Columns, keep: Keep | None = None,
) -> Published:
    """Publish record batches and wait for nsqd's responses.

    If there are no rows, the first task of a job still connects, to find options that nsqd rejects.
    """
    with Producer(
        options.nsqd, lookupd_http_addresses=options.lookupd, config=options.config,
    ) as producer:
        publisher = RowPublisher(producer, options, columns, keep)
        for batch in batches:
            publisher.add(batch)
        published = Published(publisher.finish(), publisher.skipped)
    if not published.messages and _task_number() == 0:
        check_handshakes(options.nsqd, options.lookupd, "", options.config)
    return published


def _letter(topic: str, row: Mapping[str, Any], error: str) -> dict[str, Any]:
    """Make the dead letter of a row. The partition makes equal rows of two tasks different."""
    return {"topic": topic or row[TOPIC], "partition": _task_number(), "error": error, "row": row}


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _total(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.messages for message in messages if isinstance(message, Published))


def _name(batch: int | None) -> str:
    return "write" if batch is None else f"batch {batch}"


@dataclass(frozen=True)
class TopicDeadLetters:
    """Publishes failed rows to the topic of ``options``. A task that runs again repeats them."""

    options: WriteOptions

    @contextlib.contextmanager
    def open(self, batch_name: str) -> Iterator[Keep]:
        """Keep rows of one task. They are published before the block ends without an error."""
        options = self.options
        with Producer(  # opens no socket before its first publish
            options.nsqd, lookupd_http_addresses=options.lookupd, config=options.config,
        ) as producer:
            publisher = RowPublisher(producer, options, Columns("body", False, False))
            yield lambda batch, errors: publisher.add(batch.select(["body"]))
            publisher.finish()

    def describe(self) -> str:
        return f"published to {self.options.topic}"
