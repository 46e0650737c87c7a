"""Which nsqd leads each partition of a topic: the answers of nsqlookupds, merged.

If two answers name different leaders of a partition, the answer of the leading nsqlookupd wins,
unless that nsqd has refused the partition.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from nsqclient.protocol.events import Endpoint

#: Failures in a row after which an address that was not given by the user is forgotten.
_FORGET_AFTER = 6


class TopicMeta(NamedTuple):
    """The metadata of a topic."""

    partition_num: int = 0  #: including partitions without a leader; the modulus for keys
    ordered: bool = False  #: it is consumed with SUB_ORDERED, and published to with a key
    extended: bool = False  #: its messages have JSON headers


@dataclass(frozen=True)
class TopicRoutes:
    """One answer to ``/lookup``, or several merged."""

    #: nsqds without partitions: all of a stock cluster.
    plain: tuple[str, ...] = ()
    #: partition -> the nsqd that leads it; may be incomplete.
    partitions: Mapping[int, str] = field(default_factory=dict)
    #: None if the nsqlookupd is a stock one, or does not know the topic.
    meta: TopicMeta | None = None
    #: The nsqlookupd belongs to a partitioned cluster, whether or not it knows the topic.
    is_partitioned: bool = False
    #: Listed partitions that must not be used.
    excluded: frozenset[int] = frozenset()
    #: nsqd -> the address of its HTTP API, or empty
    http_addresses: Mapping[str, str] = field(default_factory=dict)

    def only(self, wanted: Container[int] | None) -> TopicRoutes:
        """Return these routes with only the wanted partitions; None means all."""
        if wanted is None:
            return self
        known = {*range(self.partition_num), *self.partitions}
        return replace(
            self,
            partitions={number: nsqd for number, nsqd in self.partitions.items()
                        if number in wanted},
            excluded=self.excluded.union(each for each in known if each not in wanted),
        )

    @cached_property
    def places(self) -> frozenset[Endpoint]:
        return frozenset(map(Endpoint, self.plain)).union(
            Endpoint(nsqd, partition) for partition, nsqd in self.partitions.items())

    @property
    def partition_num(self) -> int:
        return 0 if self.meta is None else self.meta.partition_num

    @property
    def usable_partitions(self) -> int:
        """How many partitions are not excluded, including those without a leader."""
        return max(self.partition_num - len(self.excluded), len(self.partitions))


@dataclass
class Lookupd:
    is_seed: bool
    failures: int = 0  #: in a row
    routes: TopicRoutes | None = None  #: its last answer
    is_fresh: bool = False  #: it has not failed since then
    is_leader: bool = False
    number: int = 0  #: increases with each answer of any nsqlookupd


class LookupTable:
    """The nsqlookupds of a cluster and their answers about one topic. Not thread-safe.

    Args:
        seeds: the nsqlookupds that the user gave, which are never dropped.
    """

    def __init__(self, seeds: Iterable[str]) -> None:
        self._lookupds = {seed: Lookupd(is_seed=True) for seed in seeds}
        self.refused: set[tuple[int, str]] = set()  # (partition, nsqd) that refused last
        self._count = 0
        self._meta: TopicMeta | None = None  # the last with partitions

    @property
    def addresses(self) -> list[str]:
        """The known nsqlookupds, fewest failures first."""
        return sorted(self._lookupds, key=lambda address: self._lookupds[address].failures)

    def on_answer(
        self, address: str, routes: TopicRoutes, nodes: Sequence[tuple[str, bool]] = ()
    ) -> None:
        """Store an answer; ``nodes`` is from ``/listlookup``: (address, True if it leads)."""
        self._count += 1
        lookupd = self._lookupds.get(address)
        if lookupd is None:
            return  # it was forgotten meanwhile
        if routes.partition_num:
            self._meta = routes.meta
        lookupd.routes, lookupd.is_fresh, lookupd.number = routes, True, self._count
        lookupd.failures = 0
        if not nodes:
            return
        leaders = {node for node, is_leader in nodes if is_leader}
        for node, _ in nodes:
            if node not in self._lookupds:
                self._lookupds[node] = Lookupd(is_seed=False)
        for node, other in self._lookupds.items():
            other.is_leader = node in leaders

    def naming(self, place: Endpoint) -> list[str]:
        """Return the nsqlookupds whose last answer names a place."""
        return [address for address, lookupd in self._lookupds.items()
                if lookupd.routes is not None and place in lookupd.routes.places]

    def on_failure(self, address: str) -> None:
        """Record a failure. The last answer then counts only if no nsqlookupd has a fresh one."""
        lookupd = self._lookupds.get(address)
        if lookupd is None:
            return
        self.on_late(address)
        lookupd.failures += 1
        if lookupd.failures >= _FORGET_AFTER and not lookupd.is_seed:
            del self._lookupds[address]

    def on_late(self, address: str) -> None:
        """Record a slow answer: as a failure, but without forgetting the nsqlookupd."""
        lookupd = self._lookupds.get(address)
        if lookupd is not None:
            lookupd.is_fresh = False

    def on_refused(self, partition: int, nsqd: str) -> None:
        self.refused.add((partition, nsqd))

    def on_accepted(self, partition: int, nsqd: str) -> None:
        self.refused.discard((partition, nsqd))

    def merged(self) -> TopicRoutes:
        answers = self._answers()
        votes: dict[int, list[str]] = {}
        plain: dict[str, None] = {}
        for routes in answers:
            for partition, nsqd in routes.partitions.items():
                votes.setdefault(partition, []).append(nsqd)
            plain.update(dict.fromkeys(routes.plain))
        return TopicRoutes(
            plain=tuple(plain),
            partitions={partition: self._elect(partition, votes[partition])
                        for partition in sorted(votes)},
            meta=self._choose_meta(answers),
            is_partitioned=any(routes.is_partitioned for routes in answers),
            excluded=frozenset().union(*(routes.excluded for routes in answers)),
            http_addresses={nsqd: http for routes in reversed(answers)
                            for nsqd, http in routes.http_addresses.items()},
        )

    def _answers(self) -> list[TopicRoutes]:
        """The answers that count: the leader's, then the newest."""
        known = [lookupd for lookupd in self._lookupds.values() if lookupd.routes is not None]
        fresh = [lookupd for lookupd in known if lookupd.is_fresh] or known
        fresh.sort(key=lambda lookupd: (not lookupd.is_leader, -lookupd.number))
        return [lookupd.routes for lookupd in fresh if lookupd.routes is not None]

    def _choose_meta(self, answers: list[TopicRoutes]) -> TopicMeta | None:
        """Return the metadata; the last known if no nsqlookupd has a coordinator."""
        metas = [routes.meta for routes in answers if routes.meta is not None]
        # The first with a number of partitions; a lookupd without the topic sends 0.
        meta = next((one for one in metas if one.partition_num > 0), metas[0] if metas else None)
        if meta is None and self._meta is not None and any(one.is_partitioned for one in answers):
            listed = {number for routes in answers for number in routes.partitions}
            if max(listed, default=0) < self._meta.partition_num:  # no partition was added
                return self._meta
        return meta

    def _elect(self, partition: int, nsqds: Sequence[str]) -> str:
        trusted = [nsqd for nsqd in nsqds if (partition, nsqd) not in self.refused]
        if trusted:
            return trusted[0]
        # All have refused, but the first may lead the partition now.
        self.refused -= {(partition, nsqd) for nsqd in nsqds}
        return nsqds[0]
