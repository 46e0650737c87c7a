"""``KnownIds``: the messages that are durable here and perhaps not finished at nsqd. Pure.

A FIN has no answer, so for a while after it was sent the message may still come again: the FIN
was refused, or lost with the connection. Such a copy must be recognised. Known ids, and when
they may be forgotten:

- *pending*: FIN was sent, or is about to be, on a connection that lives. nsqd lets no more than
  the connection's RDY be out, and takes commands in order; so of all messages that were received
  on the connection, only the last ``window`` can be unfinished. Older ones are *proven*, and so are
  those that are older than the time in which a dead connection is noticed.
- *doubtful*: the connection ended before that, FIN was refused, or a crash left no trace of it.
  The copy may come at any time; remembered until it has, and over restarts.
- *proven*: a copy is unlikely, and the id is not kept on disk. Yet there are two ways
  for one to come: during a stall of several message timeouts nsqd sends one window after another,
  and its refusal of the first FIN stands behind them; and an nsqd that was killed begins again
  where its own disk queue was last noted. So the last of them are remembered all the same.

An id is unique per nsqd and topic only, so everything is kept by nsqd address.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

#: Maximum number of doubtful ids of one nsqd. The oldest are forgotten first. 100 bytes each.
MOST_DOUBTFUL = 1_000_000
#: Ids that are proven and remembered. More than sockets can hold back of refusals, or nsqd reads
#: again after it was killed (2500 of each queue, by default).
MOST_PROVEN = 200_000
#: How far behind the last message of a connection a FIN may be, in windows of RDY.
_WINDOWS = 2
#: The segment number of ids that are only in the list of saved ids.
_SAVED = 0


class Claim(NamedTuple):
    """Messages of one connection that become durable together."""

    nsqd: str  #: address
    conn: Hashable  #: the connection
    window: int  #: the highest RDY that it may have
    ids: Sequence[bytes]


@dataclass(eq=False, slots=True)
class _Batch:
    """Ids that became durable together. Most ids have their batch as their value."""

    nsqd: str
    ids: Sequence[bytes]
    number: int  # the segment, or _SAVED
    since: float
    pending: bool
    proven: bool = False
    is_whole: bool = True  # no id has moved to another batch


class NewIds(NamedTuple):
    """Ids that are all new; a result of ``KnownIds.check``."""

    batches: list[tuple[Claim, _Batch]]
    by_nsqd: dict[str, dict[bytes, _Batch]]


class KnownIds:
    """Ids by nsqd. Not thread-safe: the caller holds a lock. ``now`` is any rising clock."""

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, _Batch]] = {}
        self._by_conn: dict[Hashable, deque[_Batch]] = {}  # pending, oldest first
        self._by_number: dict[int, list[_Batch]] = {}  # segment -> batches
        self._proven: deque[_Batch] = deque()  # oldest first
        self._proven_ids = 0  # in all of them
        #: Whether the list of ids that are in no segment has grown since ``take_saved``.
        self.saved_grew: bool = False

    def __len__(self) -> int:
        return sum(
            not batch.proven for known in self._known.values() for batch in known.values()
        )

    def check(self, claims: Iterable[Claim]) -> NewIds | None:
        """Collect the ids of claims; None if some are known or occur twice."""
        new = NewIds([], {})
        for claim in claims:
            batch = _Batch(claim.nsqd, claim.ids, _SAVED, 0.0, True)
            # Every message passes these steps, each of which is a loop in C.
            ids = dict.fromkeys(claim.ids, batch)
            known = self._known.get(claim.nsqd, {})
            if len(ids) < len(claim.ids) or not known.keys().isdisjoint(ids):
                return None
            others = new.by_nsqd.setdefault(claim.nsqd, ids)
            if others is not ids:
                total = len(others) + len(ids)
                others.update(ids)
                if len(others) < total:
                    return None
            new.batches.append((claim, batch))
        return new

    def find_copies(self, claims: Iterable[Claim]) -> list[list[int]]:
        """Positions in each claim of messages that are known or come twice."""
        copies: list[list[int]] = []
        seen: dict[str, set[bytes]] = {}
        for claim in claims:
            known = self._known.get(claim.nsqd, {})
            before = seen.setdefault(claim.nsqd, set())
            copies.append([])
            for position, message_id in enumerate(claim.ids):
                if message_id in known or message_id in before:
                    copies[-1].append(position)
                before.add(message_id)
        return copies

    def add(self, new: NewIds, number: int, now: float) -> None:
        """Messages became durable in segment ``number``, and FIN is about to be sent."""
        for nsqd, ids in new.by_nsqd.items():
            self._known.setdefault(nsqd, {}).update(ids)
        for claim, batch in new.batches:
            batch.number, batch.since = number, now
            self._by_number.setdefault(number, []).append(batch)
            self._wait_for_proof(claim, batch)

    def add_copies(self, claims: Iterable[Claim], now: float) -> None:
        """FIN is about to be sent for copies of known messages; it may be lost as well."""
        for claim in claims:
            known = self._known.setdefault(claim.nsqd, {})
            by_number: dict[int, list[bytes]] = {}
            for message_id in claim.ids:
                first = known.get(message_id)
                number = _SAVED
                if first is not None:
                    number, first.is_whole = first.number, False
                if number == _SAVED and (first is None or first.proven):
                    self.saved_grew = True  # its segment is gone, and no list has it
                by_number.setdefault(number, []).append(message_id)
            for number, ids in by_number.items():
                batch = self._insert(_Batch(claim.nsqd, ids, number, now, True))
                self._wait_for_proof(claim, batch)

    def _wait_for_proof(self, claim: Claim, batch: _Batch) -> None:
        pending = self._by_conn.setdefault(claim.conn, deque())
        pending.append(batch)
        self._prove_older(pending, claim.window * _WINDOWS)

    def _insert(self, batch: _Batch) -> _Batch:
        self._known.setdefault(batch.nsqd, {}).update(dict.fromkeys(batch.ids, batch))
        if batch.number != _SAVED:
            self._by_number.setdefault(batch.number, []).append(batch)
        return batch

    def _prove_older(self, pending: deque[_Batch], window: int) -> None:
        total = sum(len(batch.ids) for batch in pending)
        while pending and total - len(pending[0].ids) >= window:
            batch = pending.popleft()
            total -= len(batch.ids)
            self._prove(batch)

    def _prove(self, batch: _Batch) -> None:
        batch.pending = False
        batch.proven = True
        self._proven.append(batch)
        self._proven_ids += len(batch.ids)
        while self._proven_ids > MOST_PROVEN:
            oldest = self._proven.popleft()
            self._proven_ids -= len(oldest.ids)
            self._forget(oldest)

    def _forget(self, batch: _Batch) -> None:
        known = self._known[batch.nsqd]
        if batch.is_whole:
            deque(map(known.pop, batch.ids, repeat(None)), maxlen=0)  # a loop in C
        else:
            for message_id in batch.ids:
                if known.get(message_id) is batch:
                    del known[message_id]
        batch.ids = ()  # its segment may stay for long, and the batch with it

    def settle(self, before: float) -> None:
        """FINs that were sent before that moment, on connections that still live, are proven."""
        for pending in self._by_conn.values():
            while pending and pending[0].since < before:
                self._prove(pending.popleft())

    def closed(self, conn: Hashable, clean: bool) -> None:
        """A connection ended. ``clean``: after nsqd's CLOSE_WAIT, which proves every FIN before.

        May be called again.
        """
        for batch in self._by_conn.pop(conn, ()):
            batch.pending = False
            if clean:
                self._prove(batch)
            elif batch.number == _SAVED:
                self.saved_grew = True

    def doubt(self, nsqd: str, ids: Sequence[bytes], number: int = _SAVED) -> None:
        """FIN was rejected, or perhaps not sent; ``number``: the segment, if any."""
        known = self._known.setdefault(nsqd, {})
        fresh = [message_id for message_id in ids if message_id not in known or number == _SAVED]
        batches: dict[int, list[bytes]] = {}
        for message_id in fresh:
            old = known.get(message_id)
            if old is not None:
                old.is_whole = False
            batches.setdefault(number if old is None else old.number, []).append(message_id)
        for segment, members in batches.items():
            self._insert(_Batch(nsqd, members, segment, 0.0, False))
            self.saved_grew = self.saved_grew or segment == _SAVED

    def remember(self, nsqd: str, ids: Sequence[bytes]) -> None:
        """Add ids that an earlier run finished. Copies are unlikely, but would be recognised."""
        known = self._known.get(nsqd, {})
        fresh = [message_id for message_id in ids if message_id not in known]
        self._prove(self._insert(_Batch(nsqd, fresh, _SAVED, 0.0, False)))

    def is_held(self, number: int) -> bool:
        """True if FINs of this segment are not proven, but soon will be."""
        return any(batch.pending for batch in self._by_number.get(number, ()))

    def leave_segments(self, numbers: Iterable[int]) -> None:
        """Prepare the deletion of segments. Before it, save the ids that ``take_saved`` returns."""
        for number in numbers:
            for batch in self._by_number.pop(number, ()):
                batch.number = _SAVED
                known = self._known[batch.nsqd]
                if not batch.proven and any(
                    known.get(message_id) is batch for message_id in batch.ids
                ):
                    self.saved_grew = True

    def take_saved(self) -> dict[str, list[bytes]]:
        """The ids that are in no segment, by nsqd, oldest first; to be kept in a list."""
        self.saved_grew = False
        saved = {}
        for nsqd, known in self._known.items():
            ids = [key for key, batch in known.items()
                   if batch.number == _SAVED and not batch.proven]
            for message_id in ids[:-MOST_DOUBTFUL]:
                del known[message_id]
            if ids:
                saved[nsqd] = ids[-MOST_DOUBTFUL:]
        return saved

    def load(self, saved: Mapping[str, Sequence[bytes]]) -> None:
        """Take in a list that ``take_saved`` gave in an earlier run."""
        for nsqd, ids in saved.items():
            self.doubt(nsqd, ids)
        self.saved_grew = False
