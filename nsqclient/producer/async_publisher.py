"""``AsyncPublisher``: asynchronous publishes. Messages that wait together share an MPUB.

Each topic has a queue. A worker, a thread ``nsq-publisher-N``, takes all messages of a queue,
publishes them as ``publish()`` does, and takes the messages that were queued meanwhile: under load
the batches grow. One worker at a time serves a topic, so messages leave in the order of the calls.

A call that queues a message holds no lock: a finalizer or a signal handler may make it in the
middle of another one. If an exception comes between two of its steps, which are single calls of C,
the message is taken back, or the timer does the next step.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nsqclient.display import counted
from nsqclient.errors import (
    ClosedError,
    ConfigError,
    NSQError,
    PublishError,
    PublishNotSentError,
    PublishUnknownError,
    ReentrantCallError,
    as_cause,
)
from nsqclient.producer.futures import (
    PublishFuture, UnretrievedErrors, renew_lock, start_all, succeed_all,
)
from nsqclient.producer.outcome import Attempts
from nsqclient.producer.pipelined import PipelinedConnection
from nsqclient.producer.publisher import Publisher
from nsqclient.producer.stats import Statistics
from nsqclient.producer.timer import PoolTimer
from nsqclient.protocol import commands
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock, Monitor
from nsqclient.runtime.threads import need_threads, owner_of_thread
from nsqclient.runtime.workers import WorkerPool

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Maximum messages and bytes of one MPUB: well below nsqd's limits, and quick to store.
_BATCH_MESSAGES = 2000
_BATCH_BYTES = 1024 * 1024
#: Messages whose deadlines are further apart, in seconds, do not share an MPUB.
_DEADLINE_SPREAD = 0.5
#: Maximum number of concurrent publishes, each in its own thread. Few are needed if nsqds answer.
_MAX_WORKERS = 64
#: Maximum number of topics with their own queue. Further topics share one.
_MAX_QUEUES = 1000
#: Seconds between two checks for queued messages whose deadline has passed.
_SWEEP = 0.25
#: A sent message without an outcome has lost its worker this many seconds after its deadline.
_LOST = 2.0
#: Seconds between two checks whether a thread waits for lingering messages.
_LINGER_STEP = 0.005


class Window(NamedTuple):
    """Limits for messages without an outcome, and how long a message waits for others."""

    messages: int
    size: int  #: total size of the bodies in bytes
    blocks: bool  #: a call that finds it full waits, or raises
    linger: float = 0.0  #: seconds


class Destination:
    """The messages that wait to be sent to one place, such as a topic.

    ``serve`` publishes the messages that can be sent now. It runs on a worker.
    """

    def __init__(self, serve: Callable[[], None]) -> None:
        self.serve = serve
        #: Any thread appends; the workers that serve it take the messages.
        self.items: deque[PublishFuture] = deque()
        self.serving: set[threading.Thread] = set()  # workers; each adds and removes itself
        self.width: int = 1  #: workers that may serve it at once
        self.is_called: bool = False  # a worker was requested
        self.resting_until: float = 0.0  # time before which it is not served, on time.monotonic()

    def has_turn(self) -> bool:
        return len(self.serving) < self.width

    def is_due(self, now: float) -> bool:
        return bool(self.items) and self.has_turn() and now >= self.resting_until


class AsyncPublisher:
    """The asynchronous publishes of one producer. Thread-safe.

    Args:
        take_over: may take all messages of a topic's queue to send them in another way, and returns
            True then. May block, and raises the error with which the first message fails.
    """

    def __init__(
        self, publisher: Publisher, timer: PoolTimer, window: Window, statistics: Statistics,
        max_body_size: int, take_over: Callable[[deque[PublishFuture]], bool],
    ) -> None:
        self._publisher = publisher
        self._timer = timer
        self._window = window
        self._statistics = statistics
        self._batch_bytes = min(_BATCH_BYTES, max_body_size)
        self._take_over = take_over
        #: All messages without an outcome; changed by atomic calls, as the queues below.
        self._unsettled: set[PublishFuture] = set()
        self._queues: dict[str, Destination] = {}  # key: topic
        self._workers: WorkerPool[Destination] = WorkerPool(
            "nsq-publisher", _MAX_WORKERS, self._serve_called)
        self._is_started = False
        self._resting: deque[tuple[float, Destination]] = deque()  # the timer calls them then
        self._turns = Lock()  # held while a worker begins to serve a queue
        #: Bytes of all bodies without an outcome. Threads may miscount it without the interpreter's
        #: lock; it is set right when nothing is pending.
        self._bytes = 0
        self._space = Monitor()  # threads wait for space in the window, or in flush()
        self._unretrieved = UnretrievedErrors()
        self._closed = False
        timer.checks.append(self.check)

    @property
    def pending(self) -> int:
        return len(self._unsettled)

    def topics(self) -> list[str]:
        return sorted({item.topic for item in self._unsettled.copy() if not item.done()})

    # -- for the callers

    def put(self, item: PublishFuture) -> None:
        """Queue a message.

        Blocks: while the window is full, until the item's deadline.

        Raises:
            PublishNotSentError: the window stayed full (at once, unless it blocks).
            ReentrantCallError: the window is full, and only the calling thread makes space.
            ClosedError: the producer was closed.
            RuntimeError: no thread can be started, or the interpreter is shutting down.
        """
        need_threads()
        size = len(item.body)
        if not self._has_space(size):
            self._wait_for_space(item, size)
        queue = self._queues.get(item.topic) or self._make_queue(item.topic)
        try:
            self._unsettled.add(item)
            self._bytes += size
            queue.items.append(item)
            if self._closed and item.cancel():
                raise ClosedError("the producer is closed")
            if not queue.is_called and queue.has_turn():
                self.call(queue)
        except BaseException:  # a signal handler raised, or no thread can be started
            if item.cancel():
                self._done([item])
            raise

    def _make_queue(self, topic: str) -> Destination:
        name = topic if len(self._queues) < _MAX_QUEUES else ""
        queue = Destination(lambda: self._serve(queue))
        return self._queues.setdefault(name, queue)

    def _has_space(self, size: int) -> bool:
        window = self._window
        return len(self._unsettled) < window.messages and self._bytes + size <= window.size

    def _wait_for_space(self, item: PublishFuture, size: int) -> None:
        if size > self._window.size:
            raise ConfigError(f"a body of {size} bytes is over max_pending_bytes")
        if self._window.blocks and self._is_own_thread():
            raise ReentrantCallError()
        left = item.until - time.monotonic()
        if not self._window.blocks or not self._wait(
            lambda: self._closed or self._has_space(size), left
        ):
            failure = PublishNotSentError(
                f"{counted(self.pending, 'publish', 'publishes')} without a result yet: raise"
                " max_pending or publish more slowly"
            )
            self._statistics.count_failure(failure)
            raise failure

    def _is_own_thread(self) -> bool:
        return (self._workers.is_worker() or self._timer.is_current()
                or isinstance(owner_of_thread(), PipelinedConnection))

    def _wait(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``condition()``, which a settled message may change; return it."""
        return self._space.wait_for(condition, 0.0 if sys.is_finalizing() else timeout)

    def flush(self, deadline: Deadline) -> bool:
        return self._wait(lambda: not self._unsettled, deadline.remaining())

    # -- workers

    def call(self, destination: Destination) -> None:
        """Let a worker serve it. Raises RuntimeError if no thread can be started."""
        if not self._is_started:
            self._timer.start()
            self._workers.start_another()
            self._is_started = True
        destination.is_called = True  # before it can be served, which ends that
        self._workers.put(destination)

    def call_later(self, destination: Destination, at: float) -> None:
        """Let a worker serve it at this time, on ``time.monotonic()``."""
        self._resting.append((at, destination))
        if at < self._timer.due:
            self._timer.wake()

    def _serve_called(self, destination: Destination) -> None:
        worker = threading.current_thread()
        destination.is_called = False
        self._start_another()  # this worker may be busy for long
        try:
            with self._turns:
                if not destination.has_turn():
                    return  # the other worker sees new messages
                destination.serving.add(worker)
            destination.serve()
        finally:
            destination.serving.discard(worker)
        if destination.is_due(time.monotonic()):
            self.call(destination)
        self._unretrieved.report()

    def _start_another(self) -> None:
        try:
            self._workers.start_another()
        except RuntimeError as exc:
            logger.debug("no thread for a further worker: %s", exc)

    def check(self, now: float) -> float:
        """Fail late messages, call workers for queues without one. On the timer."""
        due = math.inf
        for _ in range(len(self._resting)):
            at, destination = self._resting.popleft()
            if at <= now:
                self.call(destination)
            else:
                self._resting.append((at, destination))
                due = min(due, at)
        self._unretrieved.report()
        if not self._unsettled:
            self._bytes = 0
            return due
        for item in self._unsettled.copy():
            if item.until <= now:
                if item.done():  # an interrupted call has left it here
                    self._done([item])
                elif item.until + _LOST <= now:
                    self.fail(item, PublishUnknownError("the thread that sent it was interrupted"))
                elif item.until + _SWEEP <= now:  # not earlier: its worker knows a better reason
                    self.refuse(item, deadline_error())
        for queue in list(self._queues.copy().values()):
            if queue.is_due(now):
                self._start_another()  # a time limit may have ended one
                self.call(queue)
        return min(due, now + _SWEEP)

    # -- one topic, on a worker

    def _serve(self, queue: Destination) -> None:
        self.linger(queue.items)
        while queue.items:
            try:
                if self._take_over(queue.items):
                    continue
            except NSQError as exc:
                self.refuse(queue.items.popleft(), as_outcome(exc))
                continue
            if items := self.take(queue.items):
                self._publish(items)

    def linger(self, items: deque[PublishFuture]) -> None:
        """Wait for further messages, unless a thread waits for these."""
        until = time.monotonic() + self._window.linger
        while (left := until - time.monotonic()) > 0:
            if len(items) >= _BATCH_MESSAGES or self._space.is_awaited or self._closed:
                return
            time.sleep(min(left, _LINGER_STEP))

    def take(self, queue: deque[PublishFuture]) -> list[PublishFuture]:
        """Remove messages that may share a command; return the messages that may still be sent."""
        batch = _take_batch(queue, self._batch_bytes)
        started = start_all(batch)
        if len(started) < len(batch):
            self._done(list(set(batch).difference(started)))
        now = time.monotonic()
        late = [item for item in started if item.until <= now]
        for item in late:
            self.fail(item, deadline_error())
        return [item for item in started if item.until > now] if late else started

    def _publish(self, items: list[PublishFuture], maybe_stored: bool = False) -> None:
        first = items[0]
        if first.delay_ms is not None:  # such an item is alone
            command = commands.dpub(first.topic, first.delay_ms, first.body)
        else:
            command = commands.pub_or_mpub(first.topic, [item.body for item in items])
        until = max([item.until for item in items])
        attempts = Attempts(
            first.seconds, len(command), self._publisher.retry_unknown, len(items), maybe_stored)
        try:
            self._publisher.publish(command, until, first.seconds, attempts, is_async=True)
        except BaseException as exc:  # also of a time limit: the messages need an outcome
            if attempts.is_one_at_fault:
                self._statistics.count_retried(len(items))
                for item in items:
                    self._publish([item], attempts.maybe_stored)
                return
            error = as_outcome(exc)
            for item in items:
                self.fail(item, error)
        else:
            self.on_stored(items)

    # -- outcomes

    def on_stored(self, items: Sequence[PublishFuture], stored: object = None) -> None:
        # Before the outcomes are set, so that flush() and stats() agree with them.
        self._statistics.count_published(len(items))
        self._done(items)
        if stored is None:
            succeed_all(items)
        else:
            for item in items:
                item.set_result(stored)

    def fail(self, item: PublishFuture, error: Exception) -> None:
        """Settle a message that has begun and is not stored, or perhaps not."""
        # Its traceback would keep frames alive.
        if item.fail(as_cause(error), self._unretrieved.note) and isinstance(error, PublishError):
            self._statistics.count_failure(error)
        self._done([item])

    def refuse(self, item: PublishFuture, error: Exception) -> None:
        """Fail a message that was not sent, unless it was cancelled or has begun."""
        if start_all([item]):
            self.fail(item, error)
            item.body = b""  # its queue may keep it while a worker waits
        elif item.done():
            self._done([item])

    def _done(self, items: Sequence[PublishFuture]) -> None:
        self._unsettled.difference_update(items)
        size = sum([len(item.body) for item in items])
        self._bytes -= size  # without a call in between, in which another thread may change it
        self._space.notify_all()

    # -- outcomes and closing

    def close(self, deadline: Deadline) -> bool:
        """Refuse new messages, fail all messages without an outcome, and end the threads."""
        self._closed = True
        self._end()
        is_clean = not self._workers.stop(deadline)
        self._end()
        for item in self._unsettled.copy():
            if not item.done():
                self.fail(item, PublishUnknownError("the producer was closed before the outcome"))
        self._space.notify_all()
        self.report_unretrieved()
        return is_clean

    def _end(self) -> None:
        """Fail the messages that no worker has begun."""
        for item in start_all(list(self._unsettled.copy())):
            self.fail(item, closed_error())

    def report_unretrieved(self) -> None:
        self._unretrieved.report(at_once=True)

    def abandon(self) -> None:
        """In a forked child: fail the inherited Futures, and nothing else."""
        renew_lock()  # the hook of its module may come after this one
        for item in self._unsettled.copy():
            item.abandon()


def _take_batch(queue: deque[PublishFuture], max_bytes: int) -> list[PublishFuture]:
    """Remove at least one message, even one that is too large. Others may append meanwhile."""
    first = queue.popleft()
    batch = [first]
    size = 8 + len(first.body)
    while queue and len(batch) < _BATCH_MESSAGES:
        one = queue.popleft()
        size += 4 + len(one.body)
        if (
            size > max_bytes or one.topic != first.topic or one.alone or first.alone
            or abs(one.until - first.until) > _DEADLINE_SPREAD
        ):
            queue.appendleft(one)
            break
        batch.append(one)
    return batch


def as_outcome(error: BaseException) -> Exception:
    """Return the error of a message whose publish has raised ``error``."""
    if isinstance(error, ClosedError):
        return closed_error()
    if isinstance(error, NSQError):
        return error
    logger.error("the publisher failed; it continues", exc_info=error)
    return PublishUnknownError(f"internal error: {error!r}")


def deadline_error() -> PublishError:
    return PublishNotSentError("the deadline came before it could be sent")


def closed_error() -> PublishError:
    return PublishNotSentError("the producer was closed before it was sent")
