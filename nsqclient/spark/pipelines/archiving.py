"""``archive``: a topic into files by date and hour (UTC); ``replay``: a log once more into files or
a topic.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import nsqclient.spark
from nsqclient.errors import ConfigError
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.deadline import Duration
from nsqclient.spark.options import BATCH, read_options
from nsqclient.spark.pipelines.compacting import HadoopFolder
from nsqclient.spark.pipelines.dead_letters import DeadLetters, FolderDeadLetters, batch_name
from nsqclient.spark.pipelines.sources import option_text, read_topic, source_options, trigger
from nsqclient.spark.pipelines.streaming import Sink, check_topics
from nsqclient.spark.pipelines.transforms import BodyFunction, BodyMapper, check_pandas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FORMATS = ("parquet", "delta", "orc", "json")
DATE, HOUR = "date", "hour"
#: Columns that an archive may be partitioned by: two of ours, and two of the source.
PARTITIONS = (DATE, HOUR, "nsqd", "channel")

_HOUR_NS = 3_600_000_000_000
#: Parquet's writer measures the size of its rows only after each 100 of them: if these have 1 MiB
#: each, they fill the heap.
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
    """Start to write a topic into files, and return the running query.

    Exactly once from the log into the files (Spark's file sink and Delta skip a batch that they
    have); at least once from nsqd into the log, less every duplicate that the source causes.
    Read the files with Spark, which ignores files that a crash has left incomplete.

    Args:
        spark: a session.
        topic, channel: what to read.
        path: folder of the files, or of the Delta table.
        checkpoint: folder in which the query keeps its place; one for one query.
        partition_by: of ``PARTITIONS``; ``date`` is ``2026-01-31`` and ``hour`` is ``00`` to
            ``23``, in UTC, of the time when nsqd took the message. Empty: one folder.
        format: of ``FORMATS``; ``delta`` needs the package delta-spark.
        every: seconds between two batches; longer means fewer and larger files. A batch that is
            full (``maxMessagesPerTrigger``, ``maxBytesPerTrigger``) begins at once.
        available_now: read all waiting messages, and end.
        files_per_batch: files at most for each partition and batch; 0: one for each task.
        query_name: shown by Spark's pages and in progress lines; default ``archive-TOPIC``.
        map_body: a function of one body, as for ``stream``; its results are archived, with the
            other columns of the message. A row that it fails on ends the query, unless it has a
            place:
        dead_letter_topic: such rows are published there, with their bodies as they came, at least
            once.
        dead_letter_path: or they are written there, as JSON lines with all columns and the error: a
            folder for its owner alone, which all executors see under that absolute path.
        sink_options: for ``dead_letter_topic``; as for ``stream``.
        options: of the data source (``nsqd``, ``lookupd``, ``storage``, ...); ``storage`` is
            ``<checkpoint>/nsq-log`` by default. Without ``nsqd`` and ``lookupd`` owners receive,
            and this query reads the segments that they have stored.

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
    """Check the target of an archive, and that its files can be written here."""
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
    """Build the destination of rows for which ``map_body`` fails; None if neither is given."""
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
    return FolderDeadLetters.prepare(dead_letter_path) if dead_letter_path else None


def with_date_and_hour(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Add the columns ``date`` and ``hour`` if ``partition_by`` names them.

    They come from ``timestamp_ns``, so the session's time zone does not matter.
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
    """Let ``progress.observedMetrics["nsq"]`` show rows, bytes and the highest attempts."""
    from pyspark.sql import functions as F

    return frame.observe(
        "nsq", F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.length("body")), F.lit(0)).alias("bytes"),
        F.coalesce(F.max("attempts"), F.lit(0)).alias("max_attempts"),
    )


class Replayed(NamedTuple):
    """The result of a replay."""

    start: dict[str, int]  #: the offset after which it began: the number of a segment, by nsqd
    end: dict[str, int]  #: the offset with which it ended
    messages: int  #: in its segments; with failOnDataLoss=false some may be lost, which is logged


def replay(
    spark: SparkSession,
    *,
    storage: str,
    path: str = "",
    sink_topic: str = "",
    partition_by: Sequence[str] = (DATE, HOUR),
    format: str = "parquet",
    sink_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Replayed:
    """Write segments of a log into new files, or publish them.

    After a power failure a sink may lack what Spark had committed, see the page on Spark. The
    query may run meanwhile: nothing in its log is changed. A segment whose retention is over
    may vanish while it is read, which is an error.

    Blocks: until all is written.

    Args:
        spark: a session with a JVM beside it (not Spark Connect).
        storage: the storage of the query.
        path: a folder that is not there yet, for files with the columns of an archive. Give this
            or ``sink_topic``.
        sink_topic: where to publish the bodies, at least once and in any order.
        partition_by, format: as for ``archive``.
        sink_options: for a topic: where nsqd is, and whatever else the sink takes.
        options: ``topic`` and ``channel``; ``startingOffsets`` or ``startingTimestamp``,
            ``endingOffsets`` or ``endingTimestamp``, which say what (all, by default);
            ``failOnDataLoss``.

    Returns: the range, and the number of messages.

    Raises:
        ConfigError: an argument or option is wrong, or the path is there already.
        StorageError: the storage cannot be used.
        DataLossError: segments of the range are not kept any more, or damaged.
    """
    from nsqclient.spark.reading.replay import select_stored

    texts = replay_options(storage, options)
    sink = check_sink(path, sink_topic, partition_by, format, sink_options or {})
    if sink is None and HadoopFolder(spark, path).exists(""):
        raise ConfigError(
            f"{path} is there already: a replay writes into a folder of its own. What is added to"
            " the folder of a query is in no batch of it, and Spark does not read it")
    chosen = select_stored(read_options(texts, BATCH))
    # Segments that are added or deleted until Spark asks again do not change the range.
    for name in ("startingtimestamp", "endingtimestamp"):
        texts.pop(name, None)
    texts["startingoffsets"] = json.dumps({"v": 2, "shards": chosen.start})
    texts["endingoffsets"] = json.dumps({"v": 2, "shards": chosen.end})
    nsqclient.spark.register(spark)
    rows = spark.read.format("nsq").options(**texts).load()
    if sink is not None:
        sink.publish(rows.select("body"))
    else:
        with_date_and_hour(rows, partition_by).write.format(format).options(
            **LARGE_ROWS).partitionBy(*partition_by).save(path)
    return Replayed(chosen.start, chosen.end, chosen.messages)


def replay_options(storage: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Complete and check the options of the source."""
    # Names ignore case; in lower case each can be replaced.
    texts = {name.strip().lower(): option_text(value) for name, value in options.items()}
    texts |= {"mode": "replay", "storage": storage}
    read_options(texts, BATCH)
    return texts


def check_sink(
    path: str, sink_topic: str, partition_by: Sequence[str], format: str,
    sink_options: Mapping[str, Any],
) -> Sink | None:
    """Check the target of a replay; return the sink of a topic, None for files."""
    if bool(path) == bool(sink_topic):
        raise ConfigError("give a path or a sink_topic: where to write what is replayed")
    if path:
        if sink_options:
            raise ConfigError("options of a sink are for a sink_topic")
        check_target(path, format, partition_by, 0)
        return None
    check_topic(sink_topic)
    return Sink({}, sink_options, sink_topic, "")
