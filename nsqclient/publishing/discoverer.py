"""``Discoverer``: asks nsqlookupds for all nsqds of the cluster, now and then."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from nsqclient.config import Config
from nsqclient.discovery import nodes
from nsqclient.errors import DiscoveryError
from nsqclient.flow.delays import jittered, reconnect_delay
from nsqclient.publishing.links import Links
from nsqclient.runtime.timer import Timer

logger = logging.getLogger("nsqclient.producer")


class Discoverer:
    """Keeps the addresses of a producer's Links; does nothing where no nsqlookupd was given.

    Life: ``start()`` (idempotent, cheap), ``stop()``. Threads: any.
    """

    def __init__(
        self, lookupds: list[str], nsqds: list[str], config: Config, links: Links
    ) -> None:
        self._lookupds = lookupds
        self._nsqds = nsqds
        self._config = config
        self._links = links
        self._rng = random.Random()
        self._lock = threading.Lock()
        self._answers: dict[str, list[str]] = {}  # by lookupd; guarded by _lock, as below
        self._failed_rounds = 0
        self._timer: Timer | None = None
        self._has_started = not lookupds  # read without the lock

    def start(self) -> None:
        """Begin to ask, with the first publish."""
        if not self._has_started:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._timer is not None or self._has_started:
                return
            self._timer = Timer()
            self._timer.start()
            self._has_started = True
        self._round()

    def stop(self) -> None:
        """Ask no more."""
        with self._lock:
            self._has_started = True
            timer = self._timer
        if timer is not None:
            timer.stop()

    def _round(self) -> None:
        config = self._config
        with self._lock:
            timer = self._timer
            delay = jittered(config.lookupd_poll_interval, config.lookupd_poll_jitter, self._rng)
            if not self._answers:  # nobody is known yet: soon again
                self._failed_rounds += 1
                delay = min(delay, reconnect_delay(self._failed_rounds, delay, self._rng))
        if timer is not None:
            timer.schedule(delay, self._round)
        for lookupd in self._lookupds:
            self._links.run_chore(self._asker(lookupd))

    def _asker(self, lookupd: str) -> Callable[[], None]:
        return lambda: self._ask(lookupd)

    def _ask(self, lookupd: str) -> None:
        try:
            addresses = nodes(lookupd, self._config)
        except DiscoveryError as exc:
            logger.warning("%s", exc)
            self._links.discovery_error = exc
            return
        with self._lock:
            if addresses:
                self._answers[lookupd] = addresses
            union = {address for answer in self._answers.values() for address in answer}
        self._links.set_addresses(union | set(self._nsqds))
