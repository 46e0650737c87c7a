"""``NodeDiscovery``: periodically asks nsqlookupds for all nsqds of the cluster."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable

from nsqclient.config import Config
from nsqclient.discovery import Poller, lookup_nodes
from nsqclient.errors import DiscoveryError, with_hint
from nsqclient.producer.nodes import NodePool
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import lookup_delay
from nsqclient.runtime.dialing import DIRECT
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.workers import WorkerPool

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds that stop() waits for an nsqlookupd that does not answer.
_GRACE = 0.5


class NodeDiscovery:
    """Keeps the addresses of a producer's NodePool; does nothing without an nsqlookupd.

    Lifecycle: asks as soon as the timer runs; ``stop()``. Threads: the timer, background threads.
    """

    def __init__(
        self, lookupds: list[str], nsqds: list[str], config: Config, nodes: NodePool
    ) -> None:
        self._lookupds = lookupds
        self._nsqds = nsqds
        self._config = config
        self._nodes = nodes
        self._rng = random.Random()
        self._lock = Lock()
        self._answers: dict[str, list[str]] = {}  # nsqlookupd -> addresses; guarded by _lock
        #: Rounds in a row that began before any nsqd was known. Used only by the timer.
        self._unknown_rounds = 0
        self._due = 0.0 if lookupds else math.inf  # when the next round begins
        # One thread for each, so that an nsqlookupd that hangs does not delay others.
        self._background: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-background", len(lookupds), lambda task: task())
        self._poller: Poller[list[str]] = Poller(
            lambda lookupd: lookup_nodes(lookupd, config),
            lambda lookupd, task: self._background.put(task), self._lock,
            self._merge, self._report)
        nodes.timer.checks.append(self.check)

    def stop(self, deadline: Deadline) -> list[str]:
        """Stop asking; return the names of threads that still run (a lookup may take long)."""
        self._due = math.inf
        self._background.take_all()
        return self._background.stop(Deadline(deadline.at_most(_GRACE)))

    def check(self, now: float) -> float:
        if now >= self._due:
            self._due = now + self._round()
        return self._due

    def _round(self) -> float:
        """Ask all that are not being asked; return the seconds to the next round."""
        config = self._config
        self._unknown_rounds = 0 if self._answers else self._unknown_rounds + 1
        delay = lookup_delay(
            self._unknown_rounds, config.lookupd_poll_interval, config.lookupd_poll_jitter,
            self._rng)
        try:
            self._background.start()
        except RuntimeError as exc:
            logger.error("cannot start a thread to ask nsqlookupds, trying again: %s", exc)
            return delay
        with self._lock:
            self._poller.ask(self._lookupds)
        return delay

    # -- for the Poller

    def _merge(
        self, lookupd: str, answer: list[str] | None, error: DiscoveryError | None
    ) -> list[str]:
        # An empty answer is forgotten: the nsqlookupd may have restarted.
        if answer:
            self._answers[lookupd] = answer
        return []

    def _report(
        self, lookupd: str, answer: list[str] | None, error: DiscoveryError | None
    ) -> None:
        if error is not None:
            logger.warning("no answer from %s", with_hint(error))
            self._nodes.discovery_error = error
            return
        with self._lock:
            named = {DIRECT: self._nsqds, **self._answers}
        self._nodes.set_addresses(named)
