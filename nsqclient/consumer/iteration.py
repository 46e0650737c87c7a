"""``for message in consumer.messages()``: the caller's thread takes the place of the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar, Union

from nsqclient.consumer.core import ConsumerCore
from nsqclient.message import Message
from nsqclient.runtime.deadline import Deadline

T = TypeVar("T")


def iterate(
    core: ConsumerCore,
    timeout: float | None,
    is_end: Callable[[float], bool],
    idle: Iterable[T] = (),
) -> Generator[Union[Message, T], None, None]:
    """Yield messages until the consumer stops, or ``is_end`` returns true.

    When none has come for ``timeout`` seconds, ``is_end`` is called with the time of
    time.monotonic() from which on it waits; where it returns False, ``idle`` is yielded, and the
    loop waits on. What it raises ends the loop.

    A message is finished when the next one is asked for, unless it was answered or is async.
    When the loop is left in the middle of a turn, nobody can say whether the work was done: the
    message is requeued at once.
    """
    loop = object()
    taken: list[Message] = []  # the message of this turn
    try:
        core.flow.begin_loop(loop)
        yield from _turns(core, taken, timeout, is_end, idle)
    finally:
        # The loop was left in the middle of a turn, or a signal handler raised.
        try:
            _end(core, taken, loop)
        except BaseException:  # a signal handler raised once more
            _end(core, taken, loop)
            raise


def _turns(
    core: ConsumerCore, taken: list[Message], timeout: float | None,
    is_end: Callable[[float], bool], idle: Iterable[T],
) -> Iterator[Union[Message, T]]:
    """Take and yield the messages; ``taken`` holds the one of this turn.

    Apart from the ``try`` of iterate(): in Python 3.13 an exception of a signal handler at the jump
    back to the start of a loop passes by the ``finally`` around it.
    """
    processor = core.processor

    def is_over() -> bool:
        return core.shutdown.has_begun

    since, deadline = time.monotonic(), Deadline(timeout)
    while not is_over():
        # Answers of the turn before leave before we wait.
        if not len(processor.workers):
            processor.flush()
        if not processor.workers.take_into(taken, deadline.remaining()):
            if is_over() or is_end(since):
                break
            yield from idle
            deadline = Deadline(timeout)
            continue
        message = taken[0]
        sub = processor.should_handle(message, time.monotonic())
        if sub is None:
            taken.clear()
            continue
        processor.begin_iteration(message)
        if is_over():
            # Else a stop that saw no turn could close the connection under this one.
            sub.requeue_unstarted(taken)
            break
        yield message
        if not (message.has_responded or message.is_async):
            processor.finish(message, sub)
        processor.end_iteration(message)
        taken.clear()
        since, deadline = time.monotonic(), Deadline(timeout)
    processor.flush()


def _end(core: ConsumerCore, taken: list[Message], loop: object) -> None:
    """The loop is over, and its turn: give its message back. Idempotent."""
    try:
        for message in taken:
            if not (message.has_responded or message.is_async):
                message.requeue(delay=0, backoff=False)
    finally:
        for message in taken:
            core.processor.end_iteration(message)
        core.flow.end_loop(loop)
