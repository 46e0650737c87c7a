"""``spark.read``: reads the messages that a channel has now.

Spark asks for the partitions of a loaded DataFrame once, at its first action. Messages are peeked
at or drained then, and every action reads the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsqclient.cluster.look_guard import LookingConsumer
from nsqclient.consumer.connections import NsqdSources
from nsqclient.display import counted
from nsqclient.errors import ConfigError, NSQError, PartitionError
from nsqclient.message import Message
from nsqclient.partitioned.bulk import partition_source, text_id
from nsqclient.partitioned.channel_depth import DepthQuery
from nsqclient.partitioned.discovery import lookup_routes
from nsqclient.protocol.frames import RawMessage
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.ingest import split_segment
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.reading.partitions import (
    PeekedPartition, StoredPartition, make_partitions, read_partition,
)
from nsqclient.spark.reading.replay import read_snapshot, select_stored, take_snapshot
from nsqclient.spark.segment import Rows, encode_segment
from nsqclient.spark.session import brief_errors

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Number of rows if ``maxMessages`` is not given.
DEFAULT_ROWS = 1000
#: Seconds without any connection after which the peek fails.
_CONNECT_TIMEOUT = 5.0
#: Seconds without a message after which a peek ends if the depth is unknown, unless idleMs is more.
_SILENCE = 2.0


def peek(options: ReadOptions) -> list[tuple[str, list[RawMessage]]]:
    """Receive some messages and requeue them (REQ 0); return them by nsqd.

    Their attempts increase by one, and their order may change.

    Blocks: until ``maxMessages`` or all waiting messages have arrived. If the depth is unknown,
    until no message has arrived for ``idleMs``, at least 2 s.

    Raises:
        ConfigError: the channel has other consumers.
        NegotiationError: an nsqd rejects a requested option, even if its channel is empty.
        PartitionError: the topic is ordered.
        NSQError: no nsqd can be reached, or waiting messages do not arrive for ``drain_patience``.
    """
    check_handshakes(options.nsqd, options.lookupd, options.topic, options.config)
    routes = _find_partitions(options)
    if routes.meta is not None and routes.meta.ordered:
        raise PartitionError(
            f"topic {options.topic} is ordered: a peek would see one message of each partition;"
            " read it with mode=drain, or with readStream"
        )
    wanted = options.max_messages or DEFAULT_ROWS
    query = DepthQuery(
        options.topic, options.channel, options.config,
        NsqdSources(options.nsqd, options.lookupd, nsqd_http=options.nsqd_http))
    depths = query.fetch()
    others = sum(depth.clients for depth in depths.known.values())
    if others and not options.allow_shared:
        raise ConfigError(
            f"channel {options.channel} of topic {options.topic} has"
            f" {counted(others, 'other connection')};"
            f" peeking would hold messages back from them: use a channel of your own, such as"
            f" peek#ephemeral, or set allowShared=true"
        )
    if depths.is_complete:
        # An empty channel needs no wait.
        wanted = min(wanted, depths.waiting - depths.paused)
    # Held messages use up RDY, which the nsqds share evenly, and one nsqd may have all messages.
    sources = max(len(depths.known) + len(depths.unknown), routes.usable_partitions)
    return _by_source(_look_at(options, wanted, wanted * sources, query)) if wanted else []


def _find_partitions(options: ReadOptions) -> TopicRoutes:
    """Ask an nsqlookupd for the partitions of the topic; empty if it has none."""
    for lookupd in options.lookupd:
        try:
            found = lookup_routes(lookupd, options.topic, "r", options.config).routes
        except NSQError as exc:
            logger.debug("no partitions: %s", exc)
            continue
        if found.partitions:
            return found
    return TopicRoutes()


def _look_at(
    options: ReadOptions, wanted: int, max_in_flight: int, query: DepthQuery
) -> list[Message]:
    consumer = LookingConsumer(
        options.topic, options.channel, guard=None, nsqd_tcp_addresses=options.nsqd,
        lookupd_http_addresses=options.lookupd, max_in_flight=max_in_flight,
        config=options.config.replace(max_attempts=0, max_backoff_duration=0))
    try:
        return list(filter(None, consumer.take(
            wanted, query, holds=True, timeout=_CONNECT_TIMEOUT,
            silence=max(options.idle_ms, _SILENCE))))
    finally:
        consumer.stop()


def _by_source(messages: Iterable[Message]) -> list[tuple[str, list[RawMessage]]]:
    parts: dict[str, list[RawMessage]] = {}
    for message in messages:
        source, message_id = message.nsqd_address, bytes(message.id)
        if message.partition is not None:
            source, message_id = partition_source(message.partition), text_id(message_id)
        parts.setdefault(source, []).append(
            (message.timestamp, message.attempts, message_id, message.body))
    return list(parts.items())


class NsqBatchReader(DataSourceReader):
    """Reads the messages that a channel has now.

    ``peek`` (the default) requeues every message. ``drain`` finishes them: they stay in a snapshot
    under ``storage`` until ``nsqclient.spark.release`` deletes it. ``replay`` reads the log of a
    query, which may be running, or a snapshot.

    Args:
        load: the unique name of the load().
    """

    def __init__(self, options: ReadOptions, load: str) -> None:
        self._options = options
        self._load = load

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read segments, so the options with their secrets are not sent to them.
        return {}

    @brief_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Peek, drain, or list a log; return the tasks."""
        options = self._options
        if options.mode == "peek":
            return [
                PeekedPartition(bytes(encode_segment(options.topic, options.channel, part)))
                for part in split_segment(
                    (source, Rows.of(messages)) for source, messages in peek(options))
            ] or [StoredPartition("", [])]
        if options.mode == "drain":
            url, segments = take_snapshot(options, self._load)
        elif options.snapshot:
            url, segments = read_snapshot(options)
        else:
            url, segments = options.storage, select_stored(options).segments
        return make_partitions(
            url, segments, options.min_partitions, options.fail_on_data_loss,
        ) or [StoredPartition(url, [])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow record batches."""
        return read_partition(partition)
