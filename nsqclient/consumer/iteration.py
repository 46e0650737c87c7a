"""``for message in consumer.messages()``: the caller's thread takes the place of the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
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
    processor = core.processor
    message: Message | None = None  # of this turn
    since, deadline = time.monotonic(), Deadline(timeout)

    def is_over() -> bool:
        return core.shutdown.has_begun

    core.flow.begin_loop(loop)
    try:
        while not is_over():
            # Answers of the turn before leave before we wait.
            if not len(processor.workers):
                processor.flush()
            message = processor.workers.take(deadline.remaining())
            if message is None:
                if is_over() or is_end(since):
                    break
                yield from idle
                deadline = Deadline(timeout)
                continue
            sub = processor.should_handle(message, time.monotonic())
            if sub is None:
                message = None
                continue
            processor.begin_iteration(message)
            if is_over():
                # Else a stop that saw no turn could close the connection under this one.
                sub.requeue_unstarted([message])
                break
            yield message
            if not (message.has_responded or message.is_async):
                processor.finish(message, sub)
            processor.end_iteration(message)
            message = None
            since, deadline = time.monotonic(), Deadline(timeout)
        processor.flush()
    finally:
        # The loop was left in the middle of a turn, or a signal handler raised.
        try:
            _end(core, message, loop)
        except BaseException:  # a signal handler raised once more
            _end(core, message, loop)
            raise


def _end(core: ConsumerCore, message: Message | None, loop: object) -> None:
    """End a loop, and requeue the message of its turn. Idempotent."""
    try:
        if message is not None and not (message.has_responded or message.is_async):
            message.requeue(delay=0, backoff=False)
    finally:
        if message is not None:
            core.processor.end_iteration(message)
        core.flow.end_loop(loop)
