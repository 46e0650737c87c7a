"""``archive``: writes a topic to files, partitioned by date and hour (UTC)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Duration
from nsqclient.spark.dead_letter_folder import FolderDeadLetters, batch_name, letter_of
from nsqclient.spark.pipelines.sources import read_topic, source_options, trigger
from nsqclient.spark.pipelines.streaming import Sink, check_topics
from nsqclient.spark.pipelines.transforms import BodyFunction, BodyMapper, check_pandas

if TYPE_CHECKING:
    from nsqclient.spark.pipelines.transforms import DeadLetters
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FORMATS = ("parquet", "delta", "orc", "json")
DATE, HOUR = "date", "hour"
#: Columns that an archive may be partitioned by.
PARTITIONS = (DATE, HOUR, "nsqd", "channel")

_HOUR_NS = 3_600_000_000_000
#: Parquet's writer checks the size of its rows only every 100 rows. Rows of 1 MiB would fill
#: the heap.
LARGE_ROWS = {"parquet.page.size.row.check.min": "4", "parquet.block.size.row.check.min": "4"}


def archive(
    spark: SparkSession,
    *,
    topic: str,
    channel: str,
    path: str,
    checkpoint: str,
    partition_by: Sequence[str] = (DATE, HOUR),
    format: str = "parquet",
    every: Duration = 30.0,
    available_now: bool = False,
    files_per_batch: int = 0,
    query_name: str | None = None,
    map_body: BodyFunction | None = None,
    dead_letter_topic: str = "",
    dead_letter_path: str = "",
    sink_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> StreamingQuery:
    """Start to write a topic to files; return the running query.

    Messages get from nsqd into the log at least once, without the duplicates that the source itself
    would cause, and from the log into the files exactly once, because Spark's file sink and Delta
    skip a batch that they have. Read the files with Spark, which ignores incomplete files of a
    crash.

    Args:
        spark: a session.
        topic, channel: the messages to read.
        path: folder of the files, or of the Delta table.
        checkpoint: folder in which the query stores its position; one folder per query.
        partition_by: columns of ``PARTITIONS``. ``date`` (``2026-01-31``) and ``hour`` (``00`` to
            ``23``) are in UTC, of the time when nsqd received the message. Empty: one folder.
        format: one of ``FORMATS``; ``delta`` needs the package delta-spark.
        every: seconds between two batches; more seconds mean fewer and larger files. A full batch
            (``maxMessagesPerTrigger``, ``maxBytesPerTrigger``) starts immediately.
        available_now: read all waiting messages, and end.
        files_per_batch: maximum number of files per partition and batch; 0: one per task.
        query_name: shown by Spark's pages and in progress lines; default ``archive-TOPIC``.
        map_body: a function of one body, as for ``stream``. Its results are archived with the other
            columns of the message. If it fails, the query ends, unless one of the next two
            arguments is given.
        dead_letter_topic: topic for the original bodies of failed rows, at least once.
        dead_letter_path: folder for failed rows, as JSON lines with all columns and the error. It
            has the same absolute path on all executors, and only its owner can access it.
        sink_options: for ``dead_letter_topic``; as for ``stream``.
        options: options of the data source (``nsqd``, ``lookupd``, ``storage``, ...). ``storage``
            is ``<checkpoint>/nsq-log`` by default. Without ``nsqd`` and ``lookupd``, the query
            reads the segments that owners store.

    Raises:
        ConfigError: an argument or option is wrong, or delta-spark is missing.
    """
    check_target(path, format, partition_by, files_per_batch)
    source = source_options(topic, channel, checkpoint, options, every)
    dead = choose_dead_letters(
        source, map_body is not None, dead_letter_topic, dead_letter_path, sink_options or {})
    rows = read_topic(spark, source)
    if map_body is not None:
        check_pandas()
        mapper = BodyMapper(map_body, dead, batch_name)
        # A lambda: mapInArrow counts a method's self among the arguments.
        rows = rows.mapInArrow(lambda batches: mapper(batches), rows.schema)
    frame = observed(with_date_and_hour(rows, partition_by))
    if files_per_batch:
        frame = frame.coalesce(files_per_batch)
    writer = (
        frame.writeStream.format(format)
        .queryName(query_name or f"archive-{topic}")
        .options(**LARGE_ROWS)
        .option("path", path)
        .option("checkpointLocation", checkpoint)
        .partitionBy(*partition_by)
        .trigger(**trigger(available_now))
    )
    query: StreamingQuery = writer.start()
    return query


def check_target(
    path: str, format: str, partition_by: Sequence[str], files_per_batch: int
) -> None:
    wrong = [name for name in partition_by if name not in PARTITIONS]
    if wrong:
        raise ConfigError(f"cannot partition by {wrong[0]!r}: use {', '.join(PARTITIONS)}")
    if not path:
        raise ConfigError("give a path: the folder of the archive")
    if files_per_batch < 0:
        raise ConfigError(f"files_per_batch of {files_per_batch} must not be negative")
    if format not in FORMATS:
        raise ConfigError(f"format {format!r}: use {', '.join(FORMATS)}")
    if format == "delta" and importlib.util.find_spec("delta") is None:
        raise ConfigError(
            "format delta needs the package delta-spark, of a release for this pyspark: pip install"
            " delta-spark, and give Spark its jar and its two settings (the page on pipelines)")


def choose_dead_letters(
    source: Mapping[str, str], is_mapped: bool, dead_letter_topic: str, dead_letter_path: str,
    sink_options: Mapping[str, Any],
) -> DeadLetters | None:
    """Make the destination of rows for which ``map_body`` fails; None if none is given."""
    if (dead_letter_topic or dead_letter_path) and not is_mapped:
        raise ConfigError(
            "only map_body fails on rows: an archive of messages as they are needs no"
            " dead_letter_topic and no dead_letter_path")
    if dead_letter_topic and dead_letter_path:
        raise ConfigError("give one of dead_letter_topic and dead_letter_path")
    if dead_letter_topic:
        check_topics(source["topic"], "", dead_letter_topic)
        return Sink(source, sink_options, "", dead_letter_topic).dead_letters
    if sink_options:
        raise ConfigError("sink_options are for dead_letter_topic, which is not given")
    return FolderDeadLetters.prepare(dead_letter_path, letter_of) if dead_letter_path else None


def with_date_and_hour(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Add the columns ``date`` and ``hour`` if ``partition_by`` names them.

    They are computed from ``timestamp_ns``, so the session's time zone does not matter.
    """
    from pyspark.sql import functions as F

    hours = F.expr(f"timestamp_ns div {_HOUR_NS}")
    if DATE in partition_by:
        day = F.expr(f"cast(timestamp_ns div {24 * _HOUR_NS} as int)")
        frame = frame.withColumn(DATE, F.date_from_unix_date(day))
    if HOUR in partition_by:
        frame = frame.withColumn(HOUR, F.lpad((hours % 24).cast("string"), 2, "0"))
    return frame


def observed(frame: DataFrame) -> DataFrame:
    """Add rows, bytes and the highest attempts to ``progress.observedMetrics["nsq"]``."""
    from pyspark.sql import functions as F

    return frame.observe(
        "nsq", F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.length("body")), F.lit(0)).alias("bytes"),
        F.coalesce(F.max("attempts"), F.lit(0)).alias("max_attempts"),
    )
