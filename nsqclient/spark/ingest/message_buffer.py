"""``MessageBuffer``: readers put messages in, the writer takes them for a segment."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from nsqclient.consumer.bulk import BulkSubscription
from nsqclient.protocol.frames import RawMessage
from nsqclient.spark.segment import SEGMENT_BYTES, Rows

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
        self._first = 0.0  # when the oldest came
        self._wanted = 1
        self._closed = False
        self._busy = False  # the writer is storing a segment

    def set_segment_rows(self, rows: int) -> None:
        """Set how many messages make a segment before the roll interval is over."""
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
        """Accept nothing more; ``take`` returns the rest at once."""
        with self._due:
            self._closed = True
            self._due.notify()

    def take(self, timeout: float) -> tuple[list[Batch], bool]:
        """Wait for the messages of a segment, at most ``timeout`` seconds; and whether the buffer
        is closed."""
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
        """True if the waiting bytes exceed ``MOST_BYTES``, so that the flow must pause."""
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

    A larger message is alone in a segment.
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
