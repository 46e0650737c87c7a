"""``AsyncPublisher``: asynchronous publishes; those that wait together share an MPUB.

One thread, ``nsq-publisher``, takes what is queued, makes commands of it and sends them. It sends
only while few are unanswered, so that under load the queue fills and the batches grow.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Optional

from nsqclient.display import counted
from nsqclient.errors import (
    ClosedError,
    ConfigError,
    ConnectError,
    NSQError,
    PartitionError,
    PublishError,
    PublishNotSentError,
    PublishRejectedError,
    PublishUnknownError,
    ServerError,
)
from nsqclient.hints import with_hint
from nsqclient.producer.futures import (
    BATCH_BYTES, BATCH_MESSAGES, PublishFuture, UnretrievedErrors, take_batch,
)
from nsqclient.producer.node import NsqdNode, StallDetector, stall_timeout
from nsqclient.producer.nodes import NodePool
from nsqclient.producer.outcome import (
    PublishOutcome,
    StaleConnection,
    failure_of,
    is_one_at_fault,
    unknown_instead,
)
from nsqclient.partitioned.producer_pipeline import PartitionPipeline
from nsqclient.partitioned.producer import PublishOptions
from nsqclient.producer.stats import Statistics
from nsqclient.protocol import commands
from nsqclient.protocol.extensions import Stored
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.monitor import Monitor, Waiter
from nsqclient.runtime.threads import LibraryThread

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Commands without an outcome per nsqd: enough to keep the wire busy.
_MOST_IN_FLIGHT = 3
#: Seconds that the publisher waits for one socket; it writes the rest by itself. Another nsqd may
#: be waiting for work.
_WRITE = 0.05
#: Seconds between two looks for queued messages whose deadline has passed.
_SWEEP = 0.25

#: Makes what publishes to partitions, where this nsqd is a partitioned one; raises PartitionError
#: where it is not and the message has options for partitions.
_MakePipeline = Callable[
    [NsqdNode, "AsyncPublisher", Optional[PublishOptions]], Optional[PartitionPipeline]
]


class AsyncBatch:
    """Messages that share a command; the token of that command."""

    __slots__ = ("items", "until", "node", "_stalls", "_on_settled")

    def __init__(
        self,
        items: list[PublishFuture],
        on_settled: Callable[[AsyncBatch, PublishOutcome, Optional[NSQError]], None],
    ) -> None:
        self.items: list[PublishFuture] = items
        self.until: float = max([item.until for item in items])
        self.node: NsqdNode | None = None  # the nsqd that it was sent to
        self._stalls: StallDetector | None = None
        self._on_settled = on_settled

    def assign(self, node: NsqdNode, now: float) -> None:
        """It is about to be sent there."""
        self.node = node
        self._stalls = StallDetector(node, stall_timeout(self.items[0].seconds), now)

    @property
    def next_check(self) -> float:
        """When to look at its deadline, and at whether its nsqd is stalled."""
        return self.until if self._stalls is None else min(self.until, self._stalls.next_check)

    def is_stalled(self, now: float) -> bool:
        """Return, once it is time to check, whether its nsqd makes no progress."""
        return self._stalls is not None and self._stalls.is_stalled(now)

    @property
    def progress(self) -> tuple[int, int]:
        """How far its nsqd was at the last check."""
        assert self._stalls is not None
        return self._stalls.progress

    def command(self) -> bytes:
        """Build the command that brings the items to nsqd."""
        items = self.items
        first = items[0]
        if first.delay_ms is not None:  # such an item is alone
            return commands.dpub_unchecked(first.topic, first.delay_ms, first.body)
        return commands.pub_or_mpub(first.topic, [item.body for item in items])

    def settle(self, outcome: PublishOutcome, error: NSQError | None) -> None:
        """The outcome is known. On a reader thread."""
        self._on_settled(self, outcome, error)


class InFlightBatches:
    """Batches without an outcome. Not thread-safe: the pipeline's lock guards it."""

    def __init__(self) -> None:
        self._batches: set[AsyncBatch] = set()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[AsyncBatch]:
        return iter(self._batches)

    def add(self, batch: AsyncBatch, node: NsqdNode, now: float) -> None:
        """It is about to be sent there."""
        batch.assign(node, now)
        self._batches.add(batch)

    def remove(self, batch: AsyncBatch) -> bool:
        """It has its outcome, or will not get one; False when it is not here (any more)."""
        if batch not in self._batches:
            return False
        self._batches.discard(batch)
        return True

    def take_all(self) -> set[AsyncBatch]:
        """Remove and return all of them."""
        batches, self._batches = self._batches, set()
        return batches

    def take_late(self, now: float) -> list[AsyncBatch]:
        """Remove and return those whose time is over."""
        late = [batch for batch in self._batches if batch.until <= now]
        self._batches.difference_update(late)
        return late

    def stalled(self, now: float) -> list[AsyncBatch]:
        """Return those whose nsqd has done nothing for a while; each only now and then."""
        return [batch for batch in self._batches if batch.is_stalled(now)]

    def next_check(self) -> float | None:
        """When ``take_late`` and ``stalled`` must be asked again; None: not by themselves."""
        return min((batch.next_check for batch in self._batches), default=None)

    def has_capacity(self, nodes: tuple[NsqdNode, ...]) -> bool:
        """Return whether some nsqd may get a command, or none is there at all."""
        return not nodes or len(self._batches) < _MOST_IN_FLIGHT or self.choose(nodes) is not None

    def choose(self, nodes: Iterable[NsqdNode]) -> NsqdNode | None:
        """Return the first nsqd that may get another batch."""
        busy = Counter(batch.node for batch in self._batches)
        return next((node for node in nodes if busy[node] < _MOST_IN_FLIGHT), None)


class AsyncPublisher:
    """The asynchronous publishes of one producer.

    Args:
        max_pending, max_pending_bytes: what may be without an outcome at once.
        block: whether ``put`` waits when the window is full, or raises.
        linger: seconds to wait for further messages before sending.
        make_pipeline: called with the first nsqd, which may be a partitioned one.

    Threads: any.
    """

    def __init__(
        self,
        nodes: NodePool,
        *,
        max_pending: int,
        max_pending_bytes: int,
        block: bool,
        linger: float,
        retry_unknown: bool,
        max_body_size: int,
        statistics: Statistics,
        make_pipeline: _MakePipeline = lambda node, publisher, options: None,
    ) -> None:
        self._nodes = nodes
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._block = block
        self._linger = linger
        self._retry_unknown = retry_unknown
        self._batch_bytes = min(BATCH_BYTES, max_body_size)
        self._statistics = statistics
        self._make_pipeline = make_pipeline
        self._pipeline: PartitionPipeline | None = None  # of the publisher
        self._is_awoken = False  # the pipeline has something to do; guarded by _lock
        self._lock = Lock()
        self._work = Monitor(self._lock)  # the publisher waits for something to do
        self._space = Monitor(self._lock)  # others wait for the window, or for flush
        self._queue: deque[PublishFuture] = deque()  # guarded by _lock, as all below
        self._in_flight = InFlightBatches()
        # Neither queued nor unanswered for a moment; a fork may come just then.
        self._in_hand: list[PublishFuture] = []  # with the publisher
        self._settling: set[AsyncBatch] = set()  # with a reader
        self._unretrieved = UnretrievedErrors()
        self._stalled: list[AsyncBatch] = []  # of the publisher alone
        self._next_sweep = 0.0  # on time.monotonic()
        self.pending: int = 0
        self._pending_bytes = 0
        self._publisher_sleeps = False
        self._is_full = False  # it sleeps because no nsqd may get more
        self._closed = False
        self._thread: LibraryThread | None = None
        self._has_publisher = False  # it was started

    def put(self, item: PublishFuture) -> None:
        """Queue a message.

        Blocks: while the window is full, until the item's deadline.

        Raises:
            PublishNotSentError: the window stayed full (at once, unless it blocks).
            ClosedError: the producer was closed.
        """
        size = len(item.body)
        if size > self._max_pending_bytes:
            raise ConfigError(f"a body of {size} bytes is over max_pending_bytes")
        while True:
            with self._lock:
                if self._closed:
                    raise ClosedError("the producer is closed")
                if self._has_capacity(size):
                    if not self._has_publisher:
                        self._start()
                    if self._publisher_sleeps and not self._is_full:
                        self._work.notify_all()
                        self._publisher_sleeps = False
                    # An exception from a signal handler may come behind a call: all or none.
                    self.pending += 1
                    self._pending_bytes += size
                    self._queue.append(item)
                    return
            self._wait_for_space(item, size)

    def _has_capacity(self, size: int) -> bool:
        """Return whether the window takes a message of so many bytes. Needs _lock."""
        return (
            self.pending < self._max_pending
            and self._pending_bytes + size <= self._max_pending_bytes
        )

    def _wait_for_space(self, item: PublishFuture, size: int) -> None:
        left = item.until - time.monotonic()
        if left <= 0 or not self._block:
            failure = PublishNotSentError(
                f"{counted(self.pending, 'publish', 'publishes')} without a result yet: raise"
                " max_pending or publish more slowly"
            )
            self._statistics.count_failure(failure)
            raise failure
        self._space.wait_for(lambda: self._closed or self._has_capacity(size), left)

    def _start(self) -> None:
        """Start the publisher. Needs _lock."""
        if self._thread is None:  # else the launch was interrupted
            self._thread = LibraryThread(self._run, "nsq-publisher")
        self._thread.launch()
        self._has_publisher = True

    def flush(self, deadline: Deadline) -> bool:
        """Wait until nothing is pending; False when something still is."""
        return self._space.wait_for(lambda: self.pending == 0, deadline.remaining())

    def topics(self) -> list[str]:
        """The topics of what has no outcome yet."""
        with self._lock:
            batches = [*self._in_flight, *self._settling]
            items = [*self._queue, *self._in_hand, *(i for batch in batches for i in batch.items)]
        items += self._pipeline or ()
        return sorted({item.topic for item in items if not item.done()})

    def close(self, deadline: Deadline) -> bool:
        """Refuse new messages, fail those that still have no outcome, and end the thread."""
        self._end()
        thread = self._thread
        clean = True
        if thread is not None and thread is not threading.current_thread():
            thread.join(deadline.remaining())
            clean = not thread.is_alive()
        self.report_unretrieved()
        return clean

    def _end(self) -> None:
        with self._lock:
            self._work.notify_all()
            self._space.notify_all()
            self._closed = True
            left = list(self._queue)
            self._queue.clear()
            batches = self._in_flight.take_all()
        for item in left:
            self._fail(item, closed_error(item))
        for batch in batches:
            for item in batch.items:
                self._fail(item, PublishUnknownError("the producer was closed before the outcome"))

    def report_unretrieved(self) -> None:
        """Log now which failures nobody has looked at."""
        self._unretrieved.report(at_once=True)

    def abandon(self) -> None:
        """In a forked child: fail the futures that the child inherited, and nothing else."""
        sent = [*self._in_flight, *self._settling]
        items = [*self._queue, *self._in_hand, *(item for batch in sent for item in batch.items)]
        items += self._pipeline or ()
        for item in items:
            item.abandon()

    # -- the publisher thread

    def _run(self) -> None:
        waiter = self._work.waiter()
        while self._pipeline is None:
            try:
                items = self._take(waiter)
                if items is None:
                    return
                self._publish(items)
            except Exception as exc:
                logger.exception("the publisher failed; it continues")
                items = None
                self._fail_all(f"internal error: {exc!r}")
                waiter.sleep(_SWEEP)  # the next one may come at once
            # While the publisher sleeps it must not keep alive what nobody else wants.
            del items
            self._in_hand = []
            self._unretrieved.report()
        self._run_pipeline(self._pipeline, waiter)

    def _run_pipeline(self, pipeline: PartitionPipeline, waiter: Waiter) -> None:
        """Publish to partitions until the end."""
        while not self._closed:
            with self._lock:
                items = self._in_hand = list(self._queue)
                self._queue.clear()
                self._is_awoken = self._publisher_sleeps = False
            self._run_once(pipeline, items, self._space.is_awaited)
            del items
            self._in_hand = []
            self._unretrieved.report()
            with self._lock:
                if self._queue or self._is_awoken or self._closed:
                    continue
                self._publisher_sleeps = True
                waiter.arm()
            now = time.monotonic()
            waiter.sleep(None if pipeline.next_due == math.inf else pipeline.next_due - now)
        pipeline.close()

    def _run_once(
        self, pipeline: PartitionPipeline, items: list[PublishFuture], is_hurried: bool
    ) -> None:
        """Have the pipeline do what it can; where it fails, all that it has does."""
        try:
            pipeline.run(items, is_hurried)
        except Exception as exc:
            logger.exception("the publisher failed; it continues")
            pipeline.fail_all(f"internal error: {exc!r}", items)

    # -- for the pipeline

    def wake(self) -> None:
        """Have the pipeline do what it can."""
        with self._lock:
            self._work.notify_all()
            self._is_awoken = True

    def on_stored(self, items: Sequence[PublishFuture], stored: Stored | None) -> None:
        """They are stored."""
        self._done(items)
        for item in items:
            if stored is None:
                item.succeed()
            else:
                item.set_result(stored)
        self._statistics.count_published(len(items))

    def on_failed(self, item: PublishFuture, error: BaseException) -> None:
        """It has no good outcome."""
        self._fail(item, error)

    def on_cancelled(self, item: PublishFuture) -> None:
        """It was cancelled before it was sent."""
        self._done([item])

    def on_retried(self, messages: int) -> None:
        """They are sent again."""
        self._statistics.count_retried(messages)

    def _publish(self, items: list[PublishFuture]) -> None:
        """Send those whose time is not over."""
        now = time.monotonic()
        self._leave_stalled()
        sendable = []
        for item in items:
            if item.until <= now:
                self._fail(item, deadline_error(item))
            elif item.start():
                sendable.append(item)
            else:
                self._done([item])  # it was cancelled
        if sendable:
            batch = AsyncBatch(sendable, self._on_settled)
            try:
                self._send(batch)
            except Exception as exc:
                logger.exception("the publisher failed; it continues")
                with self._lock:
                    is_settled = batch.node is not None and not self._in_flight.remove(batch)
                for item in sendable if not is_settled else ():
                    self._fail(item, PublishUnknownError(f"internal error: {exc!r}"))

    def _fail_all(self, reason: str) -> None:
        """Fail what is pending, save what a reader has the outcome of."""
        with self._lock:
            sent = [item for batch in self._in_flight.take_all() for item in batch.items]
            settling = {item for batch in self._settling for item in batch.items}
            unsent = [*self._in_hand, *self._queue]
            self._queue.clear()
        for item in sent:
            self._fail(item, PublishUnknownError(reason))
        for item in unsent:
            if not item.done() and item not in settling:
                self._fail(item, PublishUnknownError(reason) if item.maybe_stored
                           else PublishNotSentError(reason))

    def _take(self, waiter: Waiter) -> list[PublishFuture] | None:
        """Wait for items that may be sent together, and remove them; None at the end."""
        has_lingered = not self._linger
        while True:
            with self._lock:
                self._publisher_sleeps = False
                if self._closed:
                    return None
                late = self._take_late()
                self._stalled = self._in_flight.stalled(time.monotonic())
                if late or self._stalled:
                    self._in_hand = late
                    return late
                self._is_full = not self._in_flight.has_capacity(self._nodes.ready)
                if self._queue and not self._is_full:
                    if (has_lingered or len(self._queue) >= BATCH_MESSAGES
                            or self._space.is_awaited):
                        items: list[PublishFuture] = []
                        self._in_hand = items  # before they leave the queue
                        take_batch(self._queue, items, self._batch_bytes)
                        return items
                    has_lingered = True
                    pause: float | None = self._linger
                else:
                    self._publisher_sleeps = True
                    pause = self._until_next_deadline()
                waiter.arm()
            waiter.sleep(pause)

    def _until_next_deadline(self) -> float | None:
        first = self._in_flight.next_check()
        if self._queue:
            first = self._next_sweep if first is None else min(first, self._next_sweep)
        return None if first is None else max(0.0, first - time.monotonic())

    def _take_late(self) -> list[PublishFuture]:
        """Remove and return the items whose deadline has passed. Needs _lock."""
        now = time.monotonic()
        late = self._in_flight.take_late(now)
        for batch in late:
            for item in batch.items:
                item.maybe_stored = True
        items = [item for batch in late for item in batch.items]
        if now >= self._next_sweep:  # what is queued may have less time than what is before it
            self._next_sweep = now + _SWEEP
            expired = [item for item in self._queue if item.until <= now]
            if expired:
                self._queue = deque(item for item in self._queue if item.until > now)
                items += expired
        return items

    def _leave_stalled(self) -> None:
        """Turn to other nsqds, where there are any, with what a silent one leaves unanswered."""
        silent, self._stalled = self._stalled, []
        for batch in silent:
            node = batch.node
            if node is None or not self._nodes.mark_unresponsive(node, batch.progress):
                continue
            if self._retry_unknown:
                error = ConnectError(node.address, "connected, but no answer")
                self._on_settled(batch, PublishOutcome.UNKNOWN, error)

    def _acquire_node(self, deadline: Deadline) -> NsqdNode:
        """As ``NodePool.take``; what is queued meanwhile ends at its own deadline."""
        with self._lock:
            node = self._in_flight.choose(self._nodes.pipelined.in_order())
        if node is not None:
            return node
        while True:
            step = Deadline(deadline.at_most(_SWEEP))
            try:
                return self._nodes.acquire(step, self._nodes.pipelined)
            except NSQError:
                if deadline.expired() or not step.expired():
                    raise
            with self._lock:
                late = self._take_late()
            for item in late:
                self._fail(item, deadline_error(item))

    def _send(self, batch: AsyncBatch) -> None:
        items = batch.items
        command = batch.command()
        deadline = Deadline(max(0.0, items[0].until - time.monotonic()))
        while True:
            try:
                node = self._acquire_node(deadline)
                self._pipeline = self._make_pipeline(node, self, items[0].options)
                if self._pipeline is not None:
                    self._run_once(self._pipeline, items, False)
                    return
                with self._lock:
                    if self._closed:
                        raise ClosedError("the producer is closed")
                    self._in_flight.add(batch, node, time.monotonic())
                node.send(command, batch, min(deadline.until, time.monotonic() + _WRITE))
                return
            except StaleConnection:
                with self._lock:
                    self._in_flight.remove(batch)
            except PartitionError as exc:  # of a message that is alone
                self._fail(items[0], exc)
                return
            except NSQError as exc:
                for item in items:
                    code = exc.code if isinstance(exc, ServerError) else None
                    self._fail(item, PublishUnknownError(str(exc)) if item.maybe_stored
                               else PublishNotSentError(with_hint(exc), code))
                return

    # -- outcomes, on a reader thread

    def _on_settled(
        self, batch: AsyncBatch, outcome: PublishOutcome, error: NSQError | None
    ) -> None:
        """A command got its outcome."""
        with self._lock:
            self._settling.add(batch)
            if not self._in_flight.remove(batch):
                self._settling.discard(batch)
                return  # too late: its futures have their outcome already
            self._is_full = False  # a message that is queued from now on wakes the publisher
            if self._publisher_sleeps and self._queue:
                self._work.notify_all()
                self._publisher_sleeps = False
        try:
            self._settle(batch, outcome, error)
        finally:
            with self._lock:
                self._settling.discard(batch)

    def _settle(self, batch: AsyncBatch, outcome: PublishOutcome, error: NSQError | None) -> None:
        items = batch.items
        if outcome is PublishOutcome.STORED:
            # Before anybody hears of it, so that flush() and stats() agree with the outcomes.
            self._done(items)
            for item in items:
                item.succeed()
            self._statistics.count_published(len(items))
            return
        failure = batch_failure(batch, outcome, error, self._retry_unknown)
        if failure is None:
            self._statistics.count_retried(len(items))
            self._put_back(items)
            return
        for item in items:
            self._fail(item, unknown_instead(failure, item.maybe_stored))

    def _put_back(self, items: list[PublishFuture]) -> None:
        with self._lock:
            if not self._closed:
                self._work.notify_all()
                self._queue.extendleft(reversed(items))
                return
        for item in items:
            self._fail(item, closed_error(item))

    def _fail(self, item: PublishFuture, error: BaseException) -> None:
        if item.fail(error, self._unretrieved.note) and isinstance(error, PublishError):
            self._statistics.count_failure(error)
        self._done([item])

    def _done(self, items: Sequence[PublishFuture]) -> None:
        size = sum([len(item.body) for item in items])
        with self._lock:
            self._space.notify_all()
            self.pending -= len(items)
            self._pending_bytes -= size


def batch_failure(
    batch: AsyncBatch, outcome: PublishOutcome, error: NSQError | None, retry_unknown: bool
) -> PublishError | None:
    """Say what a batch that was not stored fails with; None when it is to be sent again.

    Marks its items with what the next try must know.
    """
    items = batch.items
    if outcome is PublishOutcome.UNKNOWN:
        for item in items:
            item.maybe_stored = True
    elif is_one_at_fault(outcome, error, len(items)):
        for item in items:
            item.alone = True
        return None
    address = "nsqd" if batch.node is None else batch.node.address
    return failure_of(outcome, error, address, retry_unknown)


def deadline_error(item: PublishFuture) -> PublishRejectedError | PublishUnknownError:
    """Why an item fails whose deadline has passed."""
    if item.maybe_stored:
        return PublishUnknownError("no answer before the deadline")
    return PublishNotSentError("the deadline came before it could be sent")


def closed_error(item: PublishFuture) -> PublishRejectedError | PublishUnknownError:
    """Why an item fails that ``close()`` found unsent."""
    if item.maybe_stored:
        return PublishUnknownError("the producer was closed before the outcome was known")
    return PublishNotSentError("the producer was closed before it was sent")
