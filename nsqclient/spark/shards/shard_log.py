"""``ShardLog``: writes the log of one shard. It is the sink of an ingest.

Several writers may write one log; no message is lost or stored twice. A writer stores a segment in
this order:

1. It creates the object under the next key. The storage lets only one writer create a key.
2. It checks the floor: the segment is *void* if segments with its number were deleted before. A
   writer that was suspended can create a void segment, and nobody reads it. The floor is always
   written before the segments below it are deleted, so one check after the create is enough.
3. It sends FIN.

A writer that loses in step 1 reads the ids of all segments of other writers before it tries the
next key. So every writer knows all ids in the segments before its own.
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
from nsqclient.spark.known_ids import MOST_PROVEN, Claim, KnownIds
from nsqclient.spark.segment import Rows, check_segment, encode_segment, read_ids
from nsqclient.spark.shards.listing import (
    delete_committed, list_segments, newest_note, newest_number, read_segment,
)
from nsqclient.spark.shards.names import NoteKey, Segment, ShardKeys, parse_note
from nsqclient.spark.storage import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Maximum attempts of a recovery, which fails if objects are deleted while it reads them.
_RECOVERIES = 10
#: Concurrent requests while a new writer reads segments.
_READERS = 8
#: New segments after which another note is due. A new writer reads all segments after a note.
SEGMENTS_PER_NOTE = 16


class End(NamedTuple):
    """The end of a log, from which the key of the next segment follows."""

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
    """Writes the log of one shard. Threads: any, once it is open.

    Args:
        settle_time: seconds after which nsqd has certainly read a FIN, if the connection is open.
    """

    def __init__(
        self, store: Store, keys: ShardKeys, settle_time: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: The name of this writer. Each segment contains it, so writers never store equal bytes.
        self.writer: str = uuid.uuid4().hex
        #: The process, such as ``node7, process 4121``.
        self.owner: str = f"{socket.gethostname()}, process {os.getpid()}"
        self._store = store
        self._keys = keys
        self._settle_time = settle_time
        self._clock = clock
        self._appending = threading.Lock()  # held over a create; taken before _changed
        self._known = KnownIds()  # guarded by _appending
        #: The end of the log as far as this writer has read it. Guarded by _appending.
        self.end: End = End()
        self._is_lost = True  # the end is unknown: recover first. Guarded by _appending
        self._note = NoteKey(0, 0)  # the newest note. Guarded by _appending
        self._must_note = False  # a note was not stored. Guarded by _appending
        self._needed = 0  # bytes of the last segment. Guarded by _appending
        self._changed = threading.Lock()
        # Guarded by _changed, all below.
        self._waiting: deque[_Waiting] = deque()
        self._sums = (0, 0)  # rows and bytes in _waiting
        self.committed: int = 0  #: the last segment that Spark is known to have committed
        #: Why the last segment could not be stored; None if it was stored.
        self.full_error: StorageError | None = None
        #: When the newest segment was stored, in seconds since 1970; 0: never.
        self.written: float = 0.0
        self.redelivered: int = 0  #: messages received with attempts above 1
        #: Copies of stored messages; they are finished, and not stored again.
        self.copies_dropped: int = 0
        self.lost_creates: int = 0  #: segments that another writer created first

    def __str__(self) -> str:
        return f"{self._store.url}/{self._keys.folder}"

    # -- lifecycle

    def open(self) -> None:
        """Register the shard, and read the segments of earlier writers."""
        self.register()
        with self._appending:
            self._recover()
        self.look_for_commits()

    def register(self) -> None:
        self._store.create(self._keys.shard, b"")

    def unregister(self) -> None:
        """Remove the shard from the registry. Spark reads it to its end."""
        self._store.delete([self._keys.shard])

    def close(self) -> None:
        """Write a last note. Close the connections before, so that their FINs are proven."""
        try:
            self.write_note(at_least=1)
        except StorageError as exc:
            # The next writer reads the ids from the segments instead, as after a crash.
            logger.warning("%s", exc)

    def _recover(self) -> None:
        """Find the end of the log and the messages that nsqd may redeliver. Needs _appending."""
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
        floor = self._floor()  # after the listing, so that it covers segments deleted meanwhile
        segments = [one for one in listed if one.number > floor]
        plan = plan_recovery(segments, note.clean_to, MOST_PROVEN)
        if plan is None:
            return False
        last = segments[-1] if segments else None
        end = End()
        # The oldest proven ids first, because the first are forgotten first.
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
        """Store messages as the next segment, unless some of them are stored already.

        Args:
            copies: messages that an earlier call has found to be stored; only FIN is due for them.

        Returns:
            None if FIN may be sent for ``claims`` and ``copies``. Otherwise nothing was stored, and
            the result has the positions, in each claim, of the messages that are stored already:
            call again without them, and with them as ``copies``.

        After a StorageError the segment may exist or not: send no FIN.
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
        """Create the next segment, or return the positions of copies. Needs _appending."""
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
        """Keep some space free for notes: committed segments can be deleted only after a note."""
        self._needed = size
        missing = self._store.missing_space(size)
        if missing:
            raise StorageFullError(self._store.url, "no space left for a segment", missing)

    def _floor(self, number: int = 1) -> int:
        """The newest floor: segments up to it are deleted. 0 if it is below ``number``."""
        return newest_number(self._store, self._keys.of("floors"), self._keys.floor(number - 1))

    def _catch_up(self) -> None:
        """Read the segments that other writers have added. Needs _appending.

        Their keys follow from the known segments. A listing could be outdated on a network file
        system.
        """
        is_first = True
        while True:
            number = self.end.number + 1
            key = self._keys.segment(number, self.end.rows)
            try:
                data = self._store.read(key)
            except ObjectNotFoundError:
                # If even the winner's segment is deleted, this writer is far behind.
                self._is_lost = self._is_lost or is_first
                return
            content = read_ids(check_segment(self._store.url, key, data))
            for nsqd, ids in content.ids.items():
                self._known.doubt(nsqd, ids, number)
            self.end = self.end.next(content.rows)
            self._add_waiting(number, content.rows, len(data))
            is_first = False

    def report_full(self, error: StorageError) -> None:
        """Record that a segment could not be stored. The owner pauses the flow, and retries."""
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
        """Record that nsqd refused FIN for a stored message, so it will send a copy."""
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
        """When the oldest uncommitted row was stored, in seconds since 1970; 0 if none."""
        with self._changed:
            return self._waiting[0].stored if self._waiting else 0.0

    def retry(self) -> None:
        """Resume after a failure of the storage, unless its disk is still full.

        To free a full disk, this deletes committed segments before their retention is over.
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

        Each deletion needs a note of the messages that nsqd may redeliver. Most of them are in the
        newest segments, and the note must fit on the disk too.
        """
        committed = [segment for segment in list_segments(self._store, self._keys)
                     if segment.number <= self.committed]
        # missing_space is 0 if a quota is exhausted but the disk has space.
        wanted = max(self._needed, self._store.missing_space(self._needed),
                     sum(segment.size for segment in committed) // 2)
        gone: list[int] = []
        for segment in committed:
            if wanted <= 0:
                break
            gone.append(segment.number)
            wanted -= segment.size
        # Few segments first: their note is small, and deleting them makes room for the next note.
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
        """Store the ids of messages that may be unfinished at nsqd; delete older notes.

        Args:
            at_least: do nothing if the note would cover fewer new segments, and no other ids.
            up_to: cover the segments up to this one, even if their FINs are not proven.

        Returns: True if a note was written. A call that failed is repeated by the next call.
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
                return False  # no segment is covered
            self._known.leave_segments(range(self._note.clean_to + 1, clean_to + 1))
            ids = self._known.take_saved()
            serial = self._note.serial + 1 if clean_to == self._note.clean_to else 1
            self._note = NoteKey(clean_to, serial)
            self._must_note = True
            note = self._note
        data = encode_note(self.writer, ids)
        while not self._store.create(self._keys.note(note), data):
            note = note._replace(serial=note.serial + 1)  # another writer has this one
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
# The numbers of segments have no gaps. The oldest segments are deleted first, the newest never. A
# note whose clean_to is n lists every message up to segment n that may be unfinished at nsqd. In
# later segments every message may be unfinished.

class RecoveryPlan(NamedTuple):
    doubtful: list[Segment]  #: segments of which any message may be redelivered
    #: Segments whose messages are finished, newest first. The last segment of all is in one of the
    #: two lists, because its rows must be counted.
    proven: list[Segment]


def plan_recovery(
    segments: Sequence[Segment], clean_to: int, most_rows: int
) -> RecoveryPlan | None:
    """Choose the segments that a writer reads when it starts, or does not know the end.

    Args:
        segments: all segments above the floor, in order.
        most_rows: limit on the rows of proven segments.

    Returns: the plan; None if the listings contradict each other, because objects were deleted
        between them.
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
        rows += 0 if end is None else end.before - segment.before  # unknown for the last segment
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
