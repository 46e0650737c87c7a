"""``replay``: writes the kept segments of a log to files or a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import nsqclient.spark
from nsqclient.errors import ConfigError
from nsqclient.protocol.names import check_topic
from nsqclient.spark.options import BATCH, read_options
from nsqclient.spark.pipelines.archiving import (
    DATE, HOUR, LARGE_ROWS, check_target, with_date_and_hour,
)
from nsqclient.spark.pipelines.compacting import HadoopFolder
from nsqclient.spark.pipelines.sources import option_text
from nsqclient.spark.pipelines.streaming import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Replayed(NamedTuple):
    """The result of a replay."""

    start: dict[str, int]  #: the offset after which it began: nsqd -> number of a segment
    end: dict[str, int]  #: the offset with which it ended
    messages: int  #: messages in the segments; failOnDataLoss=false may have skipped some


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
    """Write segments of a log to new files, or publish their messages.

    This restores what a sink has lost in a power failure although Spark had committed it. The query
    may run meanwhile, because its log is not changed. A segment whose retention ends during the
    replay is an error.

    Blocks: until everything is written.

    Args:
        spark: a session with a JVM beside it (not Spark Connect).
        storage: the storage of the query.
        path: a new folder, for files with the columns of an archive. Give this or ``sink_topic``.
        sink_topic: topic to publish the bodies to, at least once and in any order.
        partition_by, format: as for ``archive``.
        sink_options: with ``sink_topic``: options of the sink, such as ``nsqd``.
        options: ``topic`` and ``channel``; ``startingOffsets`` or ``startingTimestamp``, and
            ``endingOffsets`` or ``endingTimestamp`` (default: all segments); ``failOnDataLoss``.

    Returns: the range, and the number of messages.

    Raises:
        ConfigError: an argument or option is wrong, or the path exists.
        StorageError: the storage cannot be used.
        DataLossError: segments of the range were deleted, or are damaged.
    """
    from nsqclient.spark.reading.replay import select_stored

    texts = replay_options(storage, options)
    sink = check_sink(path, sink_topic, partition_by, format, sink_options or {})
    if sink is None and HadoopFolder(spark, path).exists(""):
        raise ConfigError(
            f"{path} is there already: a replay writes into a folder of its own. What is added to"
            " the folder of a query is in no batch of it, and Spark does not read it")
    chosen = select_stored(read_options(texts, BATCH))
    # Spark lists the log again. Fixed offsets keep the range, whatever is added or deleted.
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
    # In lower case, so that an option replaces the same name in another case.
    texts = {name.strip().lower(): option_text(value) for name, value in options.items()}
    texts |= {"mode": "replay", "storage": storage}
    read_options(texts, BATCH)
    return texts


def check_sink(
    path: str, sink_topic: str, partition_by: Sequence[str], format: str,
    sink_options: Mapping[str, Any],
) -> Sink | None:
    if bool(path) == bool(sink_topic):
        raise ConfigError("give a path or a sink_topic: where to write what is replayed")
    if path:
        if sink_options:
            raise ConfigError("options of a sink are for a sink_topic")
        check_target(path, format, partition_by, 0)
        return None
    check_topic(sink_topic)
    return Sink({}, sink_options, sink_topic, "")
