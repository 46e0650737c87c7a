"""``Writer``: the thread that makes segments, and finishes at nsqd what is durable.

Nothing is finished before ``Sink.append`` has returned. Messages that cannot be stored are
requeued.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nsqclient.errors import NSQError
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.errors import SpoolFullError
from nsqclient.spark.ingest.message_buffer import MessageBuffer, SegmentBuffer, split_by_bytes
from nsqclient.spark.spool.known_ids import Claim
from nsqclient.spark.spool.segment import encode_segment
from nsqclient.spark.spool.spool import AppendResult

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds after which the writer handles reports of connections, when no message comes.
_REPORT_INTERVAL = 0.5


class Sink(Protocol):
    """Where segments go: the spool, the process that has it, or a shard. Any thread; may block."""

    def write_tmp(self, data: Any) -> Any:
        """Write a temporary file, to disk, or what else ``append`` takes as ``tmp``."""
        ...

    def append(
        self, tmp: Any, rows: int, claims: Sequence[Claim],
        copies: Sequence[Claim] = (),
    ) -> AppendResult:
        """Make it a segment; see ``Spool.append``."""
        ...

    def report_full(self, error: SpoolFullError) -> None:
        """The disk is full. The owner pauses the flow, until there is space."""
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
    """Takes messages from the buffer and stores them as segments, in one thread.

    Life: ``start()``; ``finish()`` stores the rest and joins. Threads: ``report`` any.
    """

    def __init__(
        self, topic: str, channel: str, buffer: MessageBuffer, sink: Sink,
        on_stored: Callable[[int], None], on_failed: Callable[[NSQError], None],
        limit: int | None = None,
    ) -> None:
        self._names = (topic, channel)
        self._buffer = buffer
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
        """Store what was gathered, and end. Close the buffer first. False: not in time."""
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
        """Pass reports to the sink. The thread does; after its end the stop does."""
        while self._reports:
            self._reports.popleft()()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            segment, is_last = self._buffer.take(_REPORT_INTERVAL)
            try:
                self.pass_reports()
                for part in split_by_bytes(segment):
                    self._handle(part)
            except Exception as exc:  # the thread must live on, to requeue what comes
                logger.exception("ingest: the writer failed")
                self._fail(NSQError(f"the ingest failed: {exc!r}"))

    def _handle(self, segment: SegmentBuffer) -> None:
        # Messages of a lost connection come again, and were not stored.
        segment = [(sub, messages) for sub, messages in segment if not sub.is_lost]
        if self._left is not None:
            segment, rest = split_by_rows(segment, self._left)
            self._left -= sum(len(messages) for _, messages in segment)
            for sub, messages in rest:
                sub.requeue_ids([message[2] for message in messages])
        try:
            if segment and not self._failed:
                self._on_stored(self._store(segment))
                return
        except SpoolFullError as exc:
            if self._left is not None:
                self._left += sum(len(messages) for _, messages in segment)
            self._sink.report_full(exc)
            self._on_stored(0)  # the owner stops the flow, before what goes back comes again
        except NSQError as exc:
            logger.error("ingest: %s", exc)
            self._fail(exc)
        for sub, messages in segment:
            sub.requeue_ids([message[2] for message in messages])

    def _fail(self, error: NSQError) -> None:
        self._failed = True
        self._on_failed(error)

    def _store(self, segment: SegmentBuffer) -> int:
        """Make a segment durable, then finish it; return how many messages are finished."""
        again = sum(message[1] != 1 for _, messages in segment for message in messages)
        if again:
            self._sink.count_redelivered(again)
        claims = [Claim(sub.source, sub.key, sub.window, [message[2] for message in messages])
                  for sub, messages in segment]
        copies: list[Claim] = []
        fresh = segment
        result = self._append(fresh, claims, copies)
        while result.copies is not None:
            fresh, claims, more = remove_messages(fresh, claims, result.copies)
            copies += more
            result = self._append(fresh, claims, copies)
        for sub, messages in segment:
            try:
                sub.finish_ids([message[2] for message in messages])
            except NSQError as exc:
                logger.debug("%s: FIN not sent: %s", sub.address, exc)
                self._sink.conn_closed(sub.key, clean=False)
        return sum(len(messages) for _, messages in segment)

    def _append(
        self, segment: SegmentBuffer, claims: list[Claim], copies: list[Claim]
    ) -> AppendResult:
        rows = sum(len(messages) for _, messages in segment)
        tmp = None
        if rows:
            parts = [(sub.source, messages) for sub, messages in segment]
            tmp = self._sink.write_tmp(encode_segment(*self._names, parts))
        return self._sink.append(tmp, rows, claims, copies)


def split_by_rows(segment: SegmentBuffer, rows: int) -> tuple[SegmentBuffer, SegmentBuffer]:
    """Split after so many messages."""
    first: SegmentBuffer = []
    rest: SegmentBuffer = []
    for sub, messages in segment:
        if messages[:rows]:
            first.append((sub, messages[:rows]))
        if messages[rows:]:
            rest.append((sub, messages[rows:]))
        rows = max(0, rows - len(messages))
    return first, rest


def remove_messages(
    segment: SegmentBuffer, claims: list[Claim], positions: list[list[int]]
) -> tuple[SegmentBuffer, list[Claim], list[Claim]]:
    """Remove messages; return the rest, its claims, and the claims that were removed."""
    left: SegmentBuffer = []
    kept: list[Claim] = []
    taken: list[Claim] = []
    for (sub, messages), claim, out in zip(segment, claims, positions):
        drop = set(out)
        rest = [message for n, message in enumerate(messages) if n not in drop]
        if rest:
            left.append((sub, rest))
            kept.append(claim._replace(ids=[message[2] for message in rest]))
        if drop:
            taken.append(claim._replace(ids=[claim.ids[n] for n in out]))
    return left, kept, taken
