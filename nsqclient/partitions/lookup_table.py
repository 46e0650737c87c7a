"""``LookupTable``: which nsqlookupds to ask, and what their answers say together.

Every nsqlookupd is asked in each round, and answers are merged for each partition. Where two name
different leaders, the leading nsqlookupd is believed; after a refusal by that nsqd, the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nsqclient.partitions.routes import TopicMeta, TopicRoutes

#: Failures in a row after which an address that is no seed is forgotten; a nsqlookupd that comes
#: back is named by ``/listlookup`` again.
_FORGET_AFTER = 6
#: A failing address is left out of so many rounds at most.
_LONGEST_REST = 8


@dataclass
class Lookupd:
    """One nsqlookupd as the table sees it."""

    is_seed: bool
    failures: int = 0  #: in a row
    rest: int = 0  #: rounds to be left out
    routes: TopicRoutes | None = None  #: its last answer
    is_fresh: bool = False  #: it has not failed since
    is_leader: bool = False
    number: int = field(default=0)  #: the order of the answers, the newest highest


class LookupTable:
    """The nsqlookupds of a cluster and their answers about one topic.

    Not thread-safe: the caller holds a lock. Seeds are never dropped.
    """

    def __init__(self, seeds: Iterable[str]) -> None:
        self._lookupds = {seed: Lookupd(is_seed=True) for seed in seeds}
        self._refused: set[tuple[int, str]] = set()  # (partition, nsqd) that refused us last
        self._count = 0

    @property
    def addresses(self) -> list[str]:
        """All that are known, those that work first: a failing address loses priority."""
        return sorted(self._lookupds, key=lambda address: self._lookupds[address].failures)

    def begin_round(self) -> list[str]:
        """Return those to be asked now. Of several, the failing ones rest for some rounds.

        A stock cluster has no list of nsqlookupds; its seeds are asked in every round.
        """
        lookupds = self._lookupds
        resting = set()
        if any(lookupd.is_fresh and self._has_partitions(lookupd) for lookupd in lookupds.values()):
            resting = {address for address, lookupd in lookupds.items() if lookupd.rest > 0}
        for address in resting:
            lookupds[address].rest -= 1
        return [address for address in self.addresses if address not in resting]

    def on_answer(
        self, address: str, routes: TopicRoutes, nodes: Sequence[tuple[str, bool]] = ()
    ) -> None:
        """Take an answer; ``nodes`` is what ``/listlookup`` said: (address, is it the leader)."""
        self._count += 1
        lookupd = self._lookupds.get(address)
        if lookupd is None:
            return  # forgotten meanwhile
        lookupd.routes, lookupd.is_fresh, lookupd.number = routes, True, self._count
        lookupd.failures = lookupd.rest = 0
        if not nodes:
            return
        leaders = {node for node, is_leader in nodes if is_leader}
        for node, _ in nodes:
            if node not in self._lookupds:
                self._lookupds[node] = Lookupd(is_seed=False)
        for node, other in self._lookupds.items():
            other.is_leader = node in leaders

    def on_failure(self, address: str) -> None:
        """Note that one gave no answer: what it said before counts only if nobody says more."""
        lookupd = self._lookupds.get(address)
        if lookupd is None:
            return
        lookupd.failures += 1
        lookupd.rest = min(2 ** (lookupd.failures - 1), _LONGEST_REST)
        lookupd.is_fresh = False
        if lookupd.failures >= _FORGET_AFTER and not lookupd.is_seed:
            del self._lookupds[address]

    def on_refused(self, partition: int, nsqd: str) -> None:
        """Note that this nsqd says that it does not lead the partition."""
        self._refused.add((partition, nsqd))

    def on_accepted(self, partition: int, nsqd: str) -> None:
        """Note that this nsqd leads the partition."""
        self._refused.discard((partition, nsqd))

    def merged(self) -> TopicRoutes:
        """What all of them say together."""
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
            meta=_first_meta(answers),
            is_partitioned=any(routes.is_partitioned for routes in answers),
        )

    def _answers(self) -> list[TopicRoutes]:
        """The answers that count, the leader's first, then the newest."""
        known = [lookupd for lookupd in self._lookupds.values() if lookupd.routes is not None]
        fresh = [lookupd for lookupd in known if lookupd.is_fresh] or known
        fresh.sort(key=lambda lookupd: (not lookupd.is_leader, -lookupd.number))
        return [lookupd.routes for lookupd in fresh if lookupd.routes is not None]

    def _elect(self, partition: int, nsqds: Sequence[str]) -> str:
        trusted = [nsqd for nsqd in nsqds if (partition, nsqd) not in self._refused]
        if trusted:
            return trusted[0]
        # All have refused: whoever is named first may lead it by now.
        self._refused -= {(partition, nsqd) for nsqd in nsqds}
        return nsqds[0]

    @staticmethod
    def _has_partitions(lookupd: Lookupd) -> bool:
        return lookupd.routes is not None and lookupd.routes.is_partitioned


def _first_meta(answers: Iterable[TopicRoutes]) -> TopicMeta | None:
    """The first that says how many partitions there are; a lookupd without any says 0."""
    metas = [routes.meta for routes in answers if routes.meta is not None]
    return next((meta for meta in metas if meta.partition_num > 0), metas[0] if metas else None)
