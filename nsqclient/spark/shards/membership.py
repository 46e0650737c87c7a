"""``Membership``: divides shards among the owners of a topic and channel, by heartbeats.

Every owner (a process that owns shards: a *member*) creates an object on the storage again and
again, its heartbeat, whose key has a serial number and a digest of the nsqds that it can reach and
of its own shards. Every member lists these objects, and computes from them, by itself, which
shards are its own. So owners need no connection to each other, nor to a coordinator. This is advice
only: while two members have seen different things, a shard has two owners for a moment, or none,
and the log of the shard keeps them apart (see ``shard_log``).

Time is counted in looks of the member that looks, so that clocks need not agree, and a member that
was stopped finds no other one dead when it goes on. ``nsq-members`` is the only thread here.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nsqclient.spark.errors import ObjectNotFoundError, StorageError
from nsqclient.spark.shards.names import (
    MemberKey, ended_key, heartbeat_key, members, parse_heartbeat,
)
from nsqclient.spark.storage.store import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two heartbeats. A dead member is noticed after ``PROVEN_LOOKS`` of these.
INTERVAL = 3.0
#: Seconds for the last request at the end.
_JOIN = 5.0


class Membership:
    """One member: the nsqds that it can reach, and its shards. Threads: any."""

    def __init__(self, store: Store, topic: str, channel: str, job: str = "") -> None:
        self.name: str = uuid.uuid4().hex
        self._store = store
        self._names = (topic, channel)
        self._ended_key = ended_key(topic, channel, job) if job else ""
        self._members = Members()  # used only by the thread that looks
        #: Member -> digest, nsqds and shards of the others; used only by this thread.
        self._others: dict[str, tuple[str, list[str], list[str]]] = {}
        self._mine: list[str] = []  # keys of own heartbeats that may exist
        self._looking = threading.Lock()  # one look at a time
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._reachable: list[str] = []
        self._assigned: list[str] = []
        self._serial = 0
        #: Set when there may be other shards than at the last ``assigned()``.
        self.changed: threading.Event = threading.Event()
        self.is_over: bool = False  #: True if the job must end
        self._wake = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nsq-members", daemon=True)

    def join(self, nsqds: Iterable[str]) -> None:
        with self._lock:
            self._reachable = sorted(nsqds)
        self.look()
        self._thread.start()

    def announce(self, nsqds: Iterable[str]) -> None:
        """Set the nsqds that can be reached. The thread stores them immediately."""
        nsqds = sorted(nsqds)
        with self._lock:
            if nsqds == self._reachable:
                return
            self._reachable = nsqds
        self._wake.set()

    def assigned(self) -> list[str]:
        self.changed.clear()
        with self._lock:
            return list(self._assigned)

    def leave(self) -> None:
        """Leave: the other members take over at their next look. Idempotent."""
        self._end.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN)
            if self._thread.is_alive():
                logger.warning("owners: the thread nsq-members did not end in time")
                return
        with contextlib.suppress(StorageError):  # then the others notice later
            self._store.delete(self._mine)

    def look(self) -> None:
        with self._looking:
            with self._lock:
                reachable, held = self._reachable, self._assigned
                self._serial += 1
                key = MemberKey(self.name, self._serial, digest_of(reachable, held))
            self._mine.append(heartbeat_key(*self._names, key))
            self._store.create(self._mine[-1], json.dumps({
                "v": 1, "owner": f"{socket.gethostname()}, process {os.getpid()}",
                "nsqds": reachable, "owned": held}).encode())
            if len(self._mine) > 1:
                self._store.delete(self._mine[:-1])
                del self._mine[:-1]
            listed = [found.key for found in self._store.list_objects(members(*self._names))]
            found = [parsed for parsed in map(parse_heartbeat, listed) if parsed is not None]
            dead = self._members.look(other for other in found if other.member != self.name)
            self._read(self._members.alive)
            reached = {name: other[1] for name, other in self._others.items()}
            owned = {name: other[2] for name, other in self._others.items()}
            assigned = assign(
                {**reached, self.name: reachable}, {**owned, self.name: held})[self.name]
            with self._lock:
                is_new = assigned != self._assigned
                self._assigned = assigned
            if self._ended_key in listed:
                self.is_over = True
            if is_new or self.is_over:
                self.changed.set()
            for other in dict.fromkeys(other.member for other in dead):
                logger.info("owners: %s has ended: its shards are divided among the others", other)
            self._store.delete(heartbeat_key(*self._names, key) for key in dead)

    def _read(self, alive: list[MemberKey]) -> None:
        former, self._others = self._others, {}
        for key in alive:
            known = former.get(key.member, ("", [], []))
            if known[0] != key.digest:
                # If it was deleted meanwhile, the next look finds a newer one.
                with contextlib.suppress(ObjectNotFoundError):
                    said = json.loads(self._store.read(heartbeat_key(*self._names, key)))
                    known = key.digest, said["nsqds"], said["owned"]
            self._others[key.member] = known

    def _run(self) -> None:
        while True:
            self._wake.wait(INTERVAL)
            self._wake.clear()
            if self._end.is_set():
                break
            try:
                self.look()
            except StorageError as exc:
                # The shards that are owned stay so: which members live is not known.
                logger.warning("owners: %s; trying again", exc)
            except Exception:
                logger.exception("owners: a heartbeat failed; the owner continues")


# -- which members live, and which shards each of them has: pure, and alike in every member

#: Looks without a new heartbeat after which a member is dead: it had one in an earlier look.
PROVEN_LOOKS = 4
#: The same of a member that has not had a new one yet: a dead one of long ago, or a new one.
UNPROVEN_LOOKS = 2


class _Member(NamedTuple):
    key: MemberKey  #: key of its newest heartbeat
    is_proven: bool = False  #: True if it has sent a heartbeat since it was first seen
    silent: int = 0  #: looks since the newest one


class Members:
    """The members that live, as one of them sees it. Threads: one."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}

    def look(self, listed: Iterable[MemberKey]) -> list[MemberKey]:
        """Compare a listing with the last one; return the heartbeats that may be deleted."""
        listed = list(listed)
        newest: dict[str, MemberKey] = {}
        for key in listed:
            if key.member not in newest or key.serial > newest[key.member].serial:
                newest[key.member] = key
        former, self._members = self._members, {}
        dead = []
        for name, key in newest.items():
            known = former.get(name)
            if known is None:
                member = _Member(key)
            elif key.serial != known.key.serial:
                member = _Member(key, True)
            else:
                member = known._replace(silent=known.silent + 1)
            if member.silent >= (PROVEN_LOOKS if member.is_proven else UNPROVEN_LOOKS):
                dead += [key for key in listed if key.member == name]
            else:
                self._members[name] = member
        return dead

    @property
    def alive(self) -> list[MemberKey]:
        return [member.key for member in self._members.values()]


def assign(
    reached: Mapping[str, Iterable[str]], held: Mapping[str, Iterable[str]] | None = None
) -> dict[str, list[str]]:
    """Assign each shard to one member: by ``reached`` nsqds, and the shards that it has (``held``).

    A member has at most its share, rounded up, unless only it reaches a shard. It keeps its
    shards up to its share: when another member leaves, the others keep theirs, and when one joins,
    only its new shards move. Other shards are spread by rendezvous hashing.
    """
    reaching: dict[str, list[str]] = {}
    for member, nsqds in reached.items():
        for nsqd in nsqds:
            reaching.setdefault(nsqd, []).append(member)
    having = {(nsqd, member) for member, nsqds in (held or {}).items() for nsqd in nsqds}
    result: dict[str, list[str]] = {member: [] for member in reached}
    share = -(-len(reaching) // max(1, sum(1 for nsqds in reached.values() if list(nsqds))))
    order = sorted(reaching, key=lambda nsqd: (len(reaching[nsqd]), _score(nsqd)))
    # Shards that few members reach come first; among equals, the ones that stay.
    for _, equals in itertools.groupby(order, key=lambda nsqd: len(reaching[nsqd])):
        moving = []
        for nsqd in equals:
            ranked = sorted(reaching[nsqd], key=lambda member: _score(nsqd, member))
            free = [member for member in ranked
                    if (nsqd, member) in having and len(result[member]) < share]
            if free:
                result[free[0]].append(nsqd)
            else:
                moving.append((nsqd, ranked))
        for nsqd, ranked in moving:
            free = [member for member in ranked if len(result[member]) < share]
            chosen = free[0] if free else min(ranked, key=lambda member: len(result[member]))
            result[chosen].append(nsqd)
    return {member: sorted(nsqds) for member, nsqds in result.items()}


def digest_of(nsqds: Iterable[str], held: Iterable[str] = ()) -> str:
    """A short text that differs for different nsqds that a member can reach, or has."""
    return _score(*sorted(nsqds), "", *sorted(held))[:16]


def _score(*texts: str) -> str:
    """The same in every process, as Python's own hash is not."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
