"""``Collector``: asks the cluster for everything again and again, while somebody looks.

All open pages share it. A round does not wait for an nsqd that hangs: it shows the others, and
names the one that is waited for. It asks less often where a round costs much, so that an open page
never takes more than a small share of one processor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from nsqclient.admin.asking import Failure
from nsqclient.admin.cluster import Cluster, Nodes, UpstreamError
from nsqclient.admin.history import Histories
from nsqclient.admin.merging import objects
from nsqclient.admin.overview import Overview, build_rows, samples

logger = logging.getLogger("nsqclient.admin")

T = TypeVar("T")

#: Seconds without a question after which nobody looks any more; pages ask every few seconds.
_INTEREST = 10.0
#: A second of processor time is followed by at least so many seconds of rest: 3 % of one.
_REST = 33.0
_LONGEST_INTERVAL = 20.0


class Collector:
    """Keeps an :class:`Overview` fresh while it is asked for.

    Life: created; its thread begins with the first question; ``close()``. Threads: any.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._changed = threading.Condition()
        self._latest: Overview | None = None  # guarded by _changed, as the others
        self._wanted_until = 0.0
        self._fresh_after = 0.0  # a round must begin after this time
        self._closing = False
        self._thread: threading.Thread | None = None
        self._histories = Histories()
        self._nodes = Nodes((), ())  # of the collecting thread alone

    def overview(self, max_age: float | None = None) -> Overview:
        """Return all topics; the first time, and when nobody looked for a while, after a round.

        Args:
            max_age: seconds that the answer may be old; None: whatever is shown at the moment.

        Blocks: for a round, at most the timeouts of its requests.
        Raises:
            UpstreamError: nobody answered, ever.
        """
        now = time.monotonic()
        with self._changed:
            latest = self._latest
            self._wanted_until = now + _INTEREST
            if latest is not None:
                allowed = 2 * latest.interval + 1.0 if max_age is None else max_age
                if now - latest.at <= allowed:
                    self._wake()
                    return latest
            self._fresh_after = now
            self._wake()
            timeout = 2 * (self._cluster.settings.connect_timeout
                           + self._cluster.settings.request_timeout) + 2.0
            known = 0 if latest is None else latest.serial
            self._changed.wait_for(
                lambda: self._closing or self._is_newer(known), timeout
            )
            if self._latest is None:
                raise UpstreamError("server in time", ())
            return self._latest

    def prefetch(self) -> None:
        """Begin one round now: the first page that is opened need not wait for it."""
        with self._changed:
            self._fresh_after = time.monotonic()
            self._wake()

    def ask_soon(self) -> None:
        """Begin a round as soon as possible: something was changed."""
        with self._changed:
            self._fresh_after = time.monotonic()
            self._changed.notify_all()

    def with_histories(self, read: Callable[[Histories], T]) -> T:
        """Read the histories; ``read`` must be quick and keep nothing of them."""
        with self._changed:
            return read(self._histories)

    def close(self) -> None:
        """End the thread; a round that waits for a server is not waited for long."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(0.5)

    # -- inside

    def _is_newer(self, serial: int) -> bool:
        return self._latest is not None and self._latest.serial > serial

    def _wake(self) -> None:
        """Start the thread, or wake it; holds the lock."""
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(
                target=self._loop, name="nsq-admin-collector", daemon=True
            )
            self._thread.start()
        self._changed.notify_all()

    def _loop(self) -> None:
        next_round = 0.0
        while self._wait(next_round):
            begun = time.monotonic()
            interval = self._cluster.settings.refresh_interval
            try:
                interval = self._round(begun)
            except Exception:
                logger.exception("collecting failed; it goes on")
            next_round = begun + interval

    def _wait(self, next_round: float) -> bool:
        """Wait until a round is due and wanted; False at the end."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                latest = 0.0 if self._latest is None else self._latest.at
                if self._fresh_after > latest:
                    return True
                if now >= self._wanted_until:
                    self._changed.wait()
                elif now >= next_round:
                    return True
                else:
                    self._changed.wait(next_round - now)
            return False

    def _round(self, begun: float) -> float:
        """Ask everybody once; return the seconds from this round's begin to the next one's."""
        cpu = time.process_time()
        failures: list[Failure] = []
        try:
            self._nodes = self._cluster.recent_nodes(progressive=True)
            failures += self._nodes.failures
        except UpstreamError as exc:
            # Whom we knew we still know.
            failures += exc.failures
        answers, failed = self._cluster.counters(self._nodes.nodes)
        failures += failed
        at = time.monotonic()
        stats = {node: answer.stats for node, answer in answers.items()}
        taken = samples(stats)
        with self._changed:
            self._histories.add_round(
                taken, {node.address: answer.at for node, answer in answers.items()})
            rows = build_rows(stats, self._nodes.registered, self._histories)
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
        # Of the whole process: answering the pages counts as well.
        cost = time.process_time() - cpu
        interval = min(max(self._cluster.settings.refresh_interval, cost * _REST),
                       _LONGEST_INTERVAL)
        overview = Overview(
            serial, max(begun, at), interval, rows, changed, removed_at, self._nodes.nodes,
            frozenset(node.address for node in stats),
            {node.address: len(objects(answer, "topics")) for node, answer in stats.items()},
            tuple(dict.fromkeys(failures)),
        )
        with self._changed:
            self._latest = overview
            self._changed.notify_all()
        return interval
