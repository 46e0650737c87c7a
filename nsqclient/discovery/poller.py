"""``Poller``: asks nsqlookupds one question, each of them one request at a time.

When they are asked and what an answer means is the owner's business: a consumer asks for the nsqds
of its topic, a producer for all nsqds, or for the leaders of a topic's partitions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, Protocol, TypeVar

from nsqclient.errors import DiscoveryError
from nsqclient.runtime.lock import Lock
from nsqclient.sanitize import without_password

logger: logging.Logger = logging.getLogger("nsqclient.discovery")

A = TypeVar("A")
_A = TypeVar("_A", contravariant=True)


class PollerDelegate(Protocol[_A]):
    """What a Poller calls."""

    def merge(
        self, lookupd: str, answer: _A | None, error: DiscoveryError | None
    ) -> Iterable[str]:
        """Take in an answer, or a failure; return further nsqlookupds to ask.

        Called with the lock, together with the end of the request.
        """
        ...

    def report(self, lookupd: str, answer: _A | None, error: DiscoveryError | None) -> None:
        """Act on an answer, or a failure. Called without the lock."""
        ...


class Poller(Generic[A]):
    """The requests under way to the nsqlookupds of one question.

    Args:
        question: asks one nsqlookupd; blocks, and raises DiscoveryError.
        run: queues a function that asks this nsqlookupd, for a thread that may block.
        lock: the owner's; guards all that is here.

    Threads: any.
    """

    def __init__(
        self, question: Callable[[str], A], run: Callable[[str, Callable[[], None]], None],
        lock: Lock, delegate: PollerDelegate[A],
    ) -> None:
        self._question = question
        self._run = run
        self._lock = lock
        self._delegate = delegate
        #: nsqlookupd -> the number of the request to it, and when it was made, on time.monotonic()
        self._asking: dict[str, tuple[int, float]] = {}
        self._again: set[str] = set()  # to be asked once more when they have answered
        self.requests: int = 0  #: made so far
        self.answered: int = 0  #: the highest number of a request with an answer

    @property
    def is_asking(self) -> bool:
        """Return whether a request is under way. Needs the lock."""
        return bool(self._asking)

    def late(self, seconds: float) -> set[str]:
        """Return the nsqlookupds that have not answered for so long. Needs the lock."""
        until = time.monotonic() - seconds
        return {lookupd for lookupd, (_, since) in self._asking.items() if since < until}

    def all_late(self, seconds: float) -> bool:
        """Return whether no answer can be expected soon. Needs the lock."""
        return len(self.late(seconds)) == len(self._asking)

    def ask(self, lookupds: Iterable[str], again: bool = False) -> None:
        """Ask these nsqlookupds soon, save those with a request under way. Needs the lock.

        Args:
            again: those are asked once more when they have answered.
        """
        request = self.requests + 1, time.monotonic()
        for lookupd in lookupds:
            if lookupd not in self._asking:
                # In this order: an exception of a signal handler in between must not leave a
                # request that is waited for and was never queued.
                self._run(lookupd, partial(self._ask, lookupd))
                self._asking[lookupd] = request
            else:
                self._again.update([lookupd] * again)
        self.requests += 1

    def _ask(self, lookupd: str) -> None:
        """Ask one nsqlookupd. On a background thread."""
        answer = error = None
        try:
            answer = self._question(lookupd)
        except DiscoveryError as exc:
            error = exc
        except Exception as exc:  # otherwise the owner would wait forever
            logger.exception("unexpected error in the lookup at %s", without_password(lookupd))
            error = DiscoveryError(lookupd, repr(exc))
        with self._lock:
            number, _ = self._asking.pop(lookupd, (0, 0.0))
            further = list(self._delegate.merge(lookupd, answer, error))
            if answer is not None:
                self.answered = max(self.answered, number)
                if lookupd in self._again:
                    further.append(lookupd)
            self._again.discard(lookupd)
            if further:
                self.ask(further)
        self._delegate.report(lookupd, answer, error)
