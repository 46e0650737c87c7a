"""``for message in consumer.messages()``: the caller's thread takes the place of the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.processor import MessageProcessor
from nsqclient.message import Message
from nsqclient.runtime.deadline import Deadline


def iterate(
    processor: MessageProcessor,
    flow: FlowControl,
    timeout: float | None,
    is_over: Callable[[], bool],
    is_end: Callable[[float], bool],
) -> Generator[Message, None, None]:
    """Yield messages until the consumer stops, or ``is_end`` returns true.

    When none has come for ``timeout`` seconds, ``is_end`` is called with the time of
    time.monotonic() from which on it waits; where it returns False, the loop waits on. What it
    raises ends the loop.

    A message is finished when the next one is asked for, unless it was answered or is async.
    When the loop is left in the middle of a turn, nobody can say whether the work was done: the
    message is requeued at once.
    """
    loop = object()
    taken: list[Message] = []  # the message of this turn
    try:
        flow.begin_loop(loop)
        yield from _turns(processor, taken, timeout, is_over, is_end)
    finally:
        # The loop was left in the middle of a turn, or a signal handler raised.
        try:
            _end(processor, flow, taken, loop)
        except BaseException:  # a signal handler raised once more
            _end(processor, flow, taken, loop)
            raise


def _turns(
    processor: MessageProcessor,
    taken: list[Message],
    timeout: float | None,
    is_over: Callable[[], bool],
    is_end: Callable[[float], bool],
) -> Iterator[Message]:
    """Take and yield the messages; ``taken`` holds the one of this turn.

    Apart from the ``try`` of iterate(): in Python 3.13 an exception of a signal handler at the jump
    back to the start of a loop passes by the ``finally`` around it.
    """
    since, deadline = time.monotonic(), Deadline(timeout)
    while not is_over():
        # Answers of the turn before leave before we wait.
        if not len(processor.workers):
            processor.flush()
        if not processor.workers.take_into(taken, deadline.remaining()):
            if is_over() or is_end(since):
                break
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


def _end(
    processor: MessageProcessor, flow: FlowControl, taken: list[Message], loop: object
) -> None:
    """The loop is over, and its turn: give its message back. Idempotent."""
    try:
        for message in taken:
            if not (message.has_responded or message.is_async):
                message.requeue(delay=0, backoff=False)
    finally:
        for message in taken:
            processor.end_iteration(message)
        flow.end_loop(loop)
