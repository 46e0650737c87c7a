"""``for message in consumer.messages()``: the caller's thread takes the place of the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nsqclient.consuming.handling import Handling
from nsqclient.message import Message
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.workers import WorkerPool


def iterate(
    workers: WorkerPool[Message],
    handling: Handling,
    timeout: float | None,
    is_over: Callable[[], bool],
) -> Iterator[Message]:
    """Yield messages until none has come for ``timeout`` seconds, or the consumer stops.

    A message is finished when the next one is asked for, unless it was answered or is async.
    When the loop is left in the middle of a turn, nobody can say whether the work was done: the
    message is given back at once.
    """
    deadline = Deadline(timeout)
    while not is_over():
        # Answers of the turn before leave before we wait.
        if not len(workers):
            handling.flush()
        message = workers.take_one(deadline.remaining())
        if message is None:
            break
        sub = handling.admit(message)
        if sub is None:
            continue
        handling.begin_turn(message)
        try:
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
        deadline = Deadline(timeout)
    handling.flush()
