"""``Collector``: the numbers of the cluster, at most one refresh interval old.

All open pages share it. A round does not wait for an nsqd that hangs: it shows the others, and
lists that one as waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from nsqclient.admin.aggregate import objects
from nsqclient.admin.lost_nodes import LostNodes, held_text
from nsqclient.admin.overview import Overview, RateHistory, build_rows, samples
from nsqclient.admin.responses import FailureTimes
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Nodes
from nsqclient.partitioned.http import as_stock
from nsqclient.http import NsqdHTTP

T = TypeVar("T")

#: Seconds after which a page waits for the round of another page rather than show older numbers.
_TOO_OLD = 10.0
#: Bytes of all cached answers, and what each costs besides: a client can request any path.
_MOST_BYTES = 8 * 1024 * 1024
_ENTRY = 200


class PageCache:
    """Answers by path, each kept for some seconds. Threads: any."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, bytes]] = {}  # guarded by _lock, as is _size
        self._size = 0

    def get(self, path: str) -> bytes | None:
        """Return the answer of a path, or None if it is missing or too old."""
        with self._lock:
            at, answer = self._answers.get(path, (0.0, None))
        return answer if time.monotonic() - at < self._seconds else None

    def put(self, path: str, answer: bytes) -> None:
        """Keep an answer; the oldest answers are dropped if all take too much memory."""
        with self._lock:
            self._remove(path)
            self._answers[path] = time.monotonic(), answer
            self._size += _ENTRY + len(path) + len(answer)
            while self._size > _MOST_BYTES:
                self._remove(next(iter(self._answers)))

    def clear(self) -> None:
        """Drop every answer: something was changed."""
        with self._lock:
            self._answers, self._size = {}, 0

    def _remove(self, path: str) -> None:
        _, answer = self._answers.pop(path, (0.0, None))
        if answer is not None:
            self._size -= _ENTRY + len(path) + len(answer)


class Collector:
    """Asks the servers for an :class:`Overview` when a page needs a newer one. Threads: any.

    Args:
        lost: the nsqds that have disappeared.
        interval: seconds for which an overview is new enough.
    """

    def __init__(self, cluster: Cluster, lost: LostNodes, interval: float) -> None:
        self._cluster = cluster
        self._lost = lost
        self._interval = interval
        self._round = threading.Lock()  # held during a round
        self._latest: Overview | None = None
        self._changed_at = 0.0
        self._nodes = Nodes((), ())  # for the thread that holds _round, as _times
        self._times = FailureTimes()
        self._lock = threading.Lock()
        self._history = RateHistory()  # guarded by _lock

    def overview(self) -> Overview:
        """Return all topics, as they were at most one interval ago.

        Blocks: for a round, at most the timeouts of its requests.
        """
        latest, now = self._latest, time.monotonic()
        if latest is not None and self._is_fresh(latest, now):
            return latest
        can_wait = latest is None or latest.begun < self._changed_at or now - latest.at > _TOO_OLD
        if not self._round.acquire(blocking=can_wait):
            assert latest is not None
            return latest
        try:
            latest = self._latest
            if latest is None or not self._is_fresh(latest, time.monotonic()):
                self._latest = latest = self._collect()
            return latest
        finally:
            self._round.release()

    def refresh(self) -> None:
        """Make the next overview a new one: something was changed."""
        self._changed_at = time.monotonic()

    def with_rate_history(self, read: Callable[[RateHistory], T]) -> T:
        """Call ``read`` with the history under the lock; it must be quick and keep no reference."""
        with self._lock:
            return read(self._history)

    # -- inside

    def _is_fresh(self, overview: Overview, now: float) -> bool:
        return now - overview.at < self._interval and overview.begun >= self._changed_at

    def _collect(self) -> Overview:
        """Query all servers once."""
        begun = time.monotonic()
        failures: list[Failure] = []
        try:
            self._nodes = self._cluster.recent_nodes(progressive=True)
            failures += self._nodes.failures
        except UpstreamError as exc:
            failures += exc.failures  # the nodes of the last round stay
        answers, failed = self._cluster.each(self._nodes.nodes, _counters, progressive=True)
        failures += failed
        stats = {node: answer for node, (answer, _) in answers.items()}
        taken = samples(stats)
        with self._lock:
            self._history.add_round(
                taken, {node.address: came for node, (_, came) in answers.items()},
                round(time.time(), 1))
            rows = build_rows(taken, self._nodes.registered, self._history)
        former = self._latest
        serial = 1 if former is None else former.serial + 1
        changed = {name: serial for name in rows}
        removed_at = 0
        if former is not None:
            for name, row in rows.items():
                if former.rows.get(name) == row:
                    changed[name] = former.changed[name]
            is_removed = any(name not in rows for name in former.rows)
            removed_at = serial if is_removed else former.removed_at
        return Overview(
            serial, begun, time.monotonic(), rows, changed, removed_at, self._nodes.nodes,
            frozenset(node.address for node in stats),
            {node.address: len(objects(answer, "topics")) for node, answer in stats.items()},
            tuple(self._with_lost(failures, stats)),
        )

    def _with_lost(self, failures: list[Failure], stats: dict[Any, Any]) -> list[Failure]:
        """Return the failures with their times, with what each nsqd held, and the lost nsqds."""
        now = time.time()
        lost = self._lost.add_round(self._nodes, stats, now)
        failures = list(dict.fromkeys(failures))
        self._times.add_round(failures, now)
        found = []
        for failure in map(self._times.dated, failures):
            held = 0 if failure.is_doubt else self._lost.held(failure.address)
            found.append(failure._replace(
                reason=f"{failure.reason}; {held_text(held)}")
                if held and failure.kind == "nsqd" else failure)
        named = {each.address for each in failures if each.kind == "nsqd"}
        return found + [each.failure() for each in lost if each.node.address not in named]


def _counters(nsqd: NsqdHTTP) -> tuple[dict[str, Any], float]:
    """Return the counters of all topics, and the time of this answer: others come later."""
    return as_stock(nsqd.stats_json(None, None, include_clients=False)), time.monotonic()
