"""``ShardLog``: the writer's side of a shard's log. The sink of an ingest.

The order of the steps matters. A segment is created under the one key that comes next, which the
storage grants once; then it is known that it is not void; only then may FIN be sent. A segment is
void if later segments have been written and deleted: a suspended writer may create it,
and nobody reads it. A floor is written before its segments are deleted, so a look after the create
is enough. A writer whose create loses reads the ids of every segment that it did not write before
it tries the next key. So whatever the number of writers, each of them knows all ids that are before
its own segment, and stores no message twice.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from nsqclient.display import show_size
from nsqclient.spark.errors import (
    DamagedSegmentError, ObjectNotFoundError, StorageError, StorageFullError,
)
from nsqclient.spark.ingest.known_ids import MOST_PROVEN, Claim, KnownIds
from nsqclient.spark.segment import Rows, check_segment, encode_segment, read_ids
from nsqclient.spark.shards.listing import (
    delete_committed, list_segments, newest_note, newest_number, read_segment,
)
from nsqclient.spark.shards.names import NoteKey, Segment, ShardKeys, parse_note
from nsqclient.spark.storage.store import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Times that a recovery begins again because objects were deleted while it read them.
_RECOVERIES = 10
#: Requests at once while a new writer reads segments.
_READERS = 8
#: Segments behind the newest note from which on another one is due: a new writer reads them all.
SEGMENTS_PER_NOTE = 16


class End(NamedTuple):
    """The end of a log: the next segment's key follows from it."""

    number: int = 0  #: number of the last segment
    rows: int = 0  #: rows in all segments

    def next(self, rows: int) -> End:
        return End(self.number + 1, self.rows + rows)


class _Waiting(NamedTuple):
    number: int
    rows: int
    size: int  #: bytes
    stored: float  #: seconds since 1970


class ShardLog:
    """Writes the log of one shard.

    ``settle_time``: seconds after which nsqd has surely read a FIN on a connection that lives.
    Threads: any, once it is open.
    """

    def __init__(
        self, store: Store, keys: ShardKeys, settle_time: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: The name of this writer. It is in each segment: no two writers have the same bytes.
        self.writer: str = uuid.uuid4().hex
        #: The process, such as ``node7, process 4121``.
        self.owner: str = f"{socket.gethostname()}, process {os.getpid()}"
        self._store = store
        self._keys = keys
        self._settle_time = settle_time
        self._clock = clock
        self._appending = threading.Lock()  # held over a create; taken before _changed
        self._known = KnownIds()  # guarded by _appending
        #: The end of the log, as this writer knows it. Guarded by _appending.
        self.end: End = End()
        self._is_lost = True  # the end is unknown: recover first. Guarded by _appending
        #: The newest note, and whether there is news for the next one.
        self._note = NoteKey(0, 0)  # guarded by _appending
        self._must_note = False  # guarded by _appending
        self._needed = 0  # bytes of the last segment. Guarded by _appending
        self._changed = threading.Lock()
        # Guarded by _changed, all below.
        self._waiting: deque[_Waiting] = deque()
        self._sums = (0, 0)  # rows and bytes of these
        self.committed: int = 0  #: the last segment that Spark has committed, as is known here
        #: Why the storage did not take the last segment; None: it did.
        self.full_error: StorageError | None = None
        #: When the newest segment was stored, in seconds since 1970; 0: never.
        self.written: float = 0.0
        self.redelivered: int = 0  #: messages that came with attempts over 1
        #: Copies of durable messages that were finished and not stored.
        self.copies_dropped: int = 0
        self.lost_creates: int = 0  #: segments that another writer created first

    def __str__(self) -> str:
        return f"{self._store.url}/{self._keys.folder}"

    # -- lifecycle

    def open(self) -> None:
        """Register the shard, and read the segments of other writers."""
        self.register()
        with self._appending:
            self._recover()
        self.look_for_commits()

    def register(self) -> None:
        self._store.create(self._keys.shard, b"")

    def unregister(self) -> None:
        """Unregister the shard: it ends when Spark has read it."""
        self._store.delete([self._keys.shard])

    def close(self) -> None:
        """Note the messages that are surely finished at nsqd. Connections must be closed before."""
        try:
            self.write_note(at_least=1)
        except StorageError as exc:
            # Then the next writer reads the ids from the segments, as after a crash.
            logger.warning("%s", exc)

    def _recover(self) -> None:
        """Find the end of the log, and the messages that may come again. Needs _appending."""
        for _ in range(_RECOVERIES):
            try:
                if self._try_to_recover():
                    return
            except ObjectNotFoundError as exc:
                logger.debug("%s: deleted meanwhile: %s", self, exc)
        raise StorageError(
            self._store.url, f"{self._keys.folder} has a gap: segments, or the newest note, are"
            " not there. Restore them; if that cannot be, begin in an empty folder")

    def _try_to_recover(self) -> bool:
        store, keys = self._store, self._keys
        note = newest_note(store, keys)
        known = KnownIds()
        if note.serial:
            key = keys.note(note)
            known.load(decode_note(store.url, key, store.read(key)))
        listed = list_segments(store, keys)
        floor = self._floor()  # after the listing: nothing behind it was deleted before
        segments = [one for one in listed if one.number > floor]
        plan = plan_recovery(segments, note.clean_to, MOST_PROVEN)
        if plan is None:
            return False
        last = segments[-1] if segments else None
        end = End()
        # The oldest of the proven ones first: they are the first that are forgotten.
        needed = [*reversed(plan.proven), *plan.doubtful]
        with ThreadPoolExecutor(_READERS, "nsq-storage") as pool:
            contents = pool.map(lambda one: read_segment(store, keys, one), needed)
            for segment, content in zip(needed, contents):
                for nsqd, ids in content.ids.items():
                    if segment.number > note.clean_to:
                        known.doubt(nsqd, ids, segment.number)
                    else:
                        known.remember(nsqd, ids)
                if segment == last:
                    end = End(segment.number, segment.before + content.rows)
        self._known, self.end, self._note, self._is_lost = known, end, note, False
        self._set_waiting(segments, end)
        return True

    # -- writing: the sink of an ingest

    def append(
        self, parts: Sequence[tuple[str, Rows]], claims: Sequence[Claim],
        copies: Sequence[Claim] = (),
    ) -> list[list[int]] | None:
        """Make messages the next segment, unless some of them are known.

        When this returns None, FIN may be sent for ``claims`` and ``copies``. When it returns
        positions in each claim instead, nothing was stored: leave these messages out, and hand them
        over as ``copies``. After a StorageError it may be stored or not: send no FIN.
        """
        keys, rows = self._keys, sum(len(one) for _, one in parts)
        data = bytearray()
        if rows:
            data = encode_segment(keys.topic, keys.channel, parts, self.writer, self.owner)
        with self._appending:
            found = self._append(data, rows, claims)
            if found is not None:
                return found
            if copies:
                self._known.add_copies(copies, self._clock())
        with self._changed:
            self.copies_dropped += sum(len(claim.ids) for claim in copies)
        return None

    def _append(
        self, data: bytearray, rows: int, claims: Sequence[Claim]
    ) -> list[list[int]] | None:
        """Create the next segment; or return the positions of copies. Needs _appending."""
        while True:
            if self._is_lost:
                self._recover()
            new = self._known.check(claims)
            if new is None:
                return self._known.find_copies(claims)
            if not rows:
                return None
            number = self.end.number + 1
            key = self._keys.segment(number, self.end.rows)
            self._check_space(len(data))
            if not self._store.create(key, data):
                with self._changed:
                    self.lost_creates += 1
                self._catch_up()
            elif self._floor(number) >= number:  # void
                logger.warning("%s: segment %d was written by another owner and is deleted:"
                               " reading the current log", self, number)
                self._is_lost = True
                self._store.delete([key])
            else:
                self.end = self.end.next(rows)
                self._known.add(new, number, self._clock())
                self._add_waiting(number, rows, len(data))
                return None

    def _check_space(self, size: int) -> None:
        """Leave space for notes, without which nothing that is committed can be deleted."""
        self._needed = size
        missing = self._store.missing_space(size)
        if missing:
            raise StorageFullError(self._store.url, "no space left for a segment", missing)

    def _floor(self, number: int = 1) -> int:
        """The last segment that is deleted, or about to be; 0: none from ``number`` on."""
        return newest_number(self._store, self._keys.of("floors"), self._keys.floor(number - 1))

    def _catch_up(self) -> None:
        """Read the segments that others have written. Needs _appending.

        Their keys follow from the known segments, so this needs no listing, which may be outdated
        on a network file system.
        """
        is_first = True
        while True:
            number = self.end.number + 1
            key = self._keys.segment(number, self.end.rows)
            try:
                data = self._store.read(key)
            except ObjectNotFoundError:
                # The winner's segment is deleted already: much has happened.
                self._is_lost = self._is_lost or is_first
                return
            content = read_ids(check_segment(self._store.url, key, data))
            for nsqd, ids in content.ids.items():
                self._known.doubt(nsqd, ids, number)
            self.end = self.end.next(content.rows)
            self._add_waiting(number, content.rows, len(data))
            is_first = False

    def report_full(self, error: StorageError) -> None:
        """A segment could not be stored. The owner pauses the flow, and tries again."""
        with self._changed:
            is_new = self.full_error is None
            self.full_error = error
        if is_new:
            missing = ""
            if isinstance(error, StorageFullError):
                missing = f" ({show_size(error.missing)} more are needed)"
            logger.warning("%s: %s%s; nothing of it is acknowledged to nsqd, and reading from its"
                           " nsqd is paused until that works", self, error.reason, missing)

    def count_redelivered(self, number: int) -> None:
        with self._changed:
            self.redelivered += number

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """nsqd refused FIN for a durable message: it will send a copy."""
        with self._appending:
            self._known.doubt(nsqd, [message_id])

    def conn_closed(self, conn: Hashable, clean: bool) -> None:
        with self._appending:
            self._known.closed(conn, clean)

    # -- uncommitted segments

    @property
    def waiting(self) -> tuple[int, int]:
        with self._changed:
            return self._sums

    @property
    def oldest(self) -> float:
        """When the oldest uncommitted row was stored, in seconds since 1970; 0: there is none."""
        with self._changed:
            return self._waiting[0].stored if self._waiting else 0.0

    def retry(self) -> None:
        """Try whether the storage takes segments again after a failure.

        A disk that is full is given space first: what Spark has committed is deleted, though its
        retention is not over.
        """
        error = self.full_error
        if error is None:
            return
        self.look_for_commits()
        if isinstance(error, StorageFullError):
            self._make_space()
            if self._store.missing_space(self._needed):
                return
        with self._changed:
            self.full_error = None
        logger.info("%s: the storage takes segments again; reading from nsqd continues", self)

    def _make_space(self) -> None:
        """Delete the older half of the committed segments, or more if necessary.

        Not all: a note lists the messages of these that may be unfinished, mostly in
        the newest segments, and has to fit on the disk, too.
        """
        committed = [segment for segment in list_segments(self._store, self._keys)
                     if segment.number <= self.committed]
        # Missing space is 0 if a quota is exhausted but the disk has space.
        wanted = max(self._needed, self._store.missing_space(self._needed),
                     sum(segment.size for segment in committed) // 2)
        gone: list[int] = []
        for segment in committed:
            if wanted <= 0:
                break
            gone.append(segment.number)
            wanted -= segment.size
        # The oldest first: a note about few segments is small, and their deletion frees space.
        floor = size = step = 0
        while gone:
            step = 2 * step or 1
            last, gone = gone[:step][-1], gone[step:]
            try:
                self.write_note(1, up_to=last)
            except StorageFullError as exc:
                logger.debug("%s: %s", self, exc)  # an older note may be enough
            floor, freed = delete_committed(self._store, self._keys, self.committed, last)
            size += freed
        if size:
            logger.warning(
                "%s: the disk is full: committed segments up to %d (%s) were deleted before"
                " retentionMs was over, and cannot be replayed", self, floor, show_size(size))

    def look_for_commits(self) -> None:
        newest = newest_number(
            self._store, self._keys.of("commits"), self._keys.commit(self.committed))
        with self._changed:
            self.committed = max(self.committed, newest)
            self._drop_committed()

    def _add_waiting(self, number: int, rows: int, size: int) -> None:
        now = time.time()
        with self._changed:
            self.written = now
            self._waiting.append(_Waiting(number, rows, size, now))
            self._sums = (self._sums[0] + rows, self._sums[1] + size)
            self._drop_committed()

    def _set_waiting(self, segments: list[Segment], end: End) -> None:
        ends = [one.before for one in segments[1:]] + [end.rows]
        with self._changed:
            self._waiting = deque(
                _Waiting(one.number, rows - one.before, one.size, one.stored)
                for one, rows in zip(segments, ends))
            self.written = self._waiting[-1].stored if self._waiting else 0.0
            self._sums = (sum(one.rows for one in self._waiting),
                          sum(one.size for one in self._waiting))
            self._drop_committed()

    def _drop_committed(self) -> None:
        """Needs _changed."""
        while self._waiting and self._waiting[0].number <= self.committed:
            one = self._waiting.popleft()
            self._sums = (self._sums[0] - one.rows, self._sums[1] - one.size)

    # -- notes

    def write_note(self, at_least: int = SEGMENTS_PER_NOTE, up_to: int = 0) -> bool:
        """Write down which messages are perhaps not finished at nsqd; delete older notes.

        Args:
            at_least: new segments in it, unless it has other news.
            up_to: the last segment that it is about although FINs of its messages are not proven.

        Returns: whether there was something to note. A later call repeats one that has failed.
        """
        with self._appending:
            if self._is_lost:
                return False
            self._known.settle(self._clock() - self._settle_time)
            clean_to = self._note.clean_to
            while clean_to < self.end.number and (
                clean_to < up_to or not self._known.is_held(clean_to + 1)
            ):
                clean_to += 1
            if clean_to - self._note.clean_to < at_least and not (
                self._must_note or self._known.saved_grew
            ):
                return False
            if clean_to == 0:
                return False  # a note is about segments
            self._known.leave_segments(range(self._note.clean_to + 1, clean_to + 1))
            ids = self._known.take_saved()
            serial = self._note.serial + 1 if clean_to == self._note.clean_to else 1
            self._note = NoteKey(clean_to, serial)
            self._must_note = True
            note = self._note
        data = encode_note(self.writer, ids)
        while not self._store.create(self._keys.note(note), data):
            note = note._replace(serial=note.serial + 1)  # another writer's
        with self._appending:
            if self._note <= note:
                self._note = note
                self._must_note = False
        older = [found.key for found in self._store.list_objects(self._keys.of("notes"))
                 if (parse_note(found.key) or note) < note]
        self._store.delete(older)
        return True


# -- pure: the segments that a writer must read before it writes, and the content of notes
#
# The log of a shard is dense: segment n is followed by n + 1, and the oldest are deleted first,
# never the newest. A note that is clean_to a segment lists every message up to there that is
# perhaps not finished at nsqd; of segments behind it all messages may be.

class RecoveryPlan(NamedTuple):
    doubtful: list[Segment]  #: all of their messages may come again
    #: Segments of which copies are not to be expected, newest first. The last segment of all is
    #: among these or those, for its rows.
    proven: list[Segment]


def plan_recovery(
    segments: Sequence[Segment], clean_to: int, most_rows: int
) -> RecoveryPlan | None:
    """Plan the reading of a writer that starts, or has lost track.

    ``segments`` are all behind the floor, in order. Proven ones are read up to ``most_rows``.
    Returns None when the listings are of different moments.
    """
    if any(later.number != earlier.number + 1 or later.before < earlier.before
           for earlier, later in zip(segments, segments[1:])):
        return None
    first = segments[0].number if segments else 1
    last = segments[-1].number if segments else 0
    if first > clean_to + 1 or last < clean_to:
        return None
    doubtful = [segment for segment in segments if segment.number > clean_to]
    proven: list[Segment] = []
    rows = 0
    for segment, end in zip(reversed(segments), [None, *reversed(segments)]):
        if segment.number > clean_to:
            continue
        rows += 0 if end is None else end.before - segment.before  # the last one's are not known
        if rows > most_rows:
            break
        proven.append(segment)
    return RecoveryPlan(doubtful, proven)


def encode_note(writer: str, ids: Mapping[str, Iterable[bytes]]) -> bytes:
    return json.dumps({
        "v": 1, "writer": writer,
        "ids": {nsqd: [key.decode() for key in keys] for nsqd, keys in ids.items()},
    }).encode()


def decode_note(url: str, key: str, data: bytes) -> dict[str, list[bytes]]:
    try:
        found = json.loads(data)
        return {nsqd: [text.encode() for text in texts] for nsqd, texts in found["ids"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise DamagedSegmentError(url, f"note {key} is damaged ({exc!r})") from exc
