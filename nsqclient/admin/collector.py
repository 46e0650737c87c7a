"""``Collector``: the numbers of the cluster for all open pages.

A round does not wait for an nsqd that hangs: it shows the others, and lists that one as waiting.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from nsqclient.admin.aggregate import objects
from nsqclient.admin.lost_nodes import LostNodes, held_text
from nsqclient.admin.overview import History, Overview, RateHistory, build_rows, samples
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Nodes
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
        # Guarded by _lock, as the others:
        self._latest = Overview()
        self._round_at = 0.0  # on the monotonic clock
        self._nodes = Nodes((), ())
        self._since: dict[tuple[str, str, bool], float] = {}  # when a failure was seen first
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
        failures: list[Failure] = []
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

    def _with_lost(self, failures: list[Failure], stats: dict[Any, Any]) -> list[Failure]:
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
