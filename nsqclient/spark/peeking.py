"""Peeks at a channel: reads messages with the ordinary Consumer, and requeues them."""

from __future__ import annotations

import logging
import threading
import time

from nsqclient.consumer.consumer import Consumer
from nsqclient.discovery import lookup_topic
from nsqclient.display import counted
from nsqclient.errors import ConfigError, NSQError, PartitionError
from nsqclient.http.channel_depth import ChannelDepths, DepthQuery
from nsqclient.message import Message
from nsqclient.partitioned.lookup_table import TopicRoutes
from nsqclient.protocol.frames import RawMessage
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.ingest.subscription import partition_source, text_id
from nsqclient.spark.options import ReadOptions

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Rows where ``maxMessages`` says nothing.
DEFAULT_ROWS = 1000
#: Seconds without any connection after which the peek fails.
_CONNECT_TIMEOUT = 5.0
#: Seconds without a message that are the end where the depth is unknown and ``idleMs`` is not set.
_SILENCE = 2.0
#: Seconds without a message after which the nsqds are asked again, and from then on.
_ASK_AGAIN = 1.0


def peek(options: ReadOptions) -> list[tuple[str, list[RawMessage]]]:
    """Receive some messages and requeue them (REQ 0); return them by nsqd.

    Their attempts grow by one, and their order may change.

    Blocks: until ``maxMessages`` came, or all that waited did. Where the depth is unknown, until
    ``idleMs`` passed in silence.

    Raises:
        ConfigError: the channel has other consumers.
        NegotiationError: an nsqd does not grant what was asked for, also where nothing waits.
        PartitionError: the topic is ordered.
        NSQError: no nsqd can be reached, or messages wait and do not come for ``drain_patience``.
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
        options.topic, options.channel, options.config, nsqds=options.nsqd,
        nsqd_http=options.nsqd_http, lookupds=options.lookupd)
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
        # There is no more than this: an empty channel needs no wait.
        wanted = min(wanted, depths.waiting - depths.paused)
    # Held messages use up RDY, which is shared evenly: one of many nsqds may have all of them.
    sources = max(len(depths.known) + len(depths.unknown), routes.usable_partitions)
    return _Peek(options, wanted, wanted * sources, query, depths).messages() if wanted else []


def _find_partitions(options: ReadOptions) -> TopicRoutes:
    """Return what an nsqlookupd says of the partitions of the topic; empty for one without any."""
    for lookupd in options.lookupd:
        try:
            found = lookup_topic(lookupd, options.topic, "r", options.config).routes
        except NSQError as exc:
            logger.debug("no partitions: %s", exc)
            continue
        if found.partitions:
            return found
    return TopicRoutes()


class _Peek:
    """Holds messages until there are enough."""

    def __init__(
        self, options: ReadOptions, wanted: int, max_in_flight: int, query: DepthQuery,
        depths: ChannelDepths,
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._max_in_flight = max_in_flight
        self._query = query
        self._depths = depths
        self._changed = threading.Condition()
        self._held: list[Message] = []  # guarded by _changed, as below
        self._heard = time.monotonic()
        self._is_connected = False
        self._errors: list[NSQError] = []

    def messages(self) -> list[tuple[str, list[RawMessage]]]:
        options = self._options
        config = options.config.replace(
            max_attempts=0, max_backoff_duration=0,
        )
        consumer = Consumer(
            options.topic, options.channel, self._hold, nsqd_tcp_addresses=options.nsqd,
            lookupd_http_addresses=options.lookupd, config=config,
            max_in_flight=self._max_in_flight,
            on_connect=self._on_connect, on_error=self._errors.append,
        )
        with consumer:
            while not self._wait():
                self._depths = self._query.fetch()
            consumer.pause()  # before the first is requeued, or it would come again
            with self._changed:
                held, self._held, self._wanted = self._held[:self._wanted], self._held, 0
                back = self._held
            for message in back:
                message.requeue(0, backoff=False)
        parts: dict[str, list[RawMessage]] = {}
        for message in held:
            source, message_id = message.nsqd_address, bytes(message.id)
            if message.partition is not None:
                source, message_id = partition_source(message.partition), text_id(message_id)
            parts.setdefault(source, []).append(
                (message.timestamp, message.attempts, message_id, message.body))
        return list(parts.items())

    def _hold(self, message: Message) -> None:
        with self._changed:
            if self._wanted:
                message.enable_async()
                self._held.append(message)
                self._heard = time.monotonic()
                self._changed.notify()
                return
        message.requeue(0, backoff=False)  # too late: the peek is over

    def _on_connect(self, address: str) -> None:
        with self._changed:
            self._is_connected = True
            self._heard = time.monotonic()

    def _wait(self) -> bool:
        """Wait for messages; return whether this was the end, else ask the nsqds again."""
        options = self._options
        silence_limit = options.idle_ms or _SILENCE
        with self._changed:
            since = time.monotonic()
            while len(self._held) < self._wanted:
                now = time.monotonic()
                silence = now - self._heard
                if not self._is_connected:
                    if silence >= _CONNECT_TIMEOUT:
                        raise self._errors[-1] if self._errors else NSQError("no nsqd was found")
                elif self._has_all():
                    return True  # others took some
                elif not self._depths.is_complete and silence >= silence_limit:
                    logger.warning(
                        "%s/%s: the depth is unknown, so the read ends after %g s without a message"
                        " (idleMs): %s", options.topic, options.channel, silence_limit,
                        "; ".join(f"{one}: {why}" for one, why in self._depths.unknown.items()))
                    return True
                elif silence >= options.config.drain_patience:
                    raise NSQError(
                        f"{options.topic}/{options.channel}: {self._depths.waiting} messages wait"
                        f" and none has come for {silence:.0f} s (drain_patience): is the channel"
                        " paused, or maxMessages above nsqd's --max-rdy-count?")
                elif min(silence, now - since) >= _ASK_AGAIN:
                    return False
                self._changed.wait(0.1)
        return True

    def _has_all(self) -> bool:
        depths = self._depths
        return (depths.is_complete and depths.waiting <= depths.paused
                and depths.in_flight <= len(self._held))
