"""``KnownIds``: the ids of stored messages that nsqd may deliver again. Pure.

nsqd does not answer a FIN. If the FIN was refused, or lost with its connection, nsqd delivers the
message again, and the ingest must recognise this copy. A known id is in one of three states:

- *pending*: FIN was sent, or will be now, on an open connection. nsqd processes commands in order,
  and has at most RDY messages of the connection in flight. So only the last ``window`` messages of
  a connection can be unfinished. Older messages become proven. So do messages that are older than
  the time after which a dead connection is noticed.
- *doubtful*: the connection ended too early, FIN was refused, or nothing is known after a crash. A
  copy may come at any time, so the id is remembered, also over restarts.
- *proven*: the message is finished, and the id is not kept on disk. A copy can still come in two
  cases: after a stall of several message timeouts, when nsqd has sent more windows before its
  refusal of the first FIN is read; and after nsqd was killed, because it then continues at the last
  position in its disk queue that it has saved. So the newest proven ids are kept in memory.

Ids are unique only within one nsqd and topic, so they are kept for each nsqd.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

#: Maximum number of doubtful ids of one nsqd, of 100 bytes each. The oldest are forgotten first.
MOST_DOUBTFUL = 1_000_000
#: Maximum number of proven ids. More than the refusals that fit into the buffers of sockets, and
#: than the messages that nsqd repeats after it was killed (by default 2500 of each queue).
MOST_PROVEN = 200_000
#: Windows of RDY after which a FIN is proven. Twice the necessary one.
_WINDOWS = 2
#: The segment number of ids that are only in the saved list.
_SAVED = 0


class Claim(NamedTuple):
    """Messages of one connection that are stored together."""

    nsqd: str  #: address
    conn: Hashable  #: the connection
    window: int  #: the highest RDY that it may have
    ids: Sequence[bytes]


@dataclass(eq=False, slots=True)
class _Batch:
    """Ids that were stored together."""

    nsqd: str
    ids: Sequence[bytes]
    number: int  # the segment, or _SAVED
    since: float
    pending: bool
    proven: bool = False
    is_whole: bool = True  # False once an id has moved to another batch


class NewIds(NamedTuple):
    """New ids, the result of ``KnownIds.check``."""

    batches: list[tuple[Claim, _Batch]]
    by_nsqd: dict[str, dict[bytes, _Batch]]


class KnownIds:
    """The known ids. Not thread-safe. ``now`` is the time of a monotonic clock."""

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, _Batch]] = {}
        self._by_conn: dict[Hashable, deque[_Batch]] = {}  # pending, oldest first
        self._by_number: dict[int, list[_Batch]] = {}  # segment -> batches
        self._proven: deque[_Batch] = deque()  # oldest first
        self._proven_ids = 0  # in all of them
        #: True if the list of ids without a segment has grown since ``take_saved``.
        self.saved_grew: bool = False

    def __len__(self) -> int:
        return sum(
            not batch.proven for known in self._known.values() for batch in known.values()
        )

    def check(self, claims: Iterable[Claim]) -> NewIds | None:
        """Collect the ids of claims; None if one of them is known, or occurs twice."""
        new = NewIds([], {})
        for claim in claims:
            batch = _Batch(claim.nsqd, claim.ids, _SAVED, 0.0, True)
            # Every message passes here, so each step is a loop in C.
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
        """Return the positions, in each claim, of ids that are known or occur before."""
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
        """Record messages that were stored in segment ``number``, before FIN is sent."""
        for nsqd, ids in new.by_nsqd.items():
            self._known.setdefault(nsqd, {}).update(ids)
        for claim, batch in new.batches:
            batch.number, batch.since = number, now
            self._by_number.setdefault(number, []).append(batch)
            self._wait_for_proof(claim, batch)

    def add_copies(self, claims: Iterable[Claim], now: float) -> None:
        """Record copies of known messages before FIN is sent, which may be lost again."""
        for claim in claims:
            known = self._known.setdefault(claim.nsqd, {})
            by_number: dict[int, list[bytes]] = {}
            for message_id in claim.ids:
                first = known.get(message_id)
                number = _SAVED
                if first is not None:
                    number, first.is_whole = first.number, False
                if number == _SAVED and (first is None or first.proven):
                    self.saved_grew = True  # neither a segment nor the saved list has it
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
        batch.ids = ()  # free the ids: the batch stays as long as its segment

    def settle(self, before: float) -> None:
        """Prove all FINs that were sent before this time on connections that are still open."""
        for pending in self._by_conn.values():
            while pending and pending[0].since < before:
                self._prove(pending.popleft())

    def closed(self, conn: Hashable, clean: bool) -> None:
        """Record the end of a connection. Idempotent.

        Args:
            clean: nsqd has sent CLOSE_WAIT, which proves every FIN before it.
        """
        for batch in self._by_conn.pop(conn, ()):
            batch.pending = False
            if clean:
                self._prove(batch)
            elif batch.number == _SAVED:
                self.saved_grew = True

    def doubt(self, nsqd: str, ids: Sequence[bytes], number: int = _SAVED) -> None:
        """Record ids whose FIN was refused or may not have been sent; ``number``: their segment."""
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
        """Add proven ids of an earlier run."""
        known = self._known.get(nsqd, {})
        fresh = [message_id for message_id in ids if message_id not in known]
        self._prove(self._insert(_Batch(nsqd, fresh, _SAVED, 0.0, False)))

    def is_held(self, number: int) -> bool:
        """True if the segment has pending ids, which will soon be proven or doubtful."""
        return any(batch.pending for batch in self._by_number.get(number, ()))

    def leave_segments(self, numbers: Iterable[int]) -> None:
        """Prepare to delete segments. Save the result of ``take_saved`` before deleting them."""
        for number in numbers:
            for batch in self._by_number.pop(number, ()):
                batch.number = _SAVED
                known = self._known[batch.nsqd]
                if not batch.proven and any(
                    known.get(message_id) is batch for message_id in batch.ids
                ):
                    self.saved_grew = True

    def take_saved(self) -> dict[str, list[bytes]]:
        """Return the unproven ids without a segment, to be stored: nsqd -> ids, oldest first."""
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
        """Load the result of ``take_saved`` in an earlier run."""
        for nsqd, ids in saved.items():
            self.doubt(nsqd, ids)
        self.saved_grew = False
