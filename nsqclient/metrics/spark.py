"""The state of shards as metrics, for ``spark ingest`` and ``spark status``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.metrics.prometheus import counter, gauge

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from nsqclient.spark.shards.owners import ShardOwner
    from nsqclient.spark.shards.listing import ShardStatus

_SHARD = ("topic", "channel", "nsqd")


def shard_metrics(shards: Sequence[ShardStatus], now: float) -> Iterator[Metric]:
    """Build the metrics of shards. ``now``: seconds since 1970."""
    values: list[tuple[str, str, Callable[[ShardStatus], float | None]]] = [
        ("segment", "number of the newest segment", lambda one: one.segment),
        ("committed_segment", "number of the last segment that Spark has committed",
         lambda one: one.committed),
        ("lag_messages", "stored messages that Spark has not committed",
         lambda one: one.lag_messages),
        ("lag_bytes", "bytes of segments that Spark has not committed", lambda one: one.lag_bytes),
        ("lag_seconds", "age in seconds of the oldest message that Spark has not committed",
         lambda one: one.lag_seconds(now)),
        ("last_write_timestamp_seconds", "Unix time at which the newest segment was stored",
         lambda one: one.written or None),
        ("stored_bytes", "bytes of all kept segments", lambda one: one.stored_bytes),
        ("nsqd_depth", "messages waiting at nsqd", lambda one: one.depth),
        ("nsqd_in_flight", "messages in flight from nsqd to its consumers",
         lambda one: one.in_flight),
    ]
    yield gauge("nsq_spark_shard_owner", "1, with the process that wrote last as a label",
                (*_SHARD, "owner"), [((*_labels(one), one.owner), 1) for one in shards])
    for name, text, value in values:
        samples = [(_labels(one), value(one)) for one in shards]
        yield gauge(f"nsq_spark_shard_{name}", text, _SHARD,
                    [(labels, found) for labels, found in samples if found is not None])


def owner_metrics(owners: Sequence[ShardOwner]) -> Iterator[Metric]:
    values: list[tuple[Any, str, str, Callable[[ShardOwner], float]]] = [
        (gauge, "in_flight", "messages received but not yet finished",
         lambda one: one.ingest.in_flight),
        (gauge, "connections", "connections to the nsqd", lambda one: one.ingest.connections),
        (gauge, "paused", "1 while RDY is 0 because Spark is behind or the storage fails",
         lambda one: one.is_paused),
        (counter, "redelivered", "messages received with more than one attempt",
         lambda one: one.log.redelivered),
        (counter, "copies_dropped",
         "duplicates of stored messages, finished without being stored again",
         lambda one: one.log.copies_dropped),
        (counter, "lost_creates", "segments that another owner created first",
         lambda one: one.log.lost_creates),
    ]
    for kind, name, text, value in values:
        yield kind(f"nsq_spark_owner_{name}", text, _SHARD,
                   [(_labels(one.status()), value(one)) for one in owners])


def _labels(shard: ShardStatus) -> tuple[str, str, str]:
    return shard.topic, shard.channel, shard.nsqd
