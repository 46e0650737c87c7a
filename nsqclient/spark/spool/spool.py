"""``Spool``: one numbering over everything that was written, and what is known of it.

The order of the steps matters: a segment is written under a temporary name, brought to disk,
linked under its number, the folder brought to disk; only then is the number given to Spark, and
only then may FIN be sent.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nsqclient.display import counted
from nsqclient.spark.errors import (
    DamagedSegmentError,
    DataLossError,
    SpoolError,
    SpoolFullError,
)
from nsqclient.spark.spool.folder import (
    CommitNote, SpoolFolder, TmpFile, UnfinishedMessages,
)
from nsqclient.spark.spool.known_ids import Claim, KnownIds
from nsqclient.spark.spool.names import SegmentName, parse_segment
from nsqclient.spark.spool.offsets import COMMITTED, Bound, find_start
from nsqclient.spark.spool.retention import Retention
from nsqclient.spark.spool.segment import (
    encode_segment, read_ids, read_messages, warn_of_loss,
)
from nsqclient.spark.spool.segment_index import Entry, SegmentIndex
from nsqclient.spark.spool.selection import (
    classify_segments, missing_numbers, next_number, ranges,
)

logger = logging.getLogger("nsqclient.spark")

#: Seconds for an earlier run to end and to release the lock.
LOCK_TIMEOUT = 15.0
#: Seconds between two searches for strays: each lists the whole folder.
_STRAY_INTERVAL = 60.0
#: Seconds after which Spark's own note of a batch is on disk, also with asynchronous progress
#: tracking (by default every second): on a full disk its segments are deleted then.
_NOTED_AFTER = 30.0
#: Segments that are deleted at once at most, beside twice as many as are new: many may expire
#: together, and Spark waits.
_DELETED_AT_ONCE = 200


class AppendResult(NamedTuple):
    """The result of an append: a number, or the positions of copies in each claim."""

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
        retention: how long segments are kept that Spark has committed; None: not at all.
    """

    def __init__(
        self,
        path: str,
        topic: str,
        channel: str,
        settle_time: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        retention: Retention | None = None,
    ) -> None:
        self.folder = SpoolFolder(path)
        self._names = (topic, channel)
        self._settle_time = settle_time
        self._clock = clock
        self._appending = threading.Lock()  # held over a link; taken before _changed
        self._known = KnownIds()  # guarded by _appending
        self._broken: SpoolError | None = None  # guarded by _appending
        #: The epoch to take: the disk was full at the start. 0: none. Guarded by _appending
        self._next_epoch = 0
        self._cleaning = threading.Lock()  # taken before _appending; guards the next two
        self._committed_at = 0.0
        self._must_note = False  # notes are not on disk yet
        self._started = ""  # where the query was to begin, until its first commit; by _cleaning
        self._changed = threading.Condition()
        # Guarded by _changed, all below; numbers rise.
        self._segments: dict[int, SegmentName] = {}
        self._index = SegmentIndex()  # of the same segments
        self._last = 0
        self._committed = 0
        self._unneeded = 0  # the last segment that Spark had committed before _committed
        self._released = 0  # the last segment that is kept for its retention only
        self._clean_to = 0
        self._retention = Retention() if retention is None else retention
        self._epoch = 0
        self._looked = 0.0  # when strays were looked for; by the caller of look_for_strays alone
        self._fail_on_data_loss = True
        self._skipped_strays: set[SegmentName] = set()  # damaged; as above
        self._earlier: set[str] = set()  # of valid segments of earlier epochs; as above
        self._full: SpoolFullError | None = None
        self._full_since = 0.0
        self._fitted = 0  # bytes of all segments when the disk was full, or more; 0: it never was
        #: Seconds after which Spark's own note of a commit is surely written.
        self.noted_after = _NOTED_AFTER
        self.redelivered = 0  #: messages that came with attempts over 1
        self.copies_dropped = 0  #: copies of durable messages that were finished and not stored

    # -- life

    def open(self, at_least: int = 0, fail_on_data_loss: bool = True,
             patience: float = LOCK_TIMEOUT, position: int | Bound = COMMITTED) -> None:
        """Take the folder over, and find out what is in it.

        Args:
            at_least: the highest number in Spark's checkpoint.
            patience: seconds to wait for the lock.
            position: what Spark has committed, by its checkpoint; where it has none, where the
                query is to begin.

        Raises:
            SpoolLockedError, SpoolMismatchError: it belongs to another query.
            DataLossError: it is not the folder that Spark's checkpoint belongs to, a segment
                that Spark needs is damaged, or the query cannot begin where it is to.
            SpoolError: it cannot be used.
        """
        self.folder.lock(patience)
        try:
            self._recover(at_least, fail_on_data_loss)
            if isinstance(position, Bound):
                self._begin(position)
            else:
                self._resume(position)
        except BaseException:
            self.folder.close()
            raise

    def _recover(self, at_least: int, fail_on_data_loss: bool) -> None:
        folder = self.folder
        self._fail_on_data_loss = fail_on_data_loss
        folder.check_meta(*self._names)
        folder.delete_all_tmp()
        found = folder.segments()
        epochs = folder.epochs()
        note = folder.read_committed()
        unfinished = folder.read_unfinished()
        clean_to = max(note.clean_to, unfinished.clean_to)
        first = next_number([name for name, _ in found], epochs, max(note.number, clean_to))
        if at_least >= first:
            text = (
                f"ends at number {first - 1}, but the checkpoint is at {at_least}: it was lost, or"
                " it is another query's. What was acknowledged to nsqd and not processed is lost"
            )
            if fail_on_data_loss:
                raise DataLossError(
                    folder.path, f"{text}. Restore the folder, or set failOnDataLoss=false")
            warn_of_loss(folder.path, text)
            first = at_least + 1
        epoch = max(epochs, default=0) + 1
        try:
            folder.begin_epoch(epoch, first)
            self._epoch = epoch
        except SpoolFullError as exc:
            # What is here can be read without; the first segment takes it.
            self._next_epoch = epoch
            self.report_full(exc)
        self._last = first - 1
        self._committed = note.number
        self._started = note.started
        self._committed_at = self._clock()
        self._retention.restart(note.number, self._committed_at)
        self._clean_to = clean_to
        self._released = min(clean_to, note.number)
        valid = classify_segments((name for name, _ in found), epochs).valid
        warn_of_unchecked(folder, valid)
        self._earlier = set(map(str, valid))
        sizes = dict(found)
        for name in valid:
            self._segments[name.number] = name
            self._index.add(Entry(name.number, name.rows, sizes[name]))
        with self._appending:
            self._known.load(unfinished.ids)
            for name in valid:
                if name.number > clean_to:
                    for nsqd, ids in self._read_ids(name).items():
                        self._known.doubt(nsqd, ids, name.number)
        self._adopt_strays()

    def _resume(self, position: int) -> None:
        """Go on where Spark's checkpoint is, which may be before what was committed."""
        if position < self._committed:
            logger.warning(
                "spool %s: Spark's checkpoint is at %d, and was at %d before: the last batches are"
                " read again, and rows may be missing in the sink", self.folder, position,
                self._committed)
        self._set_position(position, "")

    def _begin(self, start: Bound) -> None:
        """Begin a query without a checkpoint."""
        # Until its first commit it begins there again: Spark may have planned a batch, of which
        # its checkpoint has the end only.
        if start == COMMITTED or str(start) == self._started:
            return self._set_position(self._committed, self._started)
        seq, lost = find_start(
            start, self._index.numbers, self._last, self._committed,
            lambda number: self.folder.stored_at(self._segments[number]))
        if lost and self._fail_on_data_loss:
            raise DataLossError(self.folder.path, f"{lost}. Give another place to begin at, or set"
                                                  " failOnDataLoss=false for the nearest one")
        if lost:
            warn_of_loss(self.folder.path, lost)
        logger.info("spool %s: the query begins after segment %d (%s)", self.folder, seq, start)
        self._set_position(seq, str(start))
        try:
            self._write_notes()
            self._must_note = False
        except SpoolFullError as exc:
            self.report_full(exc)

    def _set_position(self, position: int, started: str) -> None:
        """Needs _cleaning, once the spool is open."""
        self._must_note = (position, started) != (self._committed, self._started)
        self._started = started
        self._committed_at = self._clock()
        with self._changed:
            # What Spark knows of it is on disk: nothing before it is asked for.
            self._committed = self._unneeded = position
            self._retention.restart(position, self._committed_at)

    def _read_ids(self, name: SegmentName) -> dict[str, list[bytes]]:
        try:
            return read_ids(self.folder.segment_path(name))
        except DamagedSegmentError as exc:
            if name.number <= self._committed:
                logger.warning("spool %s: segment %s is damaged; Spark has its messages, but"
                               " duplicates of them are not detected", self.folder, name)
            elif self._fail_on_data_loss:
                raise
            else:
                warn_of_loss(exc.folder, exc.damage)
            return {}
        except OSError as exc:
            raise SpoolError(self.folder.path, f"segment {name} cannot be read: {exc}") from exc

    def close(self) -> None:
        """Note what is surely finished at nsqd, and let the folder go. Idempotent.

        Connections must be closed before.
        """
        try:
            self._next_epoch = 0
            if self._epoch:
                with self._appending:
                    self._known.leave_segments(list(self._segments))
                    self.folder.write_unfinished(
                        UnfinishedMessages(self._last, self._known.take_saved()))
                self._epoch = 0
        except SpoolError as exc:
            # Then the next start reads the ids from the segments, as after a crash.
            logger.warning("%s", exc)
        finally:
            self.folder.close()

    # -- writing

    def write_tmp(self, data: Any) -> TmpFile:
        """Write a temporary file, to disk, for ``append``."""
        return self.folder.write_tmp(data)

    def append(
        self, tmp: TmpFile | None, rows: int, claims: Sequence[Claim],
        copies: Sequence[Claim] = (),
    ) -> AppendResult:
        """Make a written file the next segment, unless some of its messages are known.

        When this returns a number, FIN may be sent for ``claims`` and ``copies``. When it returns
        positions instead, the file was deleted: write it anew without these messages, and hand
        them over as ``copies``.

        Args:
            tmp: what ``write_tmp`` returned; None with 0 rows when there are only copies.

        Raises:
            SpoolFullError: it is not durable, send no FIN; later ones may be, see ``retry``.
            SpoolError: the same, and every later append fails as well.
        """
        with self._appending:
            if self._broken is not None:
                raise self._broken
            found = self._known.find_copies(claims)
            if found is not None:
                if tmp is not None:
                    self.folder.delete_tmp(tmp)
                return AppendResult(0, found)
            number = 0
            if tmp is not None:
                number = self._link(tmp, rows)
                self._known.add(claims, number, self._clock())
            if copies:
                self._known.add_copies(copies, self._clock())
            dropped = sum(len(claim.ids) for claim in copies)
        with self._changed:
            self.copies_dropped += dropped
        return AppendResult(number, None)

    def _link(self, tmp: TmpFile, rows: int) -> int:
        """Needs _appending."""
        if self._next_epoch:
            try:
                self.folder.begin_epoch(self._next_epoch, self._last + 1)
            except SpoolError as exc:
                self.folder.delete_tmp(tmp)
                if not isinstance(exc, SpoolFullError):
                    self._broken = exc
                raise
            self._epoch, self._next_epoch = self._next_epoch, 0
        name = SegmentName(self._last + 1, self._epoch, rows, tmp.checksum)
        try:
            self.folder.publish(tmp, name)
            size = self.folder.size(name)
        except SpoolFullError:
            raise
        except SpoolError as exc:
            # It may be there all the same, which only the next start finds out, so the number
            # must not be given again.
            self._broken = exc
            raise
        with self._changed:
            self._last = name.number
            self._segments[name.number] = name
            self._index.add(Entry(name.number, rows, size))
            if self._fitted:
                self._fitted = max(self._fitted, self._index.after(0)[1])
            self._changed.notify_all()
        return name.number

    # -- a full disk

    def report_full(self, error: SpoolFullError) -> None:
        """Something could not be stored for want of space; see ``retry``.

        The first to go are segments that are kept for their retention only.
        """
        try:
            if self._free_retained():
                return
        except SpoolError as exc:
            logger.warning("%s", exc)
        with self._changed:
            is_new = self._full is None
            if self._full is None or error.needed > self._full.needed:
                self._full = error
            self._fitted = max(self._fitted, self._index.after(0)[1])
            if is_new:
                self._full_since = self._clock()
        if is_new:
            logger.warning("%s; reading from nsqd is paused until there is space", error)

    def _free_retained(self) -> bool:
        """Delete what is kept for its retention only; False: there is nothing."""
        with self._changed:
            names = self._take_oldest(self._retained_to())
        self._delete_for_space(names)
        return bool(names)

    def _delete_for_space(self, names: Sequence[SegmentName]) -> None:
        if names:
            logger.warning("spool %s: the disk is full: deleting %s that could still be replayed",
                           self.folder, counted(len(names), "committed segment"))
            self.folder.delete_segments(names)

    def _free_committed(self) -> bool:
        """Delete what Spark has committed; False: there is nothing. Needs _cleaning.

        With asynchronous progress tracking the last commit stays until Spark has noted it.
        """
        # While no note of it is written, the name of the last segment is the only one.
        last = self._committed - 1 if self._must_note else self._committed
        if self._clock() - self._committed_at < self.noted_after:
            last = min(last, self._unneeded)
        self._release(last, lambda number: False)
        with contextlib.suppress(SpoolFullError):
            self._write_notes()  # first, where there is space for them: see _clean_up
        with self._changed:
            names = self._take_oldest(min(self._released, last))
        self._delete_for_space(names)
        return bool(names)

    @property
    def most_in_batch(self) -> int | None:
        """The most bytes of a batch, on a disk that was full; None: it never was.

        Half of what fits: then there is always a next batch, with which the one before may go.
        """
        return max(1, self._fitted // 2) if self._fitted else None

    @property
    def full_for(self) -> float:
        """Seconds since the disk is full; 0 where it is not."""
        with self._changed:
            return 0.0 if self._full is None else max(1e-3, self._clock() - self._full_since)

    @property
    def full_error(self) -> SpoolFullError | None:
        """What could not be stored; None where the disk is not full."""
        return self._full

    def retry(self) -> bool:
        """Try whether the disk takes what it could not; True when it is not full (any more).

        Raises:
            SpoolError: the spool cannot be used for another reason.
        """
        error = self._full
        if error is None:
            return True
        with self._cleaning:
            self._free_retained()
            if not self._clean_up():
                return False
        if not self._has_space(error.needed):
            with self._cleaning:
                if not self._free_committed() or not self._clean_up():
                    return False
            if not self._has_space(error.needed):
                return False
        with self._changed:
            self._full = None
        logger.info("spool %s: there is space again; reading from nsqd continues", self.folder)
        return True

    def _has_space(self, size: int) -> bool:
        try:
            self.folder.probe(size)
        except SpoolFullError:
            return False
        return True

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

    def unfinished(self) -> dict[str, list[bytes]]:
        """The messages that are durable and perhaps not finished at nsqd, by nsqd.

        For a spool that receives nothing: all that may come again are in it.
        """
        with self._appending:
            self._known.leave_segments(list(self._segments))
            return self._known.take_saved()

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
            return self._index.after(self._committed)

    def wait_for_more(self, number: int, timeout: float) -> bool:
        """Wait until there is a segment after ``number``; False when there is none in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._last > number, timeout)

    def wake(self) -> None:
        """Let ``wait_for_more`` look again: something else has happened."""
        with self._changed:
            self._changed.notify_all()

    def end_of_batch(self, start: int, max_rows: int | None, max_bytes: int | None) -> int:
        """The last segment of the batch after ``start``; see ``SegmentIndex``."""
        with self._changed:
            return self._index.end_of_batch(start, max_rows, max_bytes)

    def batch(self, start: int, end: int, fail_on_data_loss: bool = True) -> list[Entry]:
        """The segments in ``(start, end]``.

        Raises:
            DataLossError: some are gone.
        """
        with self._changed:
            entries = self._index.between(start, end)
        missing = missing_numbers((entry.number for entry in entries), start, end)
        if missing:
            text = (
                f"lacks segments {ranges(missing)} of batch ({start}, {end}]: the messages in them"
                " were acknowledged to nsqd and are lost"
            )
            if fail_on_data_loss:
                raise DataLossError(
                    self.folder.path, f"{text}. Restore the folder, or set failOnDataLoss=false")
            warn_of_loss(self.folder.path, text)
        return entries

    def path_of(self, number: int) -> str:
        """The path of a segment's file."""
        return self.folder.segment_path(self._segments[number])

    # -- cleaning up

    def mark_committed(self, number: int) -> None:
        """Spark has committed everything up to ``number``; what it needed before may go.

        Segments live one batch longer than that: with asynchronous progress tracking Spark's
        own note of the last batch may not be on disk yet. Then they are kept for their retention.
        Where Spark is before what was committed, its checkpoint has gone back, and counts.

        On a full disk the notes wait for space.

        Raises:
            SpoolError: a note cannot be written for another reason.
        """
        fresh = 0
        with self._cleaning:
            if number < self._committed:
                self._resume(number)
            elif number > self._committed:
                now = self._clock()
                with self._changed:
                    fresh = number - self._committed
                    self._unneeded, self._committed = self._committed, number
                    self._retention.committed(number, now)
                self._committed_at = now
                self._started = ""
                self._must_note = True
            if self._must_note:
                self._clean_up()
        self._delete_expired(_DELETED_AT_ONCE + 2 * fresh)

    def _clean_up(self) -> bool:
        """Release what Spark does not need, and write the notes; False: no space. Needs _cleaning.
        """
        try:
            self._release(self._unneeded, self._known.is_held)
            self._write_notes()
        except SpoolFullError as exc:
            # Deleting makes space for the notes. After a crash in between, a copy may come twice;
            # and the last segment stays, since its name is the only note of its number.
            self._delete_expired()
            self.report_full(exc)
            if self._full is not None:  # nothing more is kept for its retention only
                self._free_committed()
            try:
                self._write_notes()
            except SpoolFullError:
                return False
        self._must_note = False
        return True

    def _release(self, up_to: int, is_held: Callable[[int], bool]) -> None:
        """Let go of the ids of segments, which are kept for their retention only from now on."""
        with self._appending:
            self._known.settle(self._clock() - self._settle_time)
            with self._changed:
                before = self._released
                self._released = self._index.to_release(before, up_to, is_held)
                self._clean_to = max(self._clean_to, self._released)
                gone = [entry.number for entry in self._index.between(before, self._released)]
            self._known.leave_segments(gone)

    def _write_notes(self) -> None:
        # The list of ids first: the other note says up to where it is complete.
        with self._appending:
            if self._known.saved_grew:
                saved = UnfinishedMessages(self._clean_to, self._known.take_saved())
                try:
                    self.folder.write_unfinished(saved)
                except SpoolError:
                    self._known.saved_grew = True
                    raise
        self.folder.write_committed(CommitNote(self._committed, self._clean_to, self._started))

    def _delete_expired(self, most: int | None = None) -> None:
        """Delete segments whose retention is over, so many at most."""
        with self._changed:
            end = max(self._retention.expired(self._clock()),
                      self._index.last_beyond(self._committed, self._retention.most_bytes))
            names = self._take_oldest(min(end, self._retained_to()), most)
        self.folder.delete_segments(names)

    def _retained_to(self) -> int:
        """The last segment that is kept for its retention only. Needs _changed."""
        # Never the last that is committed: on a full disk its name may be the only note of it.
        return min(self._released, self._unneeded, self._committed - 1)

    def _take_oldest(self, up_to: int, most: int | None = None) -> list[SegmentName]:
        """Forget segments, which the caller deletes then. Needs _changed."""
        return [self._segments.pop(number) for number in self._index.take_oldest(up_to, most)]

    def look_for_strays(self) -> None:
        """Append again what a writer of an earlier epoch has added too late; once in a while.

        Threads: one calls it; it lists the whole folder, so Spark should not wait for it.

        Raises:
            DataLossError: such a segment is damaged.
            SpoolError: one cannot be read or stored.
        """
        if self._clock() - self._looked >= _STRAY_INTERVAL:
            self._adopt_strays()

    def _adopt_strays(self) -> None:
        self._looked = self._clock()
        # Tens of thousands of segments may be kept. This process alone writes under its epoch.
        mine = f"-{self._epoch:06d}-"
        others = [name for name in self.folder.names()
                  if mine not in name and name not in self._earlier]
        listed = [name for name in map(parse_segment, others) if name is not None]
        strays = classify_segments(listed, self.folder.epochs()).strays if listed else []
        for stray in strays:
            if stray in self._skipped_strays:
                continue
            try:
                self._adopt(stray)
            except SpoolFullError as exc:  # it stays, until they are looked for again
                return self.report_full(exc)

    def _adopt(self, stray: SegmentName) -> None:
        try:
            parts = read_messages(self.folder.segment_path(stray))
        except DamagedSegmentError as exc:
            if self._fail_on_data_loss:
                raise
            warn_of_loss(exc.folder, exc.damage)
            self._skipped_strays.add(stray)
            return
        except OSError as exc:
            raise SpoolError(
                self.folder.path, f"segment {stray} cannot be read: {exc}") from exc
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


def warn_of_unchecked(folder: SpoolFolder, segments: Sequence[SegmentName]) -> None:
    """Log a warning for a spool that has segments without a checksum."""
    unchecked = sum(segment.checksum is None for segment in segments)
    if unchecked:
        logger.warning("spool %s: %s of an earlier version, without a checksum: damage in them may"
                       " not be detected", folder, counted(unchecked, "segment"))
