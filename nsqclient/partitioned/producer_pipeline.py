"""``PartitionPipeline``: asynchronous publishes to partitions, for the thread of AsyncPublisher.

Messages that wait together for one partition leave as one MPUB. A partition has one batch under
way, also while it is repeated, so messages of one key are stored in the order of the calls.
Messages without a key have one batch under way in each partition. Nothing here waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from nsqclient.connection.connection import Connection
from nsqclient.errors import (
    NSQError,
    PublishError,
    PublishNotSentError,
    PublishUnknownError,
)
from nsqclient.partitioned.lookup_table import TopicRoutes
from nsqclient.partitioned.retry_policy import lookup_wait
from nsqclient.producer.futures import BATCH_MESSAGES, PublishFuture, take_batch
from nsqclient.producer.node import NsqdNode
from nsqclient.producer.outcome import (
    BusyConnection,
    PublishOutcome,
    StaleConnection,
    is_one_at_fault,
)
from nsqclient.partitioned.producer_attempts import PublishAttempts
from nsqclient.partitioned.producer_nodes import PartitionNodePool
from nsqclient.partitioned.producer import (
    PartitionedProducer,
    PublishOptions,
    log_stored,
    partition_name,
)
from nsqclient.protocol import commands
from nsqclient.protocol.extensions import Stored, StoredPosition
from nsqclient.runtime.lock import Lock

#: Seconds that the publisher waits for one socket; it writes the rest by itself.
_WRITE = 0.05
#: Seconds between two looks for deadlines that have passed.
_SWEEP = 0.25
#: Least seconds between two lookups of a topic for messages that have little time left.
_LEAST_PAUSE = 0.05
_NEVER = float("inf")
_NO_OPTIONS = PublishOptions()


class PipelineDelegate(Protocol):
    """What a PartitionPipeline calls, holding no lock. Threads: any."""

    def on_stored(self, items: Sequence[PublishFuture], stored: Stored | None) -> None:
        """They are stored."""
        ...

    def on_failed(self, item: PublishFuture, error: BaseException) -> None:
        """It has no good outcome."""
        ...

    def on_cancelled(self, item: PublishFuture) -> None:
        """It was cancelled before it was sent."""
        ...

    def on_retried(self, messages: int) -> None:
        """They are sent again."""
        ...

    def wake(self) -> None:
        """Call ``run`` soon."""
        ...


class _PartitionQueue:
    """A partition of a topic, or all of a topic's for messages without a key."""

    def __init__(self, topic: str, partition: int | None) -> None:
        self.topic: str = topic
        self.partition: int | None = partition
        self.items: deque[PublishFuture] = deque()
        self.batches: set[_Batch] = set()  # under way
        self.ready_at: float = 0.0  # when the first message has lingered, on time.monotonic()


class _Batch:
    """Messages that share a command; the token of that command."""

    partition = 0
    nsqd = ""
    until: float = 0.0
    retry_at: float = 0.0  # on time.monotonic(); _NEVER: after a change
    has_begun = False  # the attempt that is under way is counted
    lookup: int | None = None  # the request to the nsqlookupds that it waits for
    stored: StoredPosition | None = None
    conn: Connection | None = None  # by which it is sent

    def __init__(self, queue: _PartitionQueue, pipeline: PartitionPipeline) -> None:
        self.queue = queue
        self.items: list[PublishFuture] = []
        self.attempts: PublishAttempts = PublishAttempts(queue.topic, None, queue.partition)
        self.asked: set[NsqdNode] = set()
        self._pipeline = pipeline

    def note_stored(self, stored: StoredPosition) -> None:
        """nsqd answered where it is stored."""
        self.stored = stored

    def settle(self, outcome: PublishOutcome, error: NSQError | None) -> None:
        """The outcome is known. On a reader thread."""
        self._pipeline.on_settled(self, outcome, error)


class _Unrouted:
    """Messages with a key whose topic has no known number of partitions yet."""

    def __init__(self, topic: str) -> None:
        self.items: deque[PublishFuture] = deque()
        self.attempts = PublishAttempts(topic)
        self.retry_at = 0.0


class PartitionPipeline:
    """The asynchronous publishes of one producer to a partitioned cluster.

    Args:
        linger: seconds that a message waits for others.

    Threads: ``on_settled`` is called by readers, all other methods by the publisher's thread.
    """

    def __init__(
        self, producer: PartitionedProducer, nodes: PartitionNodePool, delegate: PipelineDelegate,
        batch_bytes: int, linger: float, retry_unknown: bool, try_timeout: float,
    ) -> None:
        self._producer = producer
        self._metadata = producer.metadata
        self._nodes = nodes
        self._delegate = delegate
        self._batch_bytes = batch_bytes
        self._linger = linger
        self._retry_unknown = retry_unknown
        self._try_timeout = try_timeout
        self._queues: dict[tuple[str, int | None], _PartitionQueue] = {}
        self._unrouted: dict[str, _Unrouted] = {}
        self._waiting: set[_Batch] = set()  # for their next attempt
        self._lock = Lock()
        self._in_flight: set[_Batch] = set()  # by _lock
        self._outcomes: deque[tuple[_Batch, PublishOutcome, NSQError | None]] = deque()
        self._next_sweep = 0.0
        #: When ``run`` must be called at the latest, on time.monotonic().
        self.next_due: float = 0.0
        nodes.on_change = producer.metadata.on_change = delegate.wake

    def __iter__(self) -> Iterator[PublishFuture]:
        """All messages without an outcome, and perhaps some with one."""
        for unrouted in list(self._unrouted.values()):
            yield from list(unrouted.items)
        for queue in list(self._queues.values()):
            yield from list(queue.items)
            for batch in list(queue.batches):
                yield from batch.items

    def run(self, items: list[PublishFuture], is_hurried: bool) -> None:
        """Do all that can be done now.

        Args:
            items: new ones.
            is_hurried: somebody waits for the outcomes, so no message lingers.
        """
        now = time.monotonic()
        self._evaluate(now)
        self._add(items, now)
        self._route_late(now)
        if now >= self._next_sweep:
            self._sweep(now)
        due = self._next_sweep if self._queues or self._unrouted else _NEVER
        for batch in list(self._waiting):
            if self._is_due(batch, now):
                self._attempt(batch, now)
            if batch in self._waiting:
                due = min(due, batch.retry_at)
        for queue in list(self._queues.values()):
            if not self._has_work(queue):
                if not queue.items and not queue.batches:
                    del self._queues[queue.topic, queue.partition]
                continue
            if not is_hurried and now < queue.ready_at and len(queue.items) < BATCH_MESSAGES:
                due = min(due, queue.ready_at)
                continue
            while self._has_work(queue) and self._send_next(queue, now):
                pass
        for unrouted in self._unrouted.values():
            due = min(due, unrouted.retry_at)
        self.next_due = due

    def close(self) -> None:
        """Give all that have no outcome one: the producer was closed."""
        try:
            self._evaluate(time.monotonic())
        finally:
            self.fail_all("the producer was closed")

    def fail_all(self, reason: str, items: Iterable[PublishFuture] = ()) -> None:
        """Give all that have no outcome one, because of ``reason``.

        Args:
            items: those that ``run`` was called with, where it has failed.
        """
        with self._lock:
            in_flight, self._in_flight = self._in_flight, set()
            outcomes = list(self._outcomes)
            self._outcomes.clear()
        stored = {item for batch, outcome, _ in outcomes for item in batch.items
                  if outcome is PublishOutcome.STORED}  # a reader succeeds them
        unknown = [batch for batch, outcome, _ in outcomes if outcome is PublishOutcome.UNKNOWN]
        for batch in [*in_flight, *unknown]:
            for item in batch.items:
                item.maybe_stored = True
        for item in [*self, *items]:
            if not item.done() and item not in stored:
                text = f"{reason} before the outcome was known"
                self._delegate.on_failed(item, PublishUnknownError(text) if item.maybe_stored
                                         else PublishNotSentError(reason))
        self._queues.clear()
        self._unrouted.clear()
        self._waiting.clear()

    # -- from messages to queues

    def _add(self, items: list[PublishFuture], now: float) -> None:
        topic, queue, is_traced = "", None, False
        for item in items:
            options = item.options
            if item.topic != topic:
                topic, queue = item.topic, None
                is_traced = self._producer.is_traced(topic)
            if item.delay_ms is not None:
                self._refuse(item)
            elif is_traced or options is not None:
                self._add_with_options(item, options or _NO_OPTIONS, is_traced, now)
            else:
                if queue is None or not queue.items:
                    queue = self._queue_of(topic, None, now)
                queue.items.append(item)

    def _add_with_options(
        self, item: PublishFuture, options: PublishOptions, is_traced: bool, now: float
    ) -> None:
        item.alone = False
        if is_traced or options.trace_id is not None or options.headers is not None:
            try:
                item.message = self._producer.prepare(item.topic, item.body, options)
            except NSQError as exc:
                self._delegate.on_failed(item, exc)
                return
            item.alone = item.message.trace_id is not None  # headers fit into an MPUB_EXT
        if options.key is None:
            self._queue_of(item.topic, options.partition, now).items.append(item)
            return
        unrouted = self._unrouted.get(item.topic)
        if unrouted is None:
            unrouted = self._unrouted[item.topic] = _Unrouted(item.topic)
        unrouted.items.append(item)
        unrouted.retry_at = min(unrouted.retry_at, now + (item.until - now) / 2)

    def _refuse(self, item: PublishFuture) -> None:
        try:
            self._producer.refuse_deferral()
        except NSQError as exc:
            self._delegate.on_failed(item, exc)

    def _queue_of(self, topic: str, partition: int | None, now: float) -> _PartitionQueue:
        """Return the queue that a message is about to be put into."""
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = _PartitionQueue(topic, partition)
        if not queue.items:
            queue.ready_at = now + self._linger
        return queue

    def _route_late(self, now: float) -> None:
        """Put messages with a key into the queues of their partitions, where these are known."""
        for topic, unrouted in list(self._unrouted.items()):
            try:
                routes = self._metadata.peek(topic)
            except NSQError as exc:
                unrouted.attempts.reason = exc
                routes = TopicRoutes()
            if routes is None:
                unrouted.retry_at = now + _SWEEP
                continue
            if not routes.partition_num:
                if now >= unrouted.retry_at:
                    self._look_up_again(unrouted, routes, now)
                continue
            self._route(unrouted, routes.partition_num, now)
            del self._unrouted[topic]

    def _route(self, unrouted: _Unrouted, partition_num: int, now: float) -> None:
        """Put messages with a key into the queues of their partitions."""
        queues: dict[object, _PartitionQueue] = {}
        items = unrouted.items
        while items:
            item = items[0]
            assert item.options is not None  # it has a key
            key = item.options.key
            queue = queues.get(key)
            try:
                if queue is None or not queue.items:
                    partition = self._producer.partition_of(key, partition_num)
                    queue = queues[key] = self._queue_of(item.topic, partition, now)
                queue.items.append(item)
            except Exception as exc:  # of a sharding of the user's, too
                self._delegate.on_failed(item, exc)
            items.popleft()

    def _look_up_again(self, unrouted: _Unrouted, routes: TopicRoutes, now: float) -> None:
        attempts = unrouted.attempts
        attempts.count += 1
        try:
            attempts.key = ""  # as any key does
            self._producer.choose(attempts, routes)
        except NSQError as exc:
            while unrouted.items:
                self._delegate.on_failed(unrouted.items.popleft(), exc)
            del self._unrouted[attempts.topic]
            return
        delay = self._producer.pause_before_next(attempts, None)
        if delay is None:
            while unrouted.items:
                self._delegate.on_failed(unrouted.items.popleft(), attempts.final_error())
            del self._unrouted[attempts.topic]
            return
        # Each of them is looked up once more while it has time left.
        left = min([item.until for item in unrouted.items if item.until > now], default=now) - now
        unrouted.retry_at = now + min(delay, max(_LEAST_PAUSE, left / 2))
        self._delegate.on_retried(len(unrouted.items))
        self._metadata.refresh(attempts.topic)

    # -- attempts

    def _has_work(self, queue: _PartitionQueue) -> bool:
        """Return whether a batch of the queue may begin."""
        if not queue.items:
            return False
        if not queue.batches:
            return True
        if queue.partition is not None:
            return False
        try:
            routes = self._metadata.peek(queue.topic)
        except NSQError:
            return False
        return routes is not None and len(queue.batches) < len(routes.partitions)

    def _send_next(self, queue: _PartitionQueue, now: float) -> bool:
        """Begin a batch of what is queued; return whether it was sent."""
        batch = _Batch(queue, self)
        queue.batches.add(batch)  # before its messages: a fork finds them in one of the two
        take_batch(queue.items, batch.items, self._batch_bytes)
        started = []
        for item in batch.items:
            if item.until <= now:
                self._delegate.on_failed(item, _deadline_error(item, None))
            elif item.start():
                started.append(item)
            else:
                self._delegate.on_cancelled(item)
        batch.items = started
        if not started:
            queue.batches.discard(batch)
            return True
        batch.until = max([item.until for item in started])
        if any([item.message is not None and item.message.header for item in started]):
            batch.attempts.has_header = True
            self._shorten(batch)
        return self._attempt(batch, now)

    def _shorten(self, batch: _Batch) -> None:
        """Put back what does not fit into one command because of the headers."""
        items, size, count = batch.items, 4, 0
        for item in items:
            size += 6 + len(item.body) + len(_header_of(item))
            if count and size > self._batch_bytes:
                break
            count += 1
        batch.queue.items.extendleft(reversed(items[count:]))
        batch.items = items[:count]

    def _is_due(self, batch: _Batch, now: float) -> bool:
        """Return whether a batch that waits is to be attempted now."""
        if batch.lookup is not None and self._metadata.is_answered(
            batch.queue.topic, batch.lookup
        ):
            return True
        return batch.retry_at <= now or batch.has_begun

    def _attempt(self, batch: _Batch, now: float) -> bool:
        """Send a batch, or have it wait; return whether it was sent."""
        attempts, queue = batch.attempts, batch.queue
        self._waiting.discard(batch)
        if attempts.count and not batch.has_begun and attempts.needs_lookup:
            if batch.lookup is None:  # after the pause: the leader may have changed meanwhile
                batch.lookup = self._metadata.refresh(queue.topic)
                batch.retry_at = now + lookup_wait(batch.until - now)
                self._waiting.add(batch)
                return False
        batch.lookup = None
        if not batch.has_begun:
            attempts.count += 1
            batch.has_begun = True
            batch.asked = set()
        try:
            return self._try_to_send(batch, now)
        except NSQError as exc:
            batch.has_begun = False
            self._finish(batch, exc)
        return False

    def _try_to_send(self, batch: _Batch, now: float) -> bool:
        attempts, queue = batch.attempts, batch.queue
        try:
            routes = self._metadata.peek(queue.topic)
        except NSQError as exc:
            attempts.reason = exc
            routes = TopicRoutes()
        if routes is None:
            self._wait_for_change(batch, now)
            return False
        busy = [other.partition for other in queue.batches if other in self._in_flight]
        partition = self._producer.choose(attempts, routes, busy)
        if partition is None:
            self._pause(batch, now)
            return False
        nsqd = routes.partitions[partition]
        name = partition_name(queue.topic, partition)
        try:
            node = self._nodes.try_connect(nsqd, name, batch.asked)
            if node is None:
                self._wait_for_change(batch, now)
                return False
            batch.partition, batch.nsqd = partition, nsqd
            command = self._command(batch, name)
            with self._lock:
                self._in_flight.add(batch)
            node.send_to_partition(command, batch, min(batch.until, now + _WRITE), name)
            batch.has_begun = False
            return True
        except NSQError as exc:
            with self._lock:
                self._in_flight.discard(batch)
            if isinstance(exc, BusyConnection):  # another partition was faster
                return self._try_to_send(batch, now)
            attempts.on_not_sent(partition, exc)
            self._pause(batch, now, 0.0 if isinstance(exc, StaleConnection) else None)
            return False

    def _command(self, batch: _Batch, name: str) -> bytes:
        message = batch.items[0].message
        if len(batch.items) == 1 and message is not None and not message.is_plain:
            return self._producer.command(batch.queue.topic, batch.partition, message)
        if batch.attempts.has_header:
            return self._producer.mpub_ext(batch.queue.topic, batch.partition, [
                (_header_of(item), item.body) for item in batch.items])
        return commands.pub_or_mpub(name, [item.body for item in batch.items])

    def _wait_for_change(self, batch: _Batch, now: float) -> None:
        """Attempt it again when a connection or an answer of an nsqlookupd has come."""
        batch.retry_at = now + _SWEEP
        self._waiting.add(batch)

    def _pause(self, batch: _Batch, now: float, delay: float | None = None) -> None:
        """Attempt it again after a pause, where there is to be another attempt."""
        batch.has_begun = False
        pause = self._producer.pause_before_next(batch.attempts, batch.until - now)
        if pause is None:
            self._finish(batch, batch.attempts.final_error())
            return
        self._delegate.on_retried(len(batch.items))
        batch.retry_at = now + (pause if delay is None else delay)
        self._waiting.add(batch)

    # -- outcomes

    def on_settled(
        self, batch: _Batch, outcome: PublishOutcome, error: NSQError | None
    ) -> None:
        """A command got its outcome. On a reader thread."""
        with self._lock:
            if batch not in self._in_flight:
                return  # too late: its futures have their outcome already
            self._outcomes.append((batch, outcome, error))
            self._in_flight.discard(batch)
        if outcome is PublishOutcome.STORED:
            self._on_stored(batch)
        elif batch.attempts.has_header and batch.conn is not None:
            # After an error to MPUB_EXT an nsqd takes the rest of its body for commands.
            batch.conn.close("a publish with headers was refused")
        self._delegate.wake()

    def _on_stored(self, batch: _Batch) -> None:
        items = batch.items
        self._metadata.on_accepted(batch.queue.topic, batch.partition, batch.nsqd)
        stored = None
        if batch.stored is not None:
            stored = Stored.by(batch.stored, batch.nsqd)
            message = items[0].message
            if message is not None and message.is_logged:
                log_stored(batch.queue.topic, (batch.partition, batch.nsqd), stored)
        self._delegate.on_stored(items, stored)

    def _evaluate(self, now: float) -> None:
        """Take in the outcomes that have come."""
        while self._outcomes:
            batch, outcome, error = self._outcomes.popleft()
            if outcome is PublishOutcome.STORED:
                batch.queue.batches.discard(batch)
                continue
            attempts = batch.attempts
            if is_one_at_fault(outcome, error, len(batch.items)):
                self._delegate.on_retried(len(batch.items))
                for item in batch.items:
                    item.alone = True
                batch.queue.items.extendleft(reversed(batch.items))
                batch.queue.batches.discard(batch)
                continue
            if outcome is PublishOutcome.UNKNOWN:
                for item in batch.items:
                    item.maybe_stored = True
            try:
                attempts.on_outcome(
                    outcome, error, batch.nsqd, batch.partition, self._retry_unknown)
            except NSQError as exc:
                self._finish(batch, exc)
                continue
            self._producer.note_refusal(attempts, error, batch.partition, batch.nsqd)
            self._pause(batch, now)

    def _finish(self, batch: _Batch, error: NSQError) -> None:
        """No attempt follows."""
        self._waiting.discard(batch)
        for item in batch.items:  # it may be stored by an attempt in another batch, too
            self._delegate.on_failed(
                item, PublishUnknownError(str(error)) if item.maybe_stored else error)
        batch.queue.batches.discard(batch)

    def _sweep(self, now: float) -> None:
        """End what is too late, and connections that are not answered."""
        self._next_sweep = now + _SWEEP
        if self._in_flight:
            self._nodes.close_unanswered(self._try_timeout)
        with self._lock:
            late = _late_of(self._in_flight, now)
            self._in_flight.difference_update(late)
        for batch in late:
            batch.attempts.maybe_stored = True
        for batch in late + _late_of(self._waiting, now):
            self._finish(batch, _late_error(batch.attempts))
        for queue in self._queues.values():
            queue.items = self._without_late(queue.items, now, None)
        for topic, unrouted in list(self._unrouted.items()):
            unrouted.items = self._without_late(unrouted.items, now, unrouted.attempts)
            if not unrouted.items:
                del self._unrouted[topic]

    def _without_late(
        self, queue: deque[PublishFuture], now: float, attempts: PublishAttempts | None
    ) -> deque[PublishFuture]:
        late = [item for item in queue if item.until <= now]
        if not late:
            return queue
        for item in late:
            self._delegate.on_failed(item, _deadline_error(item, attempts))
        return deque(item for item in queue if item.until > now)


def _header_of(item: PublishFuture) -> bytes:
    return b"" if item.message is None else item.message.header


def _late_of(batches: Iterable[_Batch], now: float) -> list[_Batch]:
    return [batch for batch in batches if batch.until <= now]


def _late_error(attempts: PublishAttempts) -> PublishError:
    return attempts.error_of(
        f"no outcome in {attempts.topic} before the deadline: {attempts.reason}")


def _deadline_error(item: PublishFuture, attempts: PublishAttempts | None) -> PublishError:
    """Why an item fails whose deadline has passed."""
    if item.maybe_stored:
        return PublishUnknownError("no answer before the deadline")
    if attempts is not None and attempts.reason is not None:
        return _late_error(attempts)
    return PublishNotSentError("the deadline came before it could be sent")
