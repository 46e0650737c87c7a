"""``Spool``: one numbering over everything that was written, and what is known of it.

The order of the steps is the whole correctness: a segment is written under a name that nobody
reads, brought to disk, linked under its number, the folder brought to disk; only then is the
number told to Spark, and only then may FIN be sent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nsqclient.spark.errors import DataLossError, SpoolError
from nsqclient.spark.spool.folder import Folder, Unfinned
from nsqclient.spark.spool.known_ids import Claim, KnownIds
from nsqclient.spark.spool.names import SegmentName
from nsqclient.spark.spool.recovery import missing_numbers, next_number, ranges, sort_out
from nsqclient.spark.spool.retention import Entry, end_of_batch, to_delete
from nsqclient.spark.spool.segment import encode_segment, read_ids, read_messages

logger = logging.getLogger("nsqclient.spark")

#: Seconds for an earlier run to end and to let the folder go.
LOCK_PATIENCE = 15.0


class Verdict(NamedTuple):
    """What came of an append: a number, or the positions of copies in each claim."""

    number: int
    copies: list[list[int]] | None


class Spool:
    """The spool of one query, opened for writing.

    Life: created (no file is touched), ``open()``, ``close()``. Threads: any, once it is open.

    Args:
        path: the folder; made when it is not there.
        topic, channel: what it is for.
        settle_time: seconds after which a FIN on a connection that still lives has surely been
            read by nsqd.
    """

    def __init__(
        self,
        path: str,
        topic: str,
        channel: str,
        settle_time: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = Folder(path)
        self._names = (topic, channel)
        self._settle_time = settle_time
        self._clock = clock
        self._appending = threading.Lock()  # held over a link; taken before _changed
        self._known = KnownIds()  # guarded by _appending
        self._broken: SpoolError | None = None  # guarded by _appending
        self._changed = threading.Condition()
        # Guarded by _changed, all below; numbers rise.
        self._segments: dict[int, tuple[SegmentName, int]] = {}
        self._last = 0
        self._committed = 0
        self._rows = self._size = 0  # of segments that are not committed
        self._clean_to = 0
        self._epoch = 0
        self.redelivered = 0  #: messages that came with attempts over 1
        self.copies_dropped = 0  #: copies of durable messages that were finished and not stored

    # -- life

    def open(self, at_least: int = 0, fail_on_data_loss: bool = True,
             patience: float = LOCK_PATIENCE) -> None:
        """Take the folder over, and find out what is in it.

        Args:
            at_least: the highest number in Spark's checkpoint.
            patience: seconds to wait for the lock.

        Raises:
            SpoolLockedError, SpoolMismatchError: it belongs to somebody else.
            DataLossError: it is not the folder that Spark's checkpoint belongs to.
            SpoolError: it cannot be used.
        """
        self.folder.lock(patience)
        try:
            self._recover(at_least, fail_on_data_loss)
        except BaseException:
            self.folder.close()
            raise

    def _recover(self, at_least: int, fail_on_data_loss: bool) -> None:
        folder = self.folder
        folder.check_meta(*self._names)
        folder.delete_tmp()
        found = folder.segments()
        epochs = folder.epochs()
        committed = folder.read_committed()
        unfinned = folder.read_unfinned()
        first = next_number(
            [name for name, _ in found], epochs, max(committed, unfinned.clean_to)
        )
        if at_least >= first:
            text = (
                f"ends at number {first - 1}, but the checkpoint is at {at_least}: it was lost, or"
                " it is another query's. What was acknowledged to nsqd and not processed is lost"
            )
            if fail_on_data_loss:
                raise DataLossError(
                    folder.path, f"{text}. Restore the folder, or set failOnDataLoss=false")
            logger.warning("spool %s %s; going on, as failOnDataLoss=false says", folder, text)
            first = at_least + 1
        self._epoch = folder.begin_epoch(first)
        self._last = first - 1
        self._committed = committed
        self._clean_to = unfinned.clean_to
        valid = sort_out((name for name, _ in found), epochs).valid
        sizes = dict(found)
        self._segments = {name.number: (name, sizes[name]) for name in valid}
        with self._appending:
            self._known.load(unfinned.ids)
            for name in valid:
                if name.number > unfinned.clean_to:
                    for nsqd, ids in self._read_ids(name).items():
                        self._known.doubt(nsqd, ids, name.number)
        self._count()
        self._adopt_strays()

    def _read_ids(self, name: SegmentName) -> dict[str, list[bytes]]:
        try:
            return read_ids(self.folder.segment_path(name))
        except (OSError, ValueError) as exc:  # ArrowInvalid is a ValueError
            raise SpoolError(self.folder.path, f"segment {name} cannot be read: {exc}") from exc

    def close(self) -> None:
        """Note what is surely finished at nsqd, and let the folder go. Idempotent.

        Connections must be closed before.
        """
        try:
            if self._epoch:
                with self._appending:
                    self._known.leave_segments(list(self._segments))
                    self.folder.write_unfinned(Unfinned(self._last, self._known.take_saved()))
                self._epoch = 0
        except SpoolError as exc:
            # Then the next start reads the ids from the segments, as after a crash.
            logger.warning("%s", exc)
        finally:
            self.folder.close()

    # -- writing

    def write_tmp(self, data: Any) -> str:
        """Write a file that nobody sees yet, to disk; return its path. For ``append``."""
        return self.folder.write_tmp(data)

    def append(
        self, tmp: str, rows: int, claims: Sequence[Claim], copies: Sequence[Claim] = ()
    ) -> Verdict:
        """Make a written file the next segment, unless some of its messages are known.

        When this returns a number, FIN may be sent for ``claims`` and ``copies``. When it returns
        positions instead, nothing has happened: write the file anew without these messages, and
        hand them over as ``copies``.

        Args:
            tmp: what ``folder.write_tmp`` returned; "" with 0 rows when there are only copies.

        Raises:
            SpoolError: it is not durable; send no FIN.
        """
        with self._appending:
            if self._broken is not None:
                raise self._broken
            found = self._known.find_copies(claims)
            if found is not None:
                return Verdict(0, found)
            number = 0
            if rows:
                number = self._link(tmp, rows)
                self._known.add(claims, number, self._clock())
            if copies:
                self._known.add_copies(copies, self._clock())
            dropped = sum(len(claim.ids) for claim in copies)
        with self._changed:
            self.copies_dropped += dropped
        return Verdict(number, None)

    def _link(self, tmp: str, rows: int) -> int:
        """Needs _appending."""
        name = SegmentName(self._last + 1, self._epoch, rows)
        try:
            self.folder.publish(tmp, name)
            size = self.folder.size(name)
        except SpoolError as exc:
            # It may be there all the same. Only the next start can tell, so the number must not
            # be given again.
            self._broken = exc
            raise
        with self._changed:
            self._last = name.number
            self._segments[name.number] = (name, size)
            self._rows += rows
            self._size += size
            self._changed.notify_all()
        return name.number

    def count_redelivered(self, number: int) -> None:
        """Messages came with attempts over 1; for the progress."""
        with self._changed:
            self.redelivered += number

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """nsqd refused FIN for a durable message: it will send a copy."""
        with self._appending:
            self._known.doubt(nsqd, [message_id])

    def conn_closed(self, conn: str, clean: bool) -> None:
        """A connection ended; see :meth:`KnownIds.closed`. May be called again."""
        with self._appending:
            self._known.closed(conn, clean)

    # -- reading

    @property
    def committed(self) -> int:
        """The last segment that Spark has committed."""
        return self._committed

    @property
    def last(self) -> int:
        """The last segment that is there."""
        return self._last

    @property
    def waiting(self) -> tuple[int, int]:
        """Rows and bytes that Spark has not committed."""
        with self._changed:
            return self._rows, self._size

    def wait_for_more(self, number: int, timeout: float) -> bool:
        """Wait until there is a segment after ``number``; False when there is none in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._last > number, timeout)

    def wake(self) -> None:
        """Let ``wait_for_more`` look again: something else has happened."""
        with self._changed:
            self._changed.notify_all()

    def end_of_batch(self, start: int, max_rows: int | None, max_bytes: int | None) -> int:
        """The last segment of the batch after ``start``; see ``retention``."""
        return end_of_batch(self._entries(), start, max_rows, max_bytes)

    def batch(self, start: int, end: int, fail_on_data_loss: bool = True) -> list[Entry]:
        """The segments in ``(start, end]``.

        Raises:
            DataLossError: some are gone.
        """
        entries = [entry for entry in self._entries() if start < entry.number <= end]
        missing = missing_numbers((entry.number for entry in entries), start, end)
        if missing:
            text = (
                f"lacks segments {ranges(missing)} of batch ({start}, {end}]: the messages in them"
                " were acknowledged to nsqd and are lost"
            )
            if fail_on_data_loss:
                raise DataLossError(
                    self.folder.path, f"{text}. Restore the folder, or set failOnDataLoss=false")
            logger.warning("spool %s %s; going on, as failOnDataLoss=false says",
                           self.folder, text)
        return entries

    def path_of(self, number: int) -> str:
        """The path of a segment's file."""
        return self.folder.segment_path(self._segments[number][0])

    def _entries(self) -> list[Entry]:
        with self._changed:
            return [Entry(number, name.rows, size)
                    for number, (name, size) in self._segments.items()]

    # -- cleaning up

    def mark_committed(self, number: int) -> None:
        """Spark has committed everything up to ``number``; what it needed before may go.

        Segments live one batch longer than that: with asynchronous progress tracking Spark's
        own note of the last batch may not be on disk yet.

        Raises:
            SpoolError: the note cannot be written.
        """
        before = self._committed
        if number <= before:
            return
        self.folder.write_committed(number)
        with self._changed:
            self._committed = number
        self._count()
        with self._appending:
            self._known.settle(self._clock() - self._settle_time)
            gone = to_delete(self._entries(), before, self._known.is_held)
            self._known.leave_segments(gone)
            if self._known.saved_grew:
                self.folder.write_unfinned(Unfinned(self._clean_to, self._known.take_saved()))
        with self._changed:
            names = [self._segments.pop(number)[0] for number in gone]
        self.folder.delete_segments(names)
        self._adopt_strays()

    def _count(self) -> None:
        with self._changed:
            open_ones = [(name.rows, size) for number, (name, size) in self._segments.items()
                         if number > self._committed]
            self._rows = sum(rows for rows, _ in open_ones)
            self._size = sum(size for _, size in open_ones)

    def _adopt_strays(self) -> None:
        """Append again what a writer of an earlier epoch has added too late."""
        listed = (name for name, _ in self.folder.segments())
        strays = sort_out(listed, self.folder.epochs()).strays
        for stray in strays:
            path = self.folder.segment_path(stray)
            parts = read_messages(path)
            logger.warning("spool %s: adopting segment %s of an earlier writer", self.folder, stray)
            claims = [Claim(nsqd, f"stray-{stray}", len(messages), [m[2] for m in messages])
                      for nsqd, messages in parts]
            with self._appending:
                copies = self._known.find_copies(claims) or [[] for _ in claims]
            fresh = []
            for (nsqd, messages), positions in zip(parts, copies):
                drop = set(positions)
                kept = [message for n, message in enumerate(messages) if n not in drop]
                if kept:
                    fresh.append((nsqd, kept))
            if fresh:
                tmp = self.folder.write_tmp(encode_segment(*self._names, fresh))
                with self._appending:
                    number = self._link(tmp, sum(len(messages) for _, messages in fresh))
                    for nsqd, messages in fresh:
                        self._known.doubt(nsqd, [message[2] for message in messages], number)
            self.folder.delete(str(stray))
