"""``Ingest``: everything that brings messages from nsqds into a sink."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from nsqclient.consumer.bulk import BulkHandler, BulkSubscription
from nsqclient.errors import NegotiationError, NotNSQError, NSQError, PartitionError, ServerError
from nsqclient.partitioned.bulk import BulkConsumer
from nsqclient.protocol.frames import RawMessage
from nsqclient.protocol.partitioned.extensions import LEADER_CODES
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.ingest.writer import MessageBuffer
from nsqclient.spark.ingest.writer import Quota, Sink, Writer
from nsqclient.spark.options import ReadOptions

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Errors that retries do not fix: nsqd rejects us, the peer is not nsqd, or partitions are named by
#: an address.
_FATAL = (ServerError, NegotiationError, NotNSQError, PartitionError)


def _is_fatal(error: NSQError) -> bool:
    if isinstance(error, ServerError) and error.code in LEADER_CODES:
        return False  # the leader of a partition has moved
    return isinstance(error, _FATAL)


class Ingest(BulkHandler):
    """Reads one channel from all its nsqds.

    Lifecycle: ``start()``, ``stop()``; not started again. Threads: every method, any thread.

    Args:
        options: of the source.
        sink: stores the segments.
        on_stored: called by the writer after each segment.
        on_failed: called when nothing more can be stored or read; open messages are requeued.
        quota: of messages to take; None: all.
        partitions: partitions to read of a partitioned topic; None: all of them.
    """

    def __init__(
        self,
        options: ReadOptions,
        sink: Sink,
        on_stored: Callable[[], None] = lambda: None,
        on_failed: Callable[[NSQError], None] = lambda error: None,
        quota: Quota | None = None,
        partitions: frozenset[int] | None = None,
    ) -> None:
        self._segment_rows = options.segment_rows
        self._notify_stored = on_stored
        self._notify_failed = on_failed
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._stopping = False
        self._is_held = False  # paused by the owner, or after a failure
        #: Messages that are finished: stored, or copies. Written only by the writer.
        self.stored: int = 0
        #: When messages came last, or a connection opened.
        self.last_arrival: float = time.monotonic()
        self.last_error: NSQError | None = None
        self._quota = quota
        self._buffer = MessageBuffer(options.roll_interval_ms, self._balance)
        self._writer = Writer(self._buffer, sink, self._on_stored, self._on_failed, quota,
                              options.segment_rows)
        self._consumer = BulkConsumer(
            options.topic, options.channel, self, options.config, nsqds=options.nsqd,
            lookupds=options.lookupd, lanes=options.connections, partitions=partitions)

    # -- lifecycle

    def start(self) -> None:
        self._writer.start()
        self._consumer.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Store and finish the received messages, requeue later ones, and close. Idempotent."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = self._is_held = True
        has_written = False

        def settle(deadline: Deadline) -> None:
            nonlocal has_written
            self._buffer.close()
            has_written = self._writer.finish(deadline)

        stuck = self._consumer.stop(timeout, settle)
        if has_written:
            self._writer.pass_reports()
        else:
            stuck.append("nsq-log-writer")
        if stuck:
            logger.warning("ingest: these threads did not end in time: %s", ", ".join(stuck))

    def set_paused(self, paused: bool) -> None:
        """Pause receiving (RDY 0), or resume. Messages that have arrived are stored anyway."""
        with self._lock:
            self._is_held = paused or self._stopping
        self._balance()

    def _balance(self) -> None:
        """Pause or resume the flow. With several threads the last one decides."""
        flow = self._consumer.flow
        while True:
            paused = self._is_held or self._buffer.is_full or (
                self._quota is not None and self._quota.left <= 0)
            if paused == flow.is_paused:
                return
            flow.set_paused(paused)

    # -- questions

    @property
    def connections(self) -> int:
        return len(self._consumer.connections)

    @property
    def in_flight(self) -> int:
        return sum(len(sub) for sub in self._consumer.connections)

    @property
    def is_idle(self) -> bool:
        return self._buffer.is_idle

    # -- from the writer

    def _on_stored(self, messages: int) -> None:
        self.stored += messages
        self._notify_stored()

    def _on_failed(self, error: NSQError) -> None:
        self.set_paused(True)
        self.last_error = error
        self._notify_failed(error)

    # -- from the BulkConsumer

    def on_connected(self, sub: BulkSubscription) -> None:
        self.last_arrival = time.monotonic()
        self._set_segment_rows()

    def _set_segment_rows(self) -> None:
        # Half of the messages in flight: while one half is stored, nsqd sends the other.
        windows = [sub.window for sub in self._consumer.connections]
        rows = min(sum(windows) // 2, self._segment_rows)
        # An ordered partition sends its next message only when the last one is stored.
        self._buffer.set_segment_rows(1 if 1 in windows else rows)

    def on_batch(self, sub: BulkSubscription, batch: list[RawMessage]) -> None:
        self.last_arrival = time.monotonic()
        if not self._buffer.add(sub, batch):
            sub.requeue_ids([message[2] for message in batch])

    def on_fin_refused(self, sub: BulkSubscription, message_id: bytes) -> None:
        self._writer.refused(sub.source, message_id)

    def on_lost(self, sub: BulkSubscription, error: NSQError) -> None:
        self._writer.conn_closed(sub, sub.is_proven)
        if not self._stopping:
            self._set_segment_rows()
            if _is_fatal(error):
                self.on_error(error)

    def on_error(self, error: NSQError) -> None:
        self.last_error = error
        if _is_fatal(error):
            self._notify_failed(error)
