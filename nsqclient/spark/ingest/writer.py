"""``MessageBuffer`` collects messages of all readers; ``Writer`` makes segments of them.

Nothing is finished before ``Sink.append`` has returned. Messages that cannot be stored are
requeued.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from nsqclient.consumer.bulk import BulkSubscription
from nsqclient.errors import NSQError
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.errors import StorageError
from nsqclient.spark.ingest.known_ids import Claim
from nsqclient.spark.segment import SEGMENT_BYTES, Rows

logger: logging.Logger = logging.getLogger("nsqclient.spark")

_Source = TypeVar("_Source")

#: Messages with the connection that they came on.
Batch = tuple[BulkSubscription, Rows]
#: Bytes from which on the flow is paused, until the writer has taken them: max_in_flight
#: counts messages, and these may be large.
MOST_BYTES = 64 * 1024 * 1024


class MessageBuffer:
    """Collects messages until there are many, or the first has waited long enough.

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
        """Put messages in; False when it is closed, and the caller keeps them."""
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
        """Wait at most ``timeout`` seconds for a segment. True means that the buffer is closed."""
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
        """True if the buffer is empty and the writer has stored all that it took."""
        with self._due:
            return not self._batches and not self._busy


def split_segment(
    batches: Iterable[tuple[_Source, Rows]], most_rows: float = math.inf,
    most_bytes: int = SEGMENT_BYTES,
) -> list[list[tuple[_Source, Rows]]]:
    """Join batches into segments with at most ``most_rows`` and ``most_bytes``, each by source.

    A larger message gets a segment to itself.
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


#: Seconds after which the writer handles reports of connections, when no message comes.
_REPORT_INTERVAL = 0.5


class Sink(Protocol):
    """Stores segments: the interface of ``ShardLog``. Threads: any. Methods may block."""

    def append(
        self, parts: Sequence[tuple[str, Rows]], claims: Sequence[Claim],
        copies: Sequence[Claim] = (),
    ) -> list[list[int]] | None:
        """Make messages the next segment."""

    def report_full(self, error: StorageError) -> None:
        """The storage takes nothing: the owner pauses the flow."""

    def count_redelivered(self, number: int) -> None:
        """Messages with attempts above 1 have arrived."""

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """nsqd refused FIN for a durable message."""

    def conn_closed(self, conn: Hashable, clean: bool) -> None:
        """A connection ended; ``clean``: after CLOSE_WAIT."""


class Quota:
    """How many messages may still be stored, by all writers together. Threads: any."""

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

    Lifecycle: ``start()``; ``finish()`` stores the rest and joins. Threads: ``report`` any.
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
        """Store the buffered messages, and end. Close the buffer first. False: not in time."""
        if self._thread.ident is not None:
            self._thread.join(deadline.remaining())
        return not self._thread.is_alive()

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """A reader reports a refused FIN; it must not wait for the disk."""
        self._reports.append(lambda: self._sink.refused(nsqd, message_id))

    def conn_closed(self, conn: Hashable, clean: bool) -> None:
        self._reports.append(lambda: self._sink.conn_closed(conn, clean))

    def pass_reports(self) -> None:
        """Pass reports to the sink. The thread does; after its end the stop does."""
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
            except Exception as exc:  # the thread must live on, to requeue messages
                logger.exception("ingest: the writer failed")
                self._fail(NSQError(f"the ingest failed: {exc!r}"))

    def _handle(self, segment: list[Batch]) -> None:
        # Messages of a lost connection come again, and were not stored.
        segment = [(sub, rows) for sub, rows in segment if not sub.is_lost]
        if self._quota is not None:
            allowed = self._quota.take(sum(len(rows) for _, rows in segment))
            segment, rest = split_by_rows(segment, allowed)
            if rest:
                self._on_stored(0)  # stops the flow, before what goes back comes again
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
