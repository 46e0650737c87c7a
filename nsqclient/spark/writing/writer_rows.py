"""From rows to messages: which columns are written, and the publishing of one task's rows.

Knows Arrow record batches and a ``Producer``, never Spark: the schema comes as (name, type) texts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from nsqclient.errors import ConfigError, InvalidMessageError, PartitionError
from nsqclient.partitioned.producer import Producer
from nsqclient.spark.options import WriteOptions

TOPIC, DEFER = "topic", "defer_ms"
#: The error for an ordered topic: a publish would name its own arguments.
_NO_KEYS = (": Spark's sink has no column for keys; publish to a topic that is not ordered, or with"
            " a Producer in foreachPartition")

#: Types of columns, as Spark's ``simpleString`` calls them.
_BODY_TYPES = ("binary", "string")
_DEFER_TYPES = ("tinyint", "smallint", "int", "bigint")


class Columns(NamedTuple):
    """Which columns rows have, beside the body."""

    body: str
    has_topic: bool
    has_defer: bool


def check_columns(columns: Sequence[tuple[str, str]], options: WriteOptions) -> Columns:
    """Check a DataFrame's columns.

    Raises:
        ConfigError: a column is missing, of a wrong type, or of no use for a message.
    """
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
    if others:
        raise ConfigError(
            f"a message has no place for {_listed(others)}: select {body}, and topic or defer_ms"
            " where rows have their own")
    has_topic = TOPIC in types and body != TOPIC
    if has_topic and options.topic:
        # Either could be meant, and the wrong one may publish a topic into itself without end.
        raise ConfigError(
            f"both the option topic ({options.topic}) and a column topic are given: drop one")
    if not has_topic and not options.topic:
        raise ConfigError("give the option topic, or a column topic")
    return Columns(body, has_topic, DEFER in types)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


class RowPublisher:
    """Publishes the rows of one task, in order for each topic.

    Threads: one.
    """

    def __init__(self, producer: Producer, options: WriteOptions, columns: Columns) -> None:
        self._producer = producer
        self._options = options
        self._columns = columns
        self._waiting: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._deferred: list[Future[Any]] = []
        self._rows = 0
        self._published = 0
        self.skipped: int = 0  #: rows without a body

    def add(self, batch: Any) -> None:
        """Publish an Arrow record batch, except the rows of the last, incomplete MPUB.

        Raises:
            InvalidMessageError, InvalidTopicError: a row cannot be published; it is named.
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
            if self._options.empty_bodies != "skip":
                self._refuse_empty(bodies)
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
        """Publish the rest, and wait until nsqd has all; return how many messages that were."""
        for topic in list(self._waiting):
            self._send(topic)
        for future in self._deferred:
            future.result()
        return self._published + len(self._deferred)

    def _refuse_empty(self, bodies: list[bytes | None]) -> None:
        for number, body in enumerate(bodies, self._rows):
            if not body:
                what = "null" if body is None else "empty"
                raise InvalidMessageError(
                    f"row {number} of this task: {self._columns.body} is {what}, and NSQ has no"
                    " empty messages: filter such rows out, or set emptyBodies=skip")

    def _extend(self, topic: str, bodies: list[bytes]) -> None:
        """Add messages without delay, and send what fills an MPUB."""
        most, limit = self._options.batch_size, self._options.batch_bytes
        waiting = self._waiting.setdefault(topic, [])
        size = self._sizes.get(topic, 4)
        for body in bodies:
            cost = len(body) + 4  # its length stands before it
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
