"""``Ingest``: receives messages from nsqds and stores them in a sink, the log of a shard.

``MessageBuffer`` collects the messages of all readers, and ``Writer`` makes segments of them.
Messages are finished after ``Sink.append`` has returned; messages that cannot be stored are
requeued. Never imports pyspark.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from nsqclient.consumer.bulk import BulkHandler, BulkSubscription
from nsqclient.errors import NegotiationError, NotNSQError, NSQError, PartitionError, ServerError
from nsqclient.partitioned.bulk import BulkConsumer
from nsqclient.protocol.frames import RawMessage
from nsqclient.protocol.partitioned.extensions import LEADER_CODES
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.errors import StorageError
from nsqclient.spark.known_ids import Claim
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.segment import SEGMENT_BYTES, Rows

logger: logging.Logger = logging.getLogger("nsqclient.spark")

_Source = TypeVar("_Source")

#: Messages with their connection.
Batch = tuple[BulkSubscription, Rows]
#: Bytes in the buffer above which the flow is paused. max_in_flight limits only their number.
MOST_BYTES = 64 * 1024 * 1024


class MessageBuffer:
    """Collects messages until there are enough for a segment, or the oldest has waited long enough.

    Threads: ``add`` readers, ``take`` the writer, ``close`` any.
    """

    def __init__(
        self, roll_interval: float, on_full: Callable[[], None] = lambda: None
    ) -> None:
        self._roll_interval = roll_interval
        self._notify_full = on_full
        self._due = threading.Condition()
        # Guarded by _due, all below.
        self._batches: list[Batch] = []
        self._rows = self._bytes = 0
        self._first = 0.0  # when the oldest message arrived
        self._wanted = 1
        self._closed = False
        self._busy = False  # the writer is storing a segment

    def set_segment_rows(self, rows: int) -> None:
        with self._due:
            self._wanted = max(1, rows)

    def add(self, sub: BulkSubscription, batch: list[RawMessage]) -> bool:
        """Add messages; return False without adding them if the buffer is closed."""
        rows = Rows.of(batch)
        with self._due:
            if self._closed:
                return False
            if not self._batches:
                self._first = time.monotonic()
                self._due.notify()
            before = self._rows
            self._batches.append((sub, rows))
            self._rows += len(batch)
            self._bytes += rows.size
            became_full = self._bytes - rows.size <= MOST_BYTES < self._bytes
            if before < self._wanted <= self._rows or became_full:
                self._due.notify()
        if became_full:
            self._notify_full()
        return True

    def close(self) -> None:
        with self._due:
            self._closed = True
            self._due.notify()

    def take(self, timeout: float) -> tuple[list[Batch], bool]:
        """Wait for the messages of a segment; return them, and True if the buffer is closed."""
        until = time.monotonic() + timeout
        with self._due:
            self._busy = False
            while True:
                now = time.monotonic()
                due = self._first + self._roll_interval if self._batches else math.inf
                is_many = self._rows >= self._wanted or self._bytes > MOST_BYTES
                is_due = self._closed or is_many or now >= due
                if is_due or now >= until:
                    break
                self._due.wait(min(due, until) - now)
            batches: list[Batch] = []
            was_full = is_due and self._bytes > MOST_BYTES
            if is_due:
                batches, self._batches = self._batches, batches
                self._rows = self._bytes = 0
                self._busy = bool(batches)
            is_last = self._closed
        if was_full:
            self._notify_full()
        return batches, is_last

    @property
    def is_full(self) -> bool:
        with self._due:
            return self._bytes > MOST_BYTES

    @property
    def is_idle(self) -> bool:
        """True if the buffer is empty and the writer has stored all messages that it took."""
        with self._due:
            return not self._batches and not self._busy


def split_segment(
    batches: Iterable[tuple[_Source, Rows]], most_rows: float = math.inf,
    most_bytes: int = SEGMENT_BYTES,
) -> list[list[tuple[_Source, Rows]]]:
    """Divide batches into segments of at most ``most_rows`` and ``most_bytes``; join by source.

    A larger message gets a segment of its own.
    """
    segments: list[dict[_Source, list[Rows]]] = [{}]
    count = size = 0

    def add(source: _Source, rows: Rows) -> None:
        nonlocal count, size
        segments[-1].setdefault(source, []).append(rows)
        count, size = count + len(rows), size + rows.size

    for source, rows in batches:
        if count + len(rows) <= most_rows and size + rows.size <= most_bytes:  # the common case
            add(source, rows)
            continue
        start = 0
        length, total = count, size
        for stop, row in enumerate(rows.sizes):
            if (length >= most_rows or total + row > most_bytes) and length:
                if stop > start:
                    add(source, rows.select(range(start, stop)))
                segments.append({})
                start, count, size, length, total = stop, 0, 0, 0, 0
            length, total = length + 1, total + row
        add(source, rows.select(range(start, len(rows))))
    return [[(source, Rows.join(parts)) for source, parts in segment.items()]
            for segment in segments if segment]


#: Maximum seconds after which the writer handles reports of connections.
_REPORT_INTERVAL = 0.5


class Sink(Protocol):
    """Stores segments: the interface of ``ShardLog``, which describes the methods."""

    def append(
        self, parts: Sequence[tuple[str, Rows]], claims: Sequence[Claim],
        copies: Sequence[Claim] = (),
    ) -> list[list[int]] | None: ...

    def report_full(self, error: StorageError) -> None: ...

    def count_redelivered(self, number: int) -> None: ...

    def refused(self, nsqd: str, message_id: bytes) -> None: ...

    def conn_closed(self, conn: Hashable, clean: bool) -> None: ...


class Quota:
    """The number of messages that all writers together may still store. Threads: any."""

    def __init__(self, messages: int) -> None:
        self.left: int = messages
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        with self._lock:
            taken = min(wanted, self.left)
            self.left -= taken
            return taken

    def give_back(self, messages: int) -> None:
        with self._lock:
            self.left += messages


class Writer:
    """Takes messages from the buffer and stores them as segments, in one thread.

    Lifecycle: ``start()``, ``finish()``. Threads: any for the reports of connections.
    """

    def __init__(
        self, buffer: MessageBuffer, sink: Sink, on_stored: Callable[[int], None],
        on_failed: Callable[[NSQError], None], quota: Quota | None = None,
        segment_rows: float = math.inf,
    ) -> None:
        self._segment_rows = segment_rows  # at most
        self._buffer = buffer
        self._sink = sink
        self._on_stored = on_stored
        self._on_failed = on_failed
        self._reports: deque[Callable[[], None]] = deque()
        self._quota = quota
        self._failed = False  # written by the thread
        self._thread = threading.Thread(target=self._run, name="nsq-log-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, deadline: Deadline) -> bool:
        """Wait until the buffered messages are stored; return False on a timeout.

        Close the buffer first.
        """
        if self._thread.ident is not None:
            self._thread.join(deadline.remaining())
        return not self._thread.is_alive()

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """Report a refused FIN. The sink is told later, so that a reader does not wait for it."""
        self._reports.append(lambda: self._sink.refused(nsqd, message_id))

    def conn_closed(self, conn: Hashable, clean: bool) -> None:
        self._reports.append(lambda: self._sink.conn_closed(conn, clean))

    def pass_reports(self) -> None:
        """Pass the reports to the sink. Called by the thread, and after its end."""
        while self._reports:
            self._reports.popleft()()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            batches, is_last = self._buffer.take(_REPORT_INTERVAL)
            try:
                self.pass_reports()
                for part in split_segment(batches, self._segment_rows):
                    self._handle(part)
            except Exception as exc:  # the thread continues, because it requeues messages
                logger.exception("ingest: the writer failed")
                self._fail(NSQError(f"the ingest failed: {exc!r}"))

    def _handle(self, segment: list[Batch]) -> None:
        # nsqd redelivers the messages of a lost connection.
        segment = [(sub, rows) for sub, rows in segment if not sub.is_lost]
        if self._quota is not None:
            allowed = self._quota.take(sum(len(rows) for _, rows in segment))
            segment, rest = split_by_rows(segment, allowed)
            if rest:
                self._on_stored(0)  # pauses the flow before nsqd gets the messages back
            for sub, rows in rest:
                sub.requeue_ids(list(rows.ids))
        try:
            if segment and not self._failed:
                self._on_stored(self._store(segment))
                return
        except StorageError as exc:
            if self._quota is not None:
                self._quota.give_back(sum(len(rows) for _, rows in segment))
            self._sink.report_full(exc)
            self._on_stored(0)  # as above
        except NSQError as exc:
            logger.error("ingest: %s", exc)
            self._fail(exc)
        for sub, rows in segment:
            sub.requeue_ids(list(rows.ids))

    def _fail(self, error: NSQError) -> None:
        self._failed = True
        self._on_failed(error)

    def _store(self, segment: list[Batch]) -> int:
        again = sum(len(rows) - rows.attempts.count(1) for _, rows in segment)
        if again:
            self._sink.count_redelivered(again)
        fresh, copies = segment, list[Claim]()
        while True:
            claims = [Claim(sub.source, sub, sub.window, rows.ids) for sub, rows in fresh]
            known = self._sink.append(
                [(sub.source, rows) for sub, rows in fresh], claims, copies)
            if known is None:
                break
            copies += [claim._replace(ids=[claim.ids[position] for position in out])
                       for claim, out in zip(claims, known) if out]
            kept = [sorted(set(range(len(rows))).difference(out))
                    for (_, rows), out in zip(fresh, known)]
            fresh = [(sub, rows.select(positions))
                     for (sub, rows), positions in zip(fresh, kept) if positions]
        for sub, rows in segment:
            try:
                sub.finish_ids(rows.ids)
            except NSQError as exc:
                logger.debug("%s: FIN not sent: %s", sub.address, exc)
                self._sink.conn_closed(sub, clean=False)
        return sum(len(rows) for _, rows in segment)


def split_by_rows(segment: list[Batch], most: int) -> tuple[list[Batch], list[Batch]]:
    first: list[Batch] = []
    rest: list[Batch] = []
    for sub, rows in segment:
        taken = min(most, len(rows))
        if taken:
            first.append((sub, rows.select(range(taken))))
        if taken < len(rows):
            rest.append((sub, rows.select(range(taken, len(rows)))))
        most -= taken
    return first, rest


#: Errors that retries do not fix: nsqd rejects the client, the peer is not an nsqd, or the address
#: of a partitioned nsqd was given.
_FATAL = (ServerError, NegotiationError, NotNSQError, PartitionError)


def _is_fatal(error: NSQError) -> bool:
    if isinstance(error, ServerError) and error.code in LEADER_CODES:
        return False  # the leader of a partition has moved
    return isinstance(error, _FATAL)


class Ingest(BulkHandler):
    """Reads one channel from the nsqds of its options.

    Lifecycle: ``start()``, ``stop()``; it cannot be restarted. Threads: any.

    Args:
        on_stored: called by the writer after each segment.
        on_failed: called after an error that no retry fixes; open messages are requeued.
        quota: limits the messages to store; None: no limit.
        partitions: the partitions to read of a partitioned topic; None: all.
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
        #: Finished messages, including copies. Written only by the writer.
        self.stored: int = 0
        #: When the last message arrived, or the last connection opened.
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
        """Pause receiving (RDY 0), or resume. Received messages are stored in any case."""
        with self._lock:
            self._is_held = paused or self._stopping
        self._balance()

    def _balance(self) -> None:
        """Pause or resume the flow; repeat if another thread has changed the state meanwhile."""
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
        # Half of the messages in flight: while one half is stored, nsqd sends the other half.
        windows = [sub.window for sub in self._consumer.connections]
        rows = min(sum(windows) // 2, self._segment_rows)
        # An ordered partition sends its next message only after FIN.
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
