"""``ProcessProducer``: one Producer for each process, made when the first message is published."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable

from nsqclient.producer import Producer
from nsqclient.runtime.exit_status import fail_exit
from nsqclient.runtime.forking import notify_after_fork

logger = logging.getLogger("nsqclient.producer")

#: Seconds that the end of the process waits for publishes without a verdict.
EXIT_TIMEOUT = 5.0


class ProcessProducer:
    """Holds the producer of a process.

    Args:
        make: builds the Producer; called once in a process, by the first caller of ``get``.

    Life: created (nothing is made), ``get()``, ``close()``; ``get()`` after ``close()`` makes a
    new producer. At the end of the process it closes by itself, for 5 s at most. A child that
    was forked (gunicorn with ``--preload``) has a producer of its own.
    Threads: any.
    """

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._producer: Producer | None = None  # guarded by _lock
        notify_after_fork(self)
        _all.add(self)

    def after_fork_in_child(self) -> None:
        """For the library: the lock may be held by a thread that only the parent has."""
        # The producer itself, where there is one, starts afresh in the child.
        self._lock = threading.Lock()

    def get(self) -> Producer:
        """Return the producer; make it where there is none."""
        with self._lock:
            if self._producer is None:
                self._producer = self._make()
            return self._producer

    def close(self, timeout: float = EXIT_TIMEOUT) -> bool:
        """Close the producer, if one was made; return whether everything had its verdict.

        Blocks: at most ``timeout`` seconds.
        """
        with self._lock:
            producer, self._producer = self._producer, None
        return producer is None or producer.close(timeout)


_all: weakref.WeakSet[ProcessProducer] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    # Later than the handlers of requests: a web server's worker ends when they have.
    for holder in list(_all):
        if not holder.close(EXIT_TIMEOUT):
            logger.error("the producer of this process did not close in %g s", EXIT_TIMEOUT)
            fail_exit("the producer of this process did not close in time")
