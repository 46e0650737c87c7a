"""``Writer``: the thread that makes segments, and finishes at nsqd what is durable.

Nothing is finished before ``Sink.append`` has returned. What cannot be stored goes back to nsqd.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nsqclient.errors import NSQError
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.ingest.gathering import Gatherer, Lot, cut
from nsqclient.spark.spool.known_ids import Claim
from nsqclient.spark.spool.segment import encode_segment
from nsqclient.spark.spool.spool import Verdict

logger = logging.getLogger("nsqclient.spark")

#: Bytes of bodies in a segment, at most, save for a single larger message.
SEGMENT_BYTES = 32 * 1024 * 1024
#: Seconds after which the writer looks at what connections reported, when nothing comes.
_LOOK = 0.5


class Sink(Protocol):
    """Where segments go: the spool, or the process that has it. Any thread; may block."""

    def write_tmp(self, data: Any) -> str:
        """Write a file that nobody sees yet, to disk; return its path."""
        ...

    def append(
        self, tmp: str, rows: int, claims: Sequence[Claim], copies: Sequence[Claim] = ()
    ) -> Verdict:
        """Make it a segment; see ``Spool.append``."""
        ...

    def count_redelivered(self, number: int) -> None:
        """Messages came with attempts over 1."""
        ...

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """nsqd refused FIN for a durable message."""
        ...

    def conn_closed(self, conn: str, clean: bool) -> None:
        """A connection ended; ``clean`` when CLOSE_WAIT came before."""
        ...


class Writer:
    """Takes lots and stores them, in one thread.

    Life: ``start()``; ``finish()`` stores the rest and joins. Threads: ``report`` any.
    """

    def __init__(
        self, topic: str, channel: str, gatherer: Gatherer, sink: Sink,
        on_stored: Callable[[int], None], on_failed: Callable[[NSQError], None],
        limit: int | None = None,
    ) -> None:
        self._names = (topic, channel)
        self._gatherer = gatherer
        self._sink = sink
        self._on_stored = on_stored
        self._on_failed = on_failed
        self._reports: deque[Callable[[], None]] = deque()
        self._left = limit  # messages that may still be stored; None: any number. By the thread
        self._failed = False  # by the thread
        self._thread = threading.Thread(target=self._run, name="nsq-spool-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, deadline: Deadline) -> bool:
        """Store what was gathered, and end. Close the gatherer first. False: not in time."""
        if self._thread.ident is not None:
            self._thread.join(deadline.remaining())
        return not self._thread.is_alive()

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """A reader reports a refused FIN; it must not wait for the disk."""
        self._reports.append(lambda: self._sink.refused(nsqd, message_id))

    def conn_closed(self, conn: str, clean: bool) -> None:
        """A reader reports the end of its connection."""
        self._reports.append(lambda: self._sink.conn_closed(conn, clean))

    def pass_reports(self) -> None:
        """Tell the sink what was reported. The thread does; after its end the stop does."""
        while self._reports:
            self._reports.popleft()()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            lot, is_last = self._gatherer.take(_LOOK)
            try:
                self.pass_reports()
                for part in cut(lot, SEGMENT_BYTES):
                    self._handle(part)
            except Exception as exc:  # the thread must live on, to hand back what comes
                logger.exception("ingest: the writer failed")
                self._fail(NSQError(f"the ingest failed: {exc!r}"))

    def _handle(self, lot: Lot) -> None:
        # What was out on a lost connection comes again, and has left no trace here.
        lot = [(sub, messages) for sub, messages in lot if not sub.is_lost]
        if self._left is not None:
            lot, rest = split(lot, self._left)
            self._left -= sum(len(messages) for _, messages in lot)
            for sub, messages in rest:
                sub.hand_back_ids([message[2] for message in messages])
        try:
            if lot and not self._failed:
                self._on_stored(self._store(lot))
                return
        except NSQError as exc:
            logger.error("ingest: %s", exc)
            self._fail(exc)
        for sub, messages in lot:
            sub.hand_back_ids([message[2] for message in messages])

    def _fail(self, error: NSQError) -> None:
        self._failed = True
        self._on_failed(error)

    def _store(self, lot: Lot) -> int:
        """Make a lot durable, then finish it; return how many messages nsqd is rid of."""
        again = sum(message[1] != 1 for _, messages in lot for message in messages)
        if again:
            self._sink.count_redelivered(again)
        claims = [Claim(sub.address, sub.key, sub.window, [message[2] for message in messages])
                  for sub, messages in lot]
        copies: list[Claim] = []
        fresh = lot
        verdict = self._append(fresh, claims, copies)
        while verdict.copies is not None:
            fresh, claims, more = without(fresh, claims, verdict.copies)
            copies += more
            verdict = self._append(fresh, claims, copies)
        for sub, messages in lot:
            try:
                sub.finish_ids([message[2] for message in messages])
            except NSQError as exc:
                logger.debug("%s: FIN not sent: %s", sub.address, exc)
                self._sink.conn_closed(sub.key, clean=False)
        return sum(len(messages) for _, messages in lot)

    def _append(self, lot: Lot, claims: list[Claim], copies: list[Claim]) -> Verdict:
        rows = sum(len(messages) for _, messages in lot)
        tmp = ""
        if rows:
            parts = [(sub.address, messages) for sub, messages in lot]
            tmp = self._sink.write_tmp(encode_segment(*self._names, parts))
        return self._sink.append(tmp, rows, claims, copies)


def split(lot: Lot, rows: int) -> tuple[Lot, Lot]:
    """Cut a lot after so many messages."""
    first: Lot = []
    rest: Lot = []
    for sub, messages in lot:
        if messages[:rows]:
            first.append((sub, messages[:rows]))
        if messages[rows:]:
            rest.append((sub, messages[rows:]))
        rows = max(0, rows - len(messages))
    return first, rest


def without(
    lot: Lot, claims: list[Claim], positions: list[list[int]]
) -> tuple[Lot, list[Claim], list[Claim]]:
    """Take messages out of a lot; return what is left, its claims, and the claims taken out."""
    left: Lot = []
    kept: list[Claim] = []
    taken: list[Claim] = []
    for (sub, messages), claim, out in zip(lot, claims, positions):
        drop = set(out)
        rest = [message for n, message in enumerate(messages) if n not in drop]
        if rest:
            left.append((sub, rest))
            kept.append(claim._replace(ids=[message[2] for message in rest]))
        if drop:
            taken.append(claim._replace(ids=[claim.ids[n] for n in out]))
    return left, kept, taken
