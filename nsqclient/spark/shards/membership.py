"""``Membership``: divides the shards of a topic and channel among processes, by heartbeats.

A *member* is a process that owns shards. It regularly creates an object on the storage, its
heartbeat, which says which nsqds it reaches and which shards it has. Every member lists the
heartbeats and computes its own shards from them, with the same rules. So members need no connection
to each other and no coordinator. Members that have seen different heartbeats may leave a shard with
two owners, or without one, for a moment. Two owners are harmless: see ``shard_log``.

Members count time in looks, their own listings of the heartbeats. So clocks need not agree, and a
member that was suspended does not declare the others dead. ``nsq-members`` is the only thread.
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
from nsqclient.spark.storage import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two heartbeats.
INTERVAL = 3.0
#: Seconds that leave() waits for the thread's last request.
_JOIN = 5.0


class Membership:
    """One member: the nsqds that it can reach, and its shards. Threads: any."""

    def __init__(self, store: Store, topic: str, channel: str, job: str = "") -> None:
        self.name: str = uuid.uuid4().hex
        self._store = store
        self._names = (topic, channel)
        self._ended_key = ended_key(topic, channel, job) if job else ""
        self._looking = threading.Lock()  # one look at a time
        # Guarded by _looking.
        self._members = Members()
        #: Other member -> digest, nsqds and shards.
        self._others: dict[str, tuple[str, list[str], list[str]]] = {}
        self._mine: list[str] = []  # keys of own heartbeats that may exist
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._reachable: list[str] = []
        self._assigned: list[str] = []
        self._serial = 0
        #: Set when ``assigned()`` may have a new result.
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
        """Set the nsqds that this member reaches. Its thread sends a heartbeat immediately."""
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
        """Delete the heartbeat, so that the others take over at their next look. Idempotent."""
        self._end.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN)
            if self._thread.is_alive():
                logger.warning("owners: the thread nsq-members did not end in time")
                return
        with contextlib.suppress(StorageError):  # the others notice later
            self._store.delete(self._mine)

    def look(self) -> None:
        """Send a heartbeat, list those of the others, and compute this member's shards."""
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
                # If this heartbeat was deleted meanwhile, the next look finds a newer one.
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
                # Keep the shards: which members are alive is unknown.
                logger.warning("owners: %s; trying again", exc)
            except Exception:
                logger.exception("owners: a heartbeat failed; the owner continues")


# -- pure: which members are alive, and which shards each of them has

#: Looks without a new heartbeat after which a member is dead.
PROVEN_LOOKS = 4
#: The same for a member of which only one heartbeat was seen. It may have died long ago.
UNPROVEN_LOOKS = 2


class _Member(NamedTuple):
    key: MemberKey  #: key of its newest heartbeat
    is_proven: bool = False  #: True if it has sent a heartbeat since it was first seen
    silent: int = 0  #: looks since its newest heartbeat


class Members:
    """The members that are alive, as one of them sees it. Not thread-safe."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}

    def look(self, listed: Iterable[MemberKey]) -> list[MemberKey]:
        """Update the members from a listing; return the heartbeats of dead members."""
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
    """Assign each shard to a member that reaches it.

    A member gets at most its share, rounded up, unless it is the only one that reaches a shard. It
    keeps shards that it has, up to its share, so that only few shards move when a member joins or
    leaves. Rendezvous hashing spreads the other shards.

    Args:
        reached: member -> the nsqds that it reaches.
        held: member -> the shards that it has.
    """
    reaching: dict[str, list[str]] = {}
    for member, nsqds in reached.items():
        for nsqd in nsqds:
            reaching.setdefault(nsqd, []).append(member)
    having = {(nsqd, member) for member, nsqds in (held or {}).items() for nsqd in nsqds}
    result: dict[str, list[str]] = {member: [] for member in reached}
    share = -(-len(reaching) // max(1, sum(1 for nsqds in reached.values() if list(nsqds))))
    order = sorted(reaching, key=lambda nsqd: (len(reaching[nsqd]), _score(nsqd)))
    # Shards that few members reach come first, and of these the ones that do not move.
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
    """A short digest of the nsqds that a member reaches and the shards that it has."""
    return _score(*sorted(nsqds), "", *sorted(held))[:16]


def _score(*texts: str) -> str:
    """A hash that is the same in every process."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
