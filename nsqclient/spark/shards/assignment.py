"""Which owners live, and which shards each of them has: both decided alike by every owner. Pure.

Every owner (a process that owns shards: a *member*) creates an object again and again, its
heartbeat, whose key has a serial number and a digest of the nsqds that it can reach and of those
that it has. Every member lists these objects, and computes from them, by itself, which shards are
its own. This is advice only: while two members have seen different things, a shard has two owners
for a moment, or none, and the log of the shard keeps them apart (see ``shard_log``).

Time is counted in looks of the member that looks, so that clocks need not agree, and a member that
was stopped finds no other one dead when it goes on.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nsqclient.spark.shards.names import MemberKey

#: Looks without a new heartbeat after which a member is dead: it had one in an earlier look.
PROVEN_LOOKS = 4
#: The same of a member that has not had a new one yet: a dead one of long ago, or a new one.
UNPROVEN_LOOKS = 2


class _Member(NamedTuple):
    """What is known of another member."""

    key: MemberKey  #: of its newest heartbeat
    is_proven: bool = False  #: whether it had a new one since it was seen first
    silent: int = 0  #: looks since the newest one


class Members:
    """The members that live, as one of them sees it. Threads: one."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}

    def look(self, listed: Iterable[MemberKey]) -> list[MemberKey]:
        """Take note of what a listing has; return the heartbeats that may be deleted."""
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
        """The newest heartbeat of each member that lives."""
        return [member.key for member in self._members.values()]


def assign(
    reached: Mapping[str, Iterable[str]], held: Mapping[str, Iterable[str]] | None = None
) -> dict[str, list[str]]:
    """Assign each shard to one member.

    No member has more than its share, rounded up, as far as others reach the shard. A member keeps
    what it has up to its share, so that when another one leaves, no shard of the others moves, and
    when one joins, only those that it gets. Other shards are spread by rendezvous hashing.

    Args:
        reached: the nsqds that each member can reach.
        held: those of the shards that each member has.
    """
    reaching: dict[str, list[str]] = {}
    for member, nsqds in reached.items():
        for nsqd in nsqds:
            reaching.setdefault(nsqd, []).append(member)
    having = {(nsqd, member) for member, nsqds in (held or {}).items() for nsqd in nsqds}
    result: dict[str, list[str]] = {member: [] for member in reached}
    share = -(-len(reaching) // max(1, sum(1 for nsqds in reached.values() if list(nsqds))))
    order = sorted(reaching, key=lambda nsqd: (len(reaching[nsqd]), _score(nsqd)))
    # Those that few can reach first, while these have space; of equals those that stay.
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
