"""``Ingest``: everything that brings messages from nsqds into a sink.

Several connections to an nsqd are lanes: each lane has its own ConnectionManager (connections,
reconnects, discovery), all share one flow control, so ``max_in_flight`` is the total.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable

from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.context import ConsumerContext, consumer_log
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.partitioned.consumer.connections import PartitionedConnections
from nsqclient.partitioned.consumer.leaders import PartitionTarget, warn_of_few_in_flight
from nsqclient.partitioned.consumer.options import PartitionOptions
from nsqclient.consumer.subscription import Subscription
from nsqclient.errors import NegotiationError, NotNSQError, NSQError, PartitionError, ServerError
from nsqclient.message import Message
from nsqclient.protocol.extensions import Endpoint
from nsqclient.protocol.partitioned.retry_policy import LEADER_CODES
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import MAX_DIALS
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool
from nsqclient.spark.ingest.message_buffer import MessageBuffer
from nsqclient.spark.ingest.subscription import BulkPartitionSubscription, BulkSubscription
from nsqclient.spark.ingest.writer import Quota, Sink, Writer
from nsqclient.spark.options import ReadOptions

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds of a stop's time that are kept for closing connections.
_GRACE = 1.0
#: Errors that retries do not fix: nsqd rejects us, the peer is not nsqd, or partitions are named by
#: an address.
_FATAL = (ServerError, NegotiationError, NotNSQError, PartitionError)


def _is_fatal(error: NSQError) -> bool:
    if isinstance(error, ServerError) and error.code in LEADER_CODES:
        return False  # the leader of a partition has moved
    return isinstance(error, _FATAL)


class Ingest:
    """Reads one channel from all its nsqds.

    Life: ``start()``, ``stop()``; not started again. Threads: every method, any thread.

    Args:
        options: of the source; ``connections`` lanes are made.
        sink: where segments go.
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
        self._options = options
        self._serial = itertools.count()
        self._notify_stored = on_stored
        self._notify_failed = on_failed
        self._lock = threading.Lock()
        self._subs: list[BulkSubscription] = []  # open; guarded by _lock
        self._stopping = False
        #: Messages that are finished: stored, or copies. Written by the writer alone.
        self.stored: int = 0
        #: When messages came last, or a connection opened.
        self.last_arrival: float = time.monotonic()
        self.last_error: NSQError | None = None
        self._timer = Timer()
        self._background: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-background", 2 + len(options.lookupd), lambda task: task()
        )
        self._log = consumer_log(options.topic, options.channel)
        self._context = ConsumerContext(
            options.topic, options.channel, options.config, self._timer, self._background.put,
            self._log)
        self._flow: FlowControl[Subscription] = FlowControl(self._context, lambda phase, wait: None)
        self._buffer = MessageBuffer(options.roll_interval_ms, self._balance)
        self._is_held = False  # by the owner, or after a failure; guarded by _lock
        self._writer = Writer(
            self._buffer, sink, self._on_stored, self._on_failed, quota, options.segment_rows)
        self._lanes = [
            PartitionedConnections(
                self._context, NsqdSources(options.nsqd, options.lookupd), self,
                PartitionOptions(partitions=partitions, follows_topic=True),
                max_dials=max(1, MAX_DIALS // options.connections),
            )
            for _ in range(options.connections)
        ]

    # -- life

    def start(self) -> None:
        """Start the threads and begin to connect; returns at once."""
        self._timer.start()
        self._background.start()
        self._writer.start()
        self._flow.start()
        for lane in self._lanes:
            lane.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Store and finish the received messages, requeue later ones, and close. Idempotent.

        1. No more dials; RDY 0 on each connection.
        2. The buffer becomes a last segment and is finished; messages that come from now on are
           requeued (REQ 0).
        3. CLS: CLOSE_WAIT proves that nsqd has read every FIN.
        4. Connections are closed, threads joined.
        """
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        deadline = Deadline(timeout)
        subs = [sub for lane in self._lanes for sub in lane.stop()]
        self.set_paused(True)
        self._flow.stop()
        self._buffer.close()
        written = self._writer.finish(Deadline(max(0.5, deadline.at_most(timeout) - _GRACE)))
        waiting = [sub for sub in subs if isinstance(sub, BulkSubscription) and self._cls(sub)]
        Deadline(_GRACE).wait_until(
            lambda: all(sub.was_drained or sub.is_lost for sub in waiting))
        connected = set(self._subs)
        for sub in subs:
            if sub in connected:  # a connection that is being opened has nothing to write
                sub.conn.drain(0.2)
            sub.conn.close()
        rest = Deadline(_GRACE)
        stuck = [f"nsq-reader-{sub.address}" for sub in subs if not sub.conn.join(rest)]
        if not self._timer.stop(rest):
            stuck.append("nsq-timer")
        self._background.take_all()
        stuck += self._background.stop(rest)
        for lane in self._lanes:
            stuck += lane.dials.join(rest)
        if written:
            self._writer.pass_reports()
        else:
            stuck.append("nsq-log-writer")
        if stuck:
            logger.warning("ingest: these threads did not end in time: %s", ", ".join(stuck))

    def _cls(self, sub: BulkSubscription) -> bool:
        try:
            sub.send_cls()
            return True
        except NSQError as exc:  # not open yet, or lost: nothing to drain
            logger.debug("%s: CLS not sent: %s", sub.address, exc)
            return False

    def set_paused(self, paused: bool) -> None:
        """Receive nothing more (RDY 0), or go on. Messages that have come are stored anyway."""
        with self._lock:
            self._is_held = paused or self._stopping
        self._balance()

    def _balance(self) -> None:
        """Pause or resume the flow. With several threads the last one decides."""
        while True:
            paused = self._is_held or self._buffer.is_full
            if paused == self._flow.is_paused:
                return
            self._flow.set_paused(paused)

    # -- questions

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._subs)

    @property
    def in_flight(self) -> int:
        """Messages that were received and are not answered."""
        return sum(len(sub) for sub in self._subs)

    @property
    def is_idle(self) -> bool:
        """True if every received message is stored."""
        return self._buffer.is_idle

    # -- from the writer

    def _on_stored(self, messages: int) -> None:
        self.stored += messages
        self._notify_stored()

    def _on_failed(self, error: NSQError) -> None:
        self.set_paused(True)
        self.last_error = error
        self._notify_failed(error)

    # -- from ConnectionManager

    def make_subscription(self, place: Endpoint) -> Subscription:
        """For ConnectionManager: a subscription that is not open yet."""
        return BulkSubscription(self._next_key(), place.address, self._context, self)

    def make_partition_subscription(self, target: PartitionTarget) -> Subscription:
        """For PartitionedConnections: a subscription that is not open yet."""
        return BulkPartitionSubscription(self._next_key(), target, self._context, self)

    def _next_key(self) -> str:
        return f"conn-{next(self._serial)}"

    def on_connected(self, sub: Subscription) -> None:
        """For ConnectionManager: give it RDY, and start it."""
        assert isinstance(sub, BulkSubscription)
        self.last_arrival = time.monotonic()
        with self._lock:
            self._subs = [*self._subs, sub]
        self._set_segment_rows()
        self._flow.attach(sub)
        sub.conn.start()

    def _set_segment_rows(self) -> None:
        # Half of what may be in flight: while one half is written, nsqd sends the other.
        subs = self._subs
        window = sum(sub.window for sub in subs)
        rows = min(window, self._options.config.max_in_flight) // 2
        # An ordered partition sends its next message only when the last one is stored.
        is_ordered = any(isinstance(sub, BulkPartitionSubscription) and sub.is_ordered
                         for sub in subs)
        self._buffer.set_segment_rows(1 if is_ordered else rows)

    def on_partitions(self, count: int) -> None:
        """For ConnectionManager: the number of the topic's partitions."""
        if self._flow.max_in_flight < count:
            warn_of_few_in_flight(self._log, self._flow.max_in_flight, count)

    def on_error(self, error: NSQError) -> None:
        """For ConnectionManager: a dial or a lookup failed; some are of no use to repeat."""
        self.last_error = error
        if _is_fatal(error):
            self._notify_failed(error)

    # -- from BulkSubscription

    def on_batch(self, sub: BulkSubscription, batch: list[RawMessage]) -> None:
        """Messages came."""
        self.last_arrival = time.monotonic()
        if not self._buffer.add(sub, batch):
            sub.requeue_ids([message[2] for message in batch])

    def on_fin_refused(self, sub: BulkSubscription, message_id: bytes) -> None:
        """nsqd will send a copy."""
        self._writer.refused(sub.source, message_id)

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        """A connection ended."""
        assert isinstance(sub, BulkSubscription)
        self._writer.conn_closed(sub.key, sub.is_proven)
        with self._lock:
            self._subs = [other for other in self._subs if other is not sub]
        self._flow.detach(sub)
        if not self._stopping:
            logger.warning("%s: connection lost (%s); connecting again", sub.address, error)
            self._set_segment_rows()
            if _is_fatal(error):
                self.on_error(error)
        for lane in self._lanes:
            lane.lost(sub)

    def on_messages(self, sub: Subscription, messages: list[Message], size: int) -> None:
        """Never: there are no Message objects here."""

    def on_result(self, outcome: Outcome) -> None:
        """Never: a message does not fail here."""

    def flush_soon(self, sub: Subscription) -> None:
        """Never: the writer finishes in bulk."""

    def give_up(self, message: Message, reason: str) -> None:
        """Never: there are no Message objects here."""
