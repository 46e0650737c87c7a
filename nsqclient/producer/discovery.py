"""``NodeDiscovery``: asks nsqlookupds for all nsqds of the cluster, now and then."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from nsqclient.config import Config
from nsqclient.discovery import lookup_nodes
from nsqclient.discovery.poller import Poller
from nsqclient.errors import DiscoveryError
from nsqclient.hints import with_hint
from nsqclient.producer.nodes import NodePool
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import jittered, reconnect_delay
from nsqclient.runtime.dial_queue import DIRECT
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds that stop() waits for an nsqlookupd that does not answer.
_GRACE = 0.5


class NodeDiscovery:
    """Keeps the addresses of a producer's NodePool; does nothing where no nsqlookupd was given.

    Life: ``start()`` (idempotent, cheap), ``stop()``. Threads: any.
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
        self._answers: dict[str, list[str]] = {}  # by lookupd; guarded by _lock, as below
        self._failed_rounds = 0
        self._has_begun = False  # the first round, on the timer's thread
        self._timer = Timer()
        # One thread for each, so that an nsqlookupd that hangs delays no other.
        self._background: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-background", len(lookupds), lambda task: task())
        self._poller: Poller[list[str]] = Poller(
            lambda lookupd: lookup_nodes(lookupd, config),
            lambda lookupd, task: self._background.put(task), self._lock, self)
        self.has_started: bool = not lookupds  #: or nothing is to be done; read without the lock

    def start(self) -> None:
        """Begin to ask, with the first publish.

        Raises:
            RuntimeError: the system has no thread left.
        """
        if not self.has_started:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self.has_started:
                return
            # An exception of a signal handler may end this anywhere: the next publish completes it.
            self._timer.start()
            self._background.start()
            self._timer.schedule(0.0, self._begin)
            self.has_started = True

    def stop(self, deadline: Deadline) -> list[str]:
        """Ask no more; return the names of threads that stay (a lookup may take long)."""
        with self._lock:
            self.has_started = True
        self._timer.stop(deadline)
        self._background.take_all()
        return self._background.stop(Deadline(deadline.at_most(_GRACE)))

    def _begin(self) -> None:
        """Do the first round, once. On the timer's thread."""
        if not self._has_begun:
            self._has_begun = True
            self._round()

    def _round(self) -> None:
        """Ask all that are not being asked. On the timer's thread, where no signal handler runs."""
        config = self._config
        with self._lock:
            delay = jittered(config.lookupd_poll_interval, config.lookupd_poll_jitter, self._rng)
            if not self._answers:  # nobody is known yet: soon again
                self._failed_rounds += 1
                delay = min(delay, reconnect_delay(self._failed_rounds, delay, self._rng))
            self._poller.ask(self._lookupds)
        self._timer.schedule(delay, self._round)

    # -- for the Poller

    def merge(
        self, lookupd: str, answer: list[str] | None, error: DiscoveryError | None
    ) -> list[str]:
        """Keep the last answer that names an nsqd. Needs the lock."""
        if answer:
            self._answers[lookupd] = answer
        return []

    def report(
        self, lookupd: str, answer: list[str] | None, error: DiscoveryError | None
    ) -> None:
        """Use what the nsqlookupds name; log a failure."""
        if error is not None:
            logger.warning("no answer from %s", with_hint(error))
            self._nodes.discovery_error = error
            return
        with self._lock:
            named = {DIRECT: self._nsqds, **self._answers}
        self._nodes.set_addresses(named)
