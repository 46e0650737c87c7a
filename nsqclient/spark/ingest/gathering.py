"""``Gatherer``: where readers put messages, and from where the writer takes them in lots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from nsqclient.protocol.wire import RawMessage
from nsqclient.spark.ingest.subscription import BulkSubscription

#: A lot: messages by connection, each in the order they came.
Lot = list[tuple[BulkSubscription, list[RawMessage]]]
#: Bytes of bodies from which on nsqd is asked for no more, until the writer has taken them:
#: max_in_flight counts messages, and these may be large.
MOST_BYTES = 64 * 1024 * 1024


class Gatherer:
    """Collects messages until there are many, or the first has waited long enough.

    Args:
        roll_interval: how long that is, in seconds.
        on_crowded: called after ``is_crowded`` has changed, by readers and by the writer.

    Threads: ``add`` readers, ``take`` the writer, ``close`` any.
    """

    def __init__(
        self, roll_interval: float, on_crowded: Callable[[], None] = lambda: None
    ) -> None:
        self._roll_interval = roll_interval
        self._tell_crowded = on_crowded
        self._due = threading.Condition()
        # Guarded by _due, all below.
        self._batches: list[tuple[BulkSubscription, list[RawMessage]]] = []
        self._rows = self._bytes = 0
        self._first = 0.0  # when the oldest came
        self._wanted = 1
        self._closed = False
        self._busy = False  # the writer has a lot in hand

    def set_lot_size(self, rows: int) -> None:
        """Say how many messages are worth a segment before their time has come."""
        with self._due:
            self._wanted = max(1, rows)

    def add(self, sub: BulkSubscription, batch: list[RawMessage]) -> bool:
        """Put messages in; False when it is closed: then they are the caller's still."""
        size = sum([len(message[3]) for message in batch])
        with self._due:
            if self._closed:
                return False
            if not self._batches:
                self._first = time.monotonic()
                self._due.notify()
            before = self._rows
            self._batches.append((sub, batch))
            self._rows += len(batch)
            self._bytes += size
            became_crowded = self._bytes - size <= MOST_BYTES < self._bytes
            if before < self._wanted <= self._rows or became_crowded:
                self._due.notify()
        if became_crowded:
            self._tell_crowded()
        return True

    def close(self) -> None:
        """Take nothing more in; ``take`` gives what is there at once."""
        with self._due:
            self._closed = True
            self._due.notify()

    def take(self, timeout: float) -> tuple[Lot, bool]:
        """Wait for a lot, at most ``timeout`` seconds; return it, and whether that was all."""
        until = time.monotonic() + timeout
        with self._due:
            self._busy = False
            while not self._closed:
                now = time.monotonic()
                due = until
                if self._batches:
                    due = min(until, self._first + self._roll_interval)
                if self._is_many() or due <= now:
                    break
                self._due.wait(due - now)
            is_due = self._closed or self._is_many() or (
                bool(self._batches) and time.monotonic() >= self._first + self._roll_interval
            )
            batches: list[tuple[BulkSubscription, list[RawMessage]]] = []
            was_crowded = is_due and self._bytes > MOST_BYTES
            if is_due:
                batches, self._batches = self._batches, batches
                self._rows = self._bytes = 0
                self._busy = bool(batches)
            is_last = self._closed
        if was_crowded:
            self._tell_crowded()
        lots: dict[BulkSubscription, list[RawMessage]] = {}
        for sub, batch in batches:
            lots.setdefault(sub, []).extend(batch)
        return list(lots.items()), is_last

    def _is_many(self) -> bool:
        return self._rows >= self._wanted or self._bytes > MOST_BYTES

    @property
    def is_crowded(self) -> bool:
        """Tell whether so many bytes wait that no more should come."""
        with self._due:
            return self._bytes > MOST_BYTES

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits, and the writer has stored all that it took."""
        with self._due:
            return not self._batches and not self._busy


def cut(lot: Lot, most_bytes: int) -> list[Lot]:
    """Cut a lot into lots of at most so many bytes of bodies; a larger message is one alone."""
    lots: list[Lot] = [[]]
    size = 0
    for sub, messages in lot:
        total = sum(len(message[3]) for message in messages)
        if size + total <= most_bytes:  # the common case
            lots[-1].append((sub, messages))
            size += total
            continue
        for message in messages:
            if size + len(message[3]) > most_bytes and lots[-1]:
                lots.append([])
                size = 0
            if not lots[-1] or lots[-1][-1][0] is not sub:
                lots[-1].append((sub, []))
            lots[-1][-1][1].append(message)
            size += len(message[3])
    return [part for part in lots if part]
