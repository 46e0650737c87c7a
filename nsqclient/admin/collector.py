"""``Collector``: refreshes the numbers of the cluster while pages are open.

All open pages share it. A round does not wait for an nsqd that hangs: it shows the others, and
lists that one as waiting. The interval grows where a round is expensive, so that an open page never
takes more than a small share of one processor, and where many pages are open, so that all of them
together do not; only while an answer is on its way it does not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from nsqclient.admin.aggregate import objects
from nsqclient.admin.responses import FailureTimes
from nsqclient.admin.overview import Overview, RateHistory, build_rows, samples
from nsqclient.admin.settings import AdminSettings
from nsqclient.http import NsqdHTTP
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Nodes
from nsqclient.cluster.partitions import as_stock
from nsqclient.runtime.log_lines import LineLimit

logger: logging.Logger = logging.getLogger("nsqclient.admin")

T = TypeVar("T")

#: Seconds after the last call of ``overview`` until rounds end; pages refresh every few seconds.
_KEEP_ALIVE = 10.0
#: Seconds of rest for each second of processor time: 3 % of one processor.
_REST = 33.0
_LONGEST_INTERVAL = 20.0
#: Bytes of all answers that pages share, and what each takes beside: anybody can request paths.
_MOST_BYTES = 8 * 1024 * 1024
_ENTRY = 200


class PageCache:
    """Answers of pages by path, as long as the data has not changed. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version: Hashable = None  # guarded by _lock, as the others
        self._answers: dict[str, bytes] = {}
        self._size = 0

    def get(self, path: str, version: Hashable) -> bytes | None:
        """Return the answer of a path that was built from a version of the data; else None."""
        with self._lock:
            return self._answers.get(path) if version == self._version else None

    def put(self, path: str, version: Hashable, answer: bytes) -> None:
        """Keep an answer; those of other versions are dropped."""
        with self._lock:
            if version != self._version:
                self._version, self._answers, self._size = version, {}, 0
            size = _ENTRY + len(path) + len(answer)
            if path not in self._answers and self._size + size <= _MOST_BYTES:
                self._answers[path] = answer
                self._size += size


class Collector:
    """Keeps an :class:`Overview` fresh while it is used.

    Life: created; the first ``overview()`` starts its thread; ``close()``. Threads: any.
    """

    def __init__(self, cluster: Cluster, settings: AdminSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._changed = threading.Condition()
        self._latest: Overview | None = None  # guarded by _changed, as the others
        self._ended = 0  # rounds, also those that raised
        self._ended_at = 0.0  # when the last round ended, or the answers of a good one came
        self._wanted_until = 0.0
        self._fresh_after = 0.0  # a round must begin after this time
        self._changes = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._history = RateHistory()
        self._nodes = Nodes((), ())  # for the collecting thread only, as the others
        self._times = FailureTimes()
        self._total = time.process_time()
        self._costs = (0.0, 0.0)  # seconds of processor time up to the last rounds
        self._lines = LineLimit(logger)

    def overview(self, max_age: float | None = None) -> Overview:
        """Return all topics; the first time, and after a pause of the rounds, after a new round.

        Args:
            max_age: the highest age in seconds; None: two intervals.

        Blocks: for a round, at most the timeouts of its requests.
        Raises:
            UpstreamError: there was no round yet in which a server answered.
        """
        now = time.monotonic()
        with self._changed:
            latest = self._latest
            self._wanted_until = now + _KEEP_ALIVE
            if latest is not None:
                allowed = 2 * latest.interval + 1.0 if max_age is None else max_age
                if now - latest.at <= allowed:
                    self._wake()
                    return latest
            self._fresh_after = now
            self._wake()
            timeout = 2 * (self._settings.connect_timeout + self._settings.request_timeout) + 2.0
            known = self._ended
            self._changed.wait_for(lambda: self._closing or self._ended > known, timeout)
            if self._latest is None:
                raise UpstreamError("server in time", ())
            return self._latest

    def prefetch(self) -> None:
        """Begin one round now, so that the first page need not wait for it."""
        with self._changed:
            self._fresh_after = time.monotonic()
            self._wake()

    def refresh_soon(self) -> None:
        """Begin a round as soon as possible: something was changed."""
        with self._changed:
            self._fresh_after = time.monotonic()
            self._changes += 1
            self._changed.notify_all()

    def version(self, overview: Overview) -> tuple[int, int]:
        """Return what the answers of pages depend on: the round, and the changes by actions."""
        with self._changed:
            return overview.serial, self._changes

    def with_rate_history(self, read: Callable[[RateHistory], T]) -> T:
        """Call ``read`` with the history under the lock; it must be quick and keep no reference."""
        with self._changed:
            return read(self._history)

    def close(self) -> None:
        """End the thread; waits half a second at most."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(0.5)

    # -- inside

    def _wake(self) -> None:
        """Start the thread, or wake it; holds the lock."""
        if self._thread is None and not self._closing:
            thread = threading.Thread(target=self._loop, name="nsq-admin-collector", daemon=True)
            thread.start()
            self._thread = thread
        self._changed.notify_all()

    def _loop(self) -> None:
        next_round = 0.0
        while self._wait(next_round):
            begun = time.monotonic()
            interval = self._settings.refresh_interval
            try:
                interval = self._round(begun)
            except Exception as exc:
                logger.log(self._lines.level(logging.ERROR),
                           "collecting statistics failed; the collector continues", exc_info=True)
                with self._changed:
                    old = self._latest
                    if old is not None:
                        reason = ("the numbers are old: collecting them failed by "
                                  f"{type(exc).__name__}")
                        old = replace(old, serial=old.serial + 1,
                                      failures=(Failure("nsqadmin", "itself", reason),))
                    self._end_round(old, time.monotonic())
            next_round = begun + interval

    def _wait(self, next_round: float) -> bool:
        """Wait until a round is due and wanted; False at the end."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                if self._fresh_after > self._ended_at:
                    return True
                if now >= self._wanted_until:
                    self._changed.wait()
                elif now >= next_round:
                    return True
                else:
                    self._changed.wait(next_round - now)
            return False

    def _round(self, begun: float) -> float:
        """Query all servers once; return the seconds from this round's start to the next one's."""
        failures: list[Failure] = []
        try:
            self._nodes = self._cluster.recent_nodes(progressive=True)
            failures += self._nodes.failures
        except UpstreamError as exc:
            # The nodes of the former round stay.
            failures += exc.failures
        answers, failed = self._cluster.each(self._nodes.nodes, _counters, progressive=True)
        failures += failed
        at = time.monotonic()
        stats = {node: answer for node, (answer, _) in answers.items()}
        taken = samples(stats)
        with self._changed:
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
        # Since the last round, with all that pages cost; a high cost must have come twice.
        total = time.process_time()
        self._costs, self._total = (self._costs[1], total - self._total), total
        interval = self._settings.refresh_interval
        # An answer that is on its way counts in the next round: the page may have nothing before.
        if not any(failure.is_waiting for failure in failures):
            interval = min(max(interval, min(self._costs) * _REST), _LONGEST_INTERVAL)
        self._times.add_round(failures, time.time())
        overview = Overview(
            serial, max(begun, at), interval, rows, changed, removed_at, self._nodes.nodes,
            frozenset(node.address for node in stats),
            {node.address: len(objects(answer, "topics")) for node, answer in stats.items()},
            tuple(self._times.dated(each) for each in dict.fromkeys(failures)),
        )
        with self._changed:
            self._end_round(overview, overview.at)
        return interval

    def _end_round(self, overview: Overview | None, at: float) -> None:
        """Make the result of a round known; holds the lock."""
        self._latest = overview
        self._ended += 1
        self._ended_at = at
        self._changed.notify_all()


def _counters(nsqd: NsqdHTTP) -> tuple[dict[str, Any], float]:
    """Return the counters of all topics, and the time of this answer: others come later."""
    return as_stock(nsqd.stats_json(None, None, include_clients=False)), time.monotonic()
