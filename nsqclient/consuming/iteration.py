"""``for message in consumer.messages()``: the caller's thread takes the place of the workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nsqclient.consuming.handling import Handling
from nsqclient.message import Message
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.workers import WorkerPool


class Loops:
    """Counts the loops over the messages of one consumer, and pauses it while there is none.

    Messages that nobody takes would expire in our queue, one attempt after the other.
    """

    def __init__(self, set_paused: Callable[[bool], None]) -> None:
        self._set_paused = set_paused
        self._lock = threading.Lock()
        self.count = 0  #: loops that run; written under _lock

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one for the time of the block."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, number: int) -> None:
        with self._lock:
            self.count += number
        while True:
            paused = self.count == 0
            self._set_paused(paused)
            if paused == (self.count == 0):
                return  # else another loop began or ended meanwhile


def iterate(
    workers: WorkerPool[Message],
    handling: Handling,
    loops: Loops,
    timeout: float | None,
    is_over: Callable[[], bool],
    check_connected: Callable[[float], None],
) -> Iterator[Message]:
    """Yield messages until none has come for ``timeout`` seconds, or the consumer stops.

    Before it ends because none has come, it calls ``check_connected`` with the time of
    time.monotonic() from which on it waited; what this raises, ends the loop instead.

    A message is finished when the next one is asked for, unless it was answered or is async.
    When the loop is left in the middle of a turn, nobody can say whether the work was done: the
    message is given back at once.
    """
    with loops.one_more():
        since, deadline = time.monotonic(), Deadline(timeout)
        while not is_over():
            # Answers of the turn before leave before we wait.
            if not len(workers):
                handling.flush()
            message = workers.take_one(deadline.remaining())
            if message is None:
                if not is_over():
                    check_connected(since)
                break
            sub = handling.admit(message)
            if sub is None:
                continue
            handling.begin_turn(message)
            try:
                if is_over():
                    # Else a stop that saw no turn could close the connection under this one.
                    sub.hand_back([message])
                    break
                try:
                    yield message
                except GeneratorExit:
                    if not (message.has_responded or message.is_async):
                        message.requeue(delay=0, backoff=False)
                    raise
                if not (message.has_responded or message.is_async):
                    handling.finish(message, sub)
            finally:
                handling.end_turn(message)
            since, deadline = time.monotonic(), Deadline(timeout)
        handling.flush()
