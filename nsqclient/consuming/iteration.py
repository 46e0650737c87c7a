"""``for message in consumer.messages()``: the caller's thread takes the place of the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

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
        self._running: set[object] = set()  # changed by single calls, which no signal interrupts

    @property
    def count(self) -> int:
        """How many loops run."""
        return len(self._running)

    def begin(self, loop: object) -> None:
        """A loop begins; ``end`` belongs into the ``finally`` of a ``try`` around this."""
        self._running.add(loop)
        self._apply()

    def end(self, loop: object) -> None:
        """A loop has ended. Idempotent."""
        self._running.discard(loop)
        self._apply()

    def _apply(self) -> None:
        while True:
            paused = not self._running
            self._set_paused(paused)
            if paused == (not self._running):
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
    loop = object()
    taken: list[Message] = []  # the message of this turn
    try:
        loops.begin(loop)
        since, deadline = time.monotonic(), Deadline(timeout)
        while not is_over():
            # Answers of the turn before leave before we wait.
            if not len(workers):
                handling.flush()
            if not workers.take_into(taken, deadline.remaining()):
                if not is_over():
                    check_connected(since)
                break
            message = taken[0]
            sub = handling.admit(message)
            if sub is None:
                taken.clear()
                continue
            handling.begin_turn(message)
            if is_over():
                # Else a stop that saw no turn could close the connection under this one.
                sub.hand_back(taken)
                break
            yield message
            if not (message.has_responded or message.is_async):
                handling.finish(message, sub)
            handling.end_turn(message)
            taken.clear()
            since, deadline = time.monotonic(), Deadline(timeout)
        handling.flush()
    finally:
        # The loop was left in the middle of a turn, or a signal handler raised.
        try:
            _end(handling, loops, taken, loop)
        except BaseException:  # a signal handler raised once more
            _end(handling, loops, taken, loop)
            raise


def _end(handling: Handling, loops: Loops, taken: list[Message], loop: object) -> None:
    """The loop is over, and its turn: give its message back. Idempotent."""
    try:
        for message in taken:
            if not (message.has_responded or message.is_async):
                message.requeue(delay=0, backoff=False)
    finally:
        for message in taken:
            handling.end_turn(message)
        loops.end(loop)
