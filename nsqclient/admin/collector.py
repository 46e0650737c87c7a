"""``Collector``: the numbers of the cluster for all open pages; ``LostNodes``: nsqds that are gone.

A round does not wait for an nsqd that hangs: it shows the others, and lists that one as waiting.

nsqlookupd forgets an nsqd that dies. The page and ``/metrics`` remember it for ten minutes, or, if
messages waited there, for a day or until a user removes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from nsqclient.admin.aggregate import Values, number, objects
from nsqclient.admin.overview import History, Overview, RateHistory, build_rows, samples
from nsqclient.cluster.ask_all import ServerFailure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Node, Nodes
from nsqclient.http import NsqdHTTP
from nsqclient.partitioned.http import as_stock

#: Seconds without a round after which failures count as new.
_LONGEST_GAP = 60.0


class Collector:
    """Asks the servers for an :class:`Overview` when a page needs a newer one. Threads: any.

    ``interval``: seconds for which an overview is new enough.
    """

    def __init__(self, cluster: Cluster, lost: LostNodes, interval: float) -> None:
        self._cluster = cluster
        self._lost = lost
        self._interval = interval
        self._is_changed = True
        self._lock = threading.Lock()
        self._latest = Overview()
        self._round_at = 0.0  # on time.monotonic()
        self._nodes = Nodes((), ())
        self._since: dict[tuple[str, str, bool], float] = {}  # failure -> when it was first seen
        self._history = RateHistory()

    def overview(self) -> Overview:
        """Return all topics, as they were at most one interval ago. Blocks: for a round."""
        with self._lock:
            if self._is_changed or time.monotonic() - self._round_at >= self._interval:
                self._is_changed = False
                self._latest = self._collect()
                self._round_at = time.monotonic()
            return self._latest

    def refresh(self) -> None:
        self._is_changed = True

    def history(self, kind: str, topic: str, channel: str = "") -> History:
        with self._lock:
            return self._history.of((kind, topic, channel))

    def _collect(self) -> Overview:
        failures: list[ServerFailure] = []
        try:
            self._nodes = self._cluster.recent_nodes(progressive=True)
            failures += self._nodes.failures
        except UpstreamError as exc:
            failures += exc.failures  # the nodes of the last round stay
        answers, failed = self._cluster.each(self._nodes.nodes, _counters, progressive=True)
        stats = {node: answer for node, (answer, _) in answers.items()}
        taken = samples(stats)
        self._history.add_round(
            taken, {node.address: came for node, (_, came) in answers.items()},
            round(time.time(), 1))
        return Overview(
            self._latest.serial + 1, build_rows(taken, self._nodes.registered, self._history),
            self._nodes.nodes, frozenset(node.address for node in stats),
            {node.address: len(objects(answer, "topics")) for node, answer in stats.items()},
            tuple(self._with_lost([*failures, *failed], stats)))

    def _with_lost(
        self, failures: list[ServerFailure], stats: dict[Any, Any]
    ) -> list[ServerFailure]:
        """Add the times of failures, what each nsqd held, and the lost nsqds."""
        now = time.time()
        lost = self._lost.add_round(self._nodes, stats, now)
        former = self._since if time.monotonic() - self._round_at < _LONGEST_GAP else {}
        self._since, found = {}, []
        for failure in dict.fromkeys(failures):
            key = failure.kind, failure.address, failure.is_doubt
            since = self._since[key] = former.get(key, now)
            held = self._lost.held(failure.address) if failure.kind == "nsqd" else 0
            reason = f"{failure.reason}; {held_text(held)}" if held and not failure.is_doubt \
                else failure.reason
            found.append(failure._replace(since=since, reason=reason))
        named = {each.address for each in failures if each.kind == "nsqd"}
        return found + [each.failure() for each in lost if each.node.address not in named]


def _counters(nsqd: NsqdHTTP) -> tuple[dict[str, Any], float]:
    return as_stock(nsqd.stats_json(None, None, include_clients=False)), time.monotonic()


#: Seconds for which an nsqd is remembered: one that held messages, and one that held none.
_KEEP_HOLDING, _KEEP_EMPTY = 24 * 3600.0, 600.0
_MOST_LOST = 200

_WAITING = ("depth", "in_flight_count", "deferred_count")


class Lost(NamedTuple):
    node: Node
    held: int  #: messages that waited there, in its topics and channels
    at: float  #: seconds since the epoch

    def failure(self) -> ServerFailure:
        reason = f"no nsqlookupd lists it any more; {held_text(self.held)}"
        return ServerFailure("nsqd", self.node.address, reason, since=self.at, is_gone=True)

    def is_expired(self, now: float) -> bool:
        return now - self.at > (_KEEP_HOLDING if self.held else _KEEP_EMPTY)


def held_text(count: int) -> str:
    return f"it held {count:,} message{'s' * (count != 1)}" if count else "it held no messages"


class LostNodes:
    """Compares the nsqds of each round with those seen before. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Lost] = {}

    def add_round(
        self, found: Nodes, stats: Mapping[Node, Mapping[str, Any]], now: float
    ) -> list[Lost]:
        """Record the listed nsqds and the statistics of nsqds that answered; return the lost nsqds.

        ``now``: seconds since the epoch.
        """
        silent = {each.address for each in found.failures if each.kind == "nsqlookupd"}
        with self._lock:
            listed = {node.address: node for node in found.nodes}
            for address, old in self._seen.items():
                # Only an nsqlookupd that listed it and answers can have forgotten it.
                if old.node.lookupds and silent.issuperset(old.node.lookupds):
                    listed.setdefault(address, old.node)
            for address, node in listed.items():
                known = self._seen.get(address)
                held = messages_in(stats[node]) if node in stats else known.held if known else 0
                self._seen[address] = Lost(node, held, now)
            lost = [each for address, each in self._seen.items()
                    if address not in listed and not each.is_expired(now)]
            lost = sorted(lost, key=lambda each: (each.held > 0, each.at), reverse=True)
            lost = lost[:_MOST_LOST]
            self._seen = {each.node.address: each for each in (
                *(self._seen[address] for address in listed), *lost)}
        return lost

    def held(self, address: str) -> int:
        """Return the messages that an nsqd held when it answered last."""
        with self._lock:
            known = self._seen.get(address)
        return known.held if known is not None else 0

    def forget(self, address: str) -> bool:
        with self._lock:
            return self._seen.pop(address, None) is not None


def messages_in(stats: Values) -> int:
    return sum(
        number(topic, "depth") + sum(
            number(channel, name) for channel in objects(topic, "channels") for name in _WAITING)
        for topic in objects(stats, "topics"))
