"""Where nsq_to_nsq publishes to: which of several nsqds gets a message."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from nsqclient import Config, InvalidMessageError, NSQError, Producer, PublishRejected
from nsqclient.runtime.plurals import counted

logger = logging.getLogger("nsqclient.cli")

MODES = ("hostpool", "round-robin", "epsilon-greedy")

#: Seconds for which a destination that failed is left alone while another one works.
_REST = 10.0
#: Part of the messages that epsilon-greedy sends anywhere, to learn how fast it is there.
_EPSILON = 0.1
#: Weight of the newest time in the mean of a destination.
_NEWEST = 0.1


class Destination:
    """One choice: an nsqd, or in the mode hostpool all of them. Threads: any."""

    def __init__(self, name: str, producer: Producer, status_every: int) -> None:
        self.name = name
        self.producer = producer
        self.rests_until = 0.0  # on time.monotonic()
        self.mean = 0.0  # seconds until a message was stored; the newest count most
        self._every = status_every
        self._lock = threading.Lock()
        self._count = 0  # guarded by _lock, as those below
        self._slowest = 0.0
        self._sum = 0.0

    def stored(self, seconds: float) -> None:
        """A message was stored; say so now and then."""
        with self._lock:
            self.rests_until = 0.0
            self.mean += (seconds - self.mean) * (_NEWEST if self._count else 1.0)
            self._count += 1
            self._sum += seconds
            self._slowest = max(self._slowest, seconds)
            if not self._every or self._count % self._every:
                return
            count, mean, slowest = self._count, self._sum / self._every, self._slowest
            self._sum = self._slowest = 0.0
        logger.info("%s: %s; the last %d took %.1f ms on average, at most %.1f ms",
                    self.name, counted(count, "message"), self._every, mean * 1000, slowest * 1000)

    def failed(self) -> None:
        """A message was not stored."""
        self.rests_until = time.monotonic() + _REST


class Destinations:
    """All nsqds that messages go to.

    In the mode ``hostpool`` one Producer has all of them: it takes those that are connected in
    turn, and moves a message to another one when one fails. In the other modes each nsqd has a
    Producer of its own, and one that failed rests while another one works.

    Threads: any.
    """

    def __init__(
        self, addresses: Sequence[str], mode: str, config: Config, status_every: int
    ) -> None:
        groups = [addresses] if mode == "hostpool" else [[address] for address in addresses]
        self._all = [
            Destination(", ".join(group), Producer(group, config=config), status_every)
            for group in groups
        ]
        self._greedy = mode == "epsilon-greedy"
        self._lock = threading.Lock()
        self._turn = 0  # guarded by _lock
        self._rng = random.Random()

    def choose(self, other_than: Destination | None = None) -> Destination:
        """Return the destination of the next message."""
        now = time.monotonic()
        choice = [item for item in self._all if item is not other_than] or self._all
        choice = [item for item in choice if item.rests_until <= now] or choice
        if self._greedy and self._rng.random() >= _EPSILON:
            return min(choice, key=lambda item: item.mean)
        with self._lock:
            self._turn += 1
            return choice[self._turn % len(choice)]

    def __len__(self) -> int:
        return len(self._all)

    def close(self) -> None:
        """Close all connections."""
        for destination in self._all:
            destination.producer.close()


def is_about_the_message(error: NSQError) -> bool:
    """Tell whether the destination refuses this message, now and later, and may take others."""
    return isinstance(error, InvalidMessageError) or (
        isinstance(error, PublishRejected) and not error.retryable)


class Attempt:
    """One message on its way to a destination, and to a second one if the first fails."""

    def __init__(self, destinations: Destinations, topic: str, body: bytes, timeout: float) -> None:
        self._destinations = destinations
        self._topic = topic
        self._body = body
        self._began = time.monotonic()
        self._until = self._began + timeout
        self._to = destinations.choose()
        # The second one needs its time too.
        self._future = self._publish(timeout / 2 if len(destinations) > 1 else timeout)

    def result(self) -> None:
        """Wait until it is stored.

        Raises:
            NSQError: it is not, or nobody knows.
        """
        try:
            self._future.result()
        except NSQError as exc:
            self._note(exc)
            if len(self._destinations) == 1:
                raise
            logger.warning("%s: %s; trying another destination", self._to.name, exc)
            self._to = self._destinations.choose(other_than=self._to)
            try:
                self._publish(max(0.1, self._until - time.monotonic())).result()
            except NSQError as exc_again:
                self._note(exc_again)
                raise
        self._to.stored(time.monotonic() - self._began)

    def _note(self, error: NSQError) -> None:
        if not is_about_the_message(error):
            self._to.failed()

    def _publish(self, timeout: float) -> Future[None]:
        return self._to.producer.publish_async(self._topic, self._body, timeout=timeout)
