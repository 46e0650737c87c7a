"""``stream``: transforms the messages of a topic and publishes the results to another topic."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nsqclient.config import OPTIONS
from nsqclient.display import counted
from nsqclient.errors import ConfigError, NSQError
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.deadline import Duration
from nsqclient.secrets import SECRETS
from nsqclient.spark.options import ROW_DDL, WriteOptions, write_options
from nsqclient.spark.pipelines.sources import read_topic, source_options, trigger
from nsqclient.spark.dead_letter_folder import batch_name
from nsqclient.spark.pipelines.transforms import (
    BodyFunction, BodyMapper, Transform, check_pandas, sql,
)

if TYPE_CHECKING:
    from nsqclient.spark.publishing import TopicDeadLetters
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

logger: logging.Logger = logging.getLogger("nsqclient.spark")

_ROW = "_nsq_row"
#: The options with the addresses of servers.
_ADDRESSES = ("nsqd", "lookupd")
#: Default publish timeout of a task: a restart of nsqd must not end the query.
_PUBLISH_TIMEOUT = "60s"


def stream(
    spark: SparkSession,
    *,
    topic: str,
    channel: str,
    checkpoint: str,
    transform: str | Transform | None = None,
    map_body: BodyFunction | None = None,
    for_each_batch: Callable[[DataFrame, int], None] | None = None,
    sink_topic: str = "",
    dead_letter_topic: str = "",
    sink_options: Mapping[str, Any] | None = None,
    max_bad_rows: int = 20,
    every: Duration = 0.0,
    available_now: bool = False,
    query_name: str | None = None,
    **options: Any,
) -> StreamingQuery:
    """Start to read a topic, transform it and publish the results; return the running query.

    At least once: a batch that runs again is published again. Give one of these arguments:

    - ``transform``: an SQL text over the view ``messages``, or a function of a DataFrame, for one
      batch at a time. The result has the column ``body`` (binary or string), and optionally
      ``topic`` and ``defer_ms``.
    - ``map_body``: a function of one body; it returns a body, several bodies, or None.
    - ``for_each_batch``: a function of a batch and its id, which publishes by itself.

    The original body of a row that fails is published to ``dead_letter_topic``. ``map_body`` fails
    row by row. If ``transform`` fails, the batch is halved until the failing rows are found. This
    takes a Spark job for each half, so use functions such as ``try_cast`` for expected failures.
    Without a dead-letter topic the query ends with the error, and nothing is lost.

    Args:
        spark: a session.
        topic, channel: the messages to read.
        checkpoint: folder in which the query stores its position; one folder per query.
        sink_topic: topic to publish to; not needed if rows have a column ``topic``.
        sink_options: options of the sink. By default it has the source's nsqd or lookupd, with TLS,
            authentication and compression. If owners receive, the source has no addresses, so the
            sink needs them. ``publish_timeout`` is 60 s by default.
        max_bad_rows: if ``transform`` fails on more rows of a batch, the query ends.
        every: seconds between two batches; a full batch starts earlier. 0: each batch starts when
            the last one has ended.
        available_now, query_name, options: as for ``archive``.

    Raises:
        ConfigError: an argument or option is wrong, or the transform's result cannot be published.
    """
    if sum(way is not None for way in (transform, map_body, for_each_batch)) != 1:
        raise ConfigError("give one of transform, map_body and for_each_batch")
    check_topics(topic, sink_topic, dead_letter_topic)
    source = source_options(topic, channel, checkpoint, options, every)
    if for_each_batch is not None:
        if sink_topic or dead_letter_topic:
            raise ConfigError("for_each_batch publishes by itself: leave out the topics")
        process = for_each_batch
    else:
        sink = Sink(source, sink_options or {}, sink_topic, dead_letter_topic)
        if map_body is not None:
            process = mapping(sink, map_body)
        else:
            chosen = sql(transform) if isinstance(transform, str) else transform
            assert chosen is not None  # counted above
            transforming = Transforming(sink, chosen, max_bad_rows)
            transforming.check(spark)
            process = transforming.process
    query: StreamingQuery = (
        read_topic(spark, source).writeStream.foreachBatch(process)
        .queryName(query_name or f"stream-{topic}")
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger(available_now))
        .start()
    )
    return query


def check_topics(topic: str, sink_topic: str, dead_letter_topic: str) -> None:
    """Check the topics that a stream publishes to; a name may be empty."""
    for name in (sink_topic, dead_letter_topic):
        if name:
            check_topic(name)
    if topic in (sink_topic, dead_letter_topic):
        raise ConfigError(f"the topic {topic} would be published into itself without end")


class Sink:
    def __init__(
        self, source: Mapping[str, str], own: Mapping[str, Any], topic: str,
        dead_letter_topic: str,
    ) -> None:
        self.topic = topic
        self.dead_letter_topic = dead_letter_topic
        self.options: dict[str, str] = {_plain(key): str(value) for key, value in own.items()}
        if not any(key in _ADDRESSES for key in self.options):
            if source and not any(_plain(key) in _ADDRESSES for key in source):
                raise ConfigError("the sink needs an nsqd or lookupd of its own (sink_options):"
                                  " a source that owners receive for has none")
            # The servers are the same, so the options of their connections are too.
            shared = {
                _plain(key): value for key, value in source.items()
                if _plain(key) in _ADDRESSES or _plain(key) in OPTIONS}
            own_secrets = {name for name in SECRETS
                           if {name, f"{name}_file"} & set(self.options)}
            for name in own_secrets:
                shared.pop(name, None)
                shared.pop(f"{name}_file", None)
            self.options = shared | self.options
        self.options.setdefault("publish_timeout", _PUBLISH_TIMEOUT)
        self.checked: WriteOptions = write_options(self.options)
        if "topic" in self.options:
            raise ConfigError("the sink's topic is sink_topic, not an option")

    @property
    def dead_letters(self) -> TopicDeadLetters | None:
        """The destination of failed rows; None if no topic is given for them."""
        from nsqclient.spark.publishing import TopicDeadLetters

        if not self.dead_letter_topic:
            return None
        return TopicDeadLetters(dataclasses.replace(self.checked, topic=self.dead_letter_topic))

    def publish(self, frame: DataFrame) -> None:
        options = dict(self.options)
        if "topic" not in frame.columns:
            options["topic"] = self.topic
        frame.write.format("nsq").mode("append").options(**options).save()


def mapping(sink: Sink, function: BodyFunction) -> Callable[[DataFrame, int], None]:
    if not sink.topic:
        raise ConfigError("map_body needs a sink_topic")
    check_pandas()
    mapper = BodyMapper(
        function, sink.dead_letters, batch_name, sink.checked.config.nsqd_max_msg_size)

    def process(batch: DataFrame, batch_id: int) -> None:
        # A lambda: mapInArrow counts a method's self among the arguments.
        sink.publish(
            batch.select("body").mapInArrow(lambda batches: mapper(batches), "body binary"))

    return process


class Transforming:
    """Processes batches with an SQL text or a function of DataFrames."""

    def __init__(self, sink: Sink, transform: Transform, max_bad_rows: int) -> None:
        self._sink = sink
        self._transform = transform
        self._max_bad_rows = max_bad_rows

    def check(self, spark: SparkSession) -> None:
        """Transform an empty DataFrame, and check the columns of the result."""
        from pyspark.errors import PySparkException

        from nsqclient.spark.publishing import columns_of

        try:
            schema = self._transform(spark.createDataFrame([], ROW_DDL)).schema
        except PySparkException as exc:
            raise ConfigError(f"the transform is invalid: {first_line(exc)}") from exc
        names = schema.fieldNames()
        topic = {} if "topic" in names else {"topic": self._sink.topic}
        if "topic" in names and self._sink.topic:
            raise ConfigError(
                f"the rows have a column topic, and sink_topic is {self._sink.topic}: drop one")
        columns_of(schema, write_options({**self._sink.options, **topic}))

    def process(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._sink.publish(self._transform(batch))
        except Exception as exc:
            if not self._sink.dead_letter_topic:
                raise
            self._rescue(batch, batch_id, exc)

    def _rescue(self, batch: DataFrame, batch_id: int, error: Exception) -> None:
        """Publish good rows, and bad rows as dead letters. Raise ``error`` if no row is bad."""
        from pyspark.sql import functions as F

        numbered = batch.withColumn(_ROW, F.monotonically_increasing_id()).persist()
        try:
            rows = [row[0] for row in numbered.select(_ROW).sort(_ROW).collect()]

            def fails(low: int, high: int) -> str | None:
                return self._failure(
                    numbered.where(F.col(_ROW).between(rows[low], rows[high - 1])).drop(_ROW))

            bad = find_bad_rows(len(rows), fails, self._max_bad_rows)
            if not bad:
                raise error  # of nsqd, the network or Spark
            is_bad = F.col(_ROW).isin([rows[number] for number in bad])
            dead = self._sink.dead_letter_topic
            self._sink.publish(self._transform(numbered.where(~is_bad).drop(_ROW)))
            self._sink.publish(
                numbered.where(is_bad).select("body", F.lit(dead).alias("topic")))
            logger.warning(
                "batch %d: %s failed: published to %s; the first: %s", batch_id,
                counted(len(bad), "row"), dead, next(iter(bad.values())))
        finally:
            numbered.unpersist()

    def _failure(self, rows: DataFrame) -> str | None:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        size = F.length(F.col(self._sink.checked.body_column).cast("binary"))
        limit = self._sink.checked.config.nsqd_max_msg_size
        try:
            self._transform(rows).select(
                "*", F.assert_true(F.coalesce(size, F.lit(0)).between(1, limit),
                                   F.lit("the body is empty or too large")).alias("_nsq_checked"),
            ).write.format("noop").mode("overwrite").save()
        except PySparkException as exc:
            return first_line(exc)
        return None


def _plain(key: str) -> str:
    return key.strip().lower().replace("-", "_")


def first_line(exc: Exception) -> str:
    """The useful line of Spark's error: the last of a Python traceback, otherwise the first."""
    lines = [line for line in str(exc).splitlines() if line.strip()]
    if not lines:
        return type(exc).__name__
    if any(line.startswith("Traceback") for line in lines):
        return next(
            (line for line in reversed(lines) if not line.startswith((" ", "\t", "SQLSTATE"))),
            lines[0])
    return lines[0]


def find_bad_rows(
    count: int, fails: Callable[[int, int], str | None], limit: int
) -> dict[int, str]:
    """Find the rows that fail on their own.

    Args:
        count: number of rows, which are numbered from 0.
        fails: tries the rows ``low <= row < high`` and returns the error, or None.
        limit: maximum number of failed rows.

    Returns: {row: error}, in order. Empty if no row fails on its own.

    Raises:
        NSQError: more rows fail than ``limit``: the transform is at fault.
    """
    bad: dict[int, str] = {}
    parts = [(0, count)]
    while parts:
        low, high = parts.pop()
        error = fails(low, high) if high > low else None
        if error is None:
            continue
        if high - low > 1:
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]  # the first half is tried next
            continue
        bad[low] = error
        if len(bad) > limit:
            raise NSQError(
                f"the transform fails on more than {limit} rows of one batch, so it is not the rows"
                f" that are at fault: {error}")
    return bad
