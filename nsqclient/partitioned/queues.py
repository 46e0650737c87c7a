"""``PartitionQueues``: asynchronous publishes to partitions.

Messages move from the queue of a topic to the queue of their partition, or, without a key, to
another queue of the topic. The queue of a partition has one batch under way, which may be repeated,
so messages of one key are stored in the order of the calls. The queue without keys has one batch
under way for each partition.
"""

from __future__ import annotations

import time
from collections import deque

from nsqclient.partitioned.publisher import PartitionPublisher, TooManyUnderWay
from nsqclient.partitioned.attempts import PartitionAttempts
from nsqclient.partitioned.options import NO_OPTIONS, PreparedMessage
from nsqclient.protocol.partitioned.sharding import partition_of
from nsqclient.producer.async_publisher import AsyncPublisher, Destination, as_outcome
from nsqclient.producer.futures import PublishFuture
from nsqclient.protocol import commands
from nsqclient.protocol.partitioned import extensions
from nsqclient.runtime.deadline import Deadline

#: Seconds between two checks whether another publish to an nsqd may begin.
_TURN_PAUSE = 0.05


class _Batch:
    """Messages that are published with one command."""

    def __init__(self, items: list[PublishFuture], attempts: PartitionAttempts) -> None:
        self.items = items
        self.attempts = attempts
        self.until: float = max([item.until for item in items])
        self.retry_at: float = 0.0  # on time.monotonic()


class PartitionQueues:
    """Threads: workers of the AsyncPublisher; ``take_over`` one for each topic."""

    def __init__(
        self, producer: PartitionPublisher, publisher: AsyncPublisher, batch_bytes: int
    ) -> None:
        self._producer = producer
        self._publisher = publisher
        self._batch_bytes = batch_bytes
        self._queues: dict[tuple[str, int | None], _PartitionQueue] = {}  # changed by atomic calls

    def close(self) -> None:
        for queue in self._queues.copy().values():
            queue.close()

    def take_over(self, items: deque[PublishFuture]) -> bool:
        """Move messages to the queues of their partitions; return False in a stock cluster.

        Blocks: if a message has a key, until an nsqlookupd says how many partitions the topic has.
        """
        producer, first = self._producer, items[0]
        if producer.is_stock and first.options is None:
            return False
        deadline = Deadline(max(0.0, first.until - time.monotonic()))
        if not producer.detect(deadline, first.options or NO_OPTIONS):
            return False
        attempts: dict[str, PartitionAttempts] = {}
        filled: set[_PartitionQueue] = set()
        topic, queue = "", None
        while items:
            item = items.popleft()
            if item.options is not None or item.delay_ms is not None or item.topic != topic:
                topic = ""
                try:
                    queue = self._queue_of(item, attempts)
                except Exception as exc:  # includes errors of the user's sharding
                    self._publisher.refuse(item, exc)
                    continue
                if queue.partition is None and item.options is None:
                    topic = item.topic  # the next items without options use the same queue
            assert queue is not None
            queue.items.append(item)
            if queue not in filled:
                filled.add(queue)
                if queue.partition is None:
                    queue.width = max(
                        queue.width, producer.metadata.count_partitions(queue.topic))
            if not queue.is_called and queue.has_turn():
                self._publisher.call(queue)
        return True

    def _queue_of(
        self, item: PublishFuture, attempts: dict[str, PartitionAttempts]
    ) -> _PartitionQueue:
        producer, topic = self._producer, item.topic
        if item.delay_ms is not None:
            producer.refuse_deferral()
        is_traced = producer.tracing.is_on(topic)
        if item.options is None and not is_traced:
            return self._queue(topic, None)
        options = item.options or NO_OPTIONS
        item.alone, item.options = False, None
        if is_traced or options.trace_id is not None or options.headers is not None:
            message = item.options = producer.prepare(topic, item.body, options)
            item.alone = message.trace_id is not None  # headers fit into an MPUB_EXT
        if options.key is None:
            return self._queue(topic, options.partition)
        if topic not in attempts:
            attempts[topic] = producer.attempts(topic)
        attempts[topic].key = options.key
        number = self._partition_num(attempts[topic], item)
        return self._queue(topic, partition_of(options.key, number, producer.sharding))

    def _partition_num(self, attempts: PartitionAttempts, item: PublishFuture) -> int:
        producer = self._producer
        deadline = Deadline(max(0.0, item.until - time.monotonic()))
        while True:
            routes = producer.routes(attempts, deadline)
            if routes.partition_num:
                return routes.partition_num
            attempts.count += 1
            producer.choose(attempts, routes)
            delay = producer.pause_before_next(attempts, deadline.remaining())
            if delay is None:
                raise attempts.final_error()
            producer.rest(delay)
            producer.look_up_again(attempts, deadline)

    def _queue(self, topic: str, partition: int | None) -> _PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = _PartitionQueue(
                topic, partition, self._producer, self._publisher, self._batch_bytes)
            queue = self._queues.setdefault((topic, partition), queue)
        return queue


class _PartitionQueue(Destination):
    """The queue of one partition, or of a topic's messages without a key."""

    def __init__(
        self, topic: str, partition: int | None, producer: PartitionPublisher,
        publisher: AsyncPublisher, batch_bytes: int,
    ) -> None:
        super().__init__(self._serve)
        self.topic, self.partition = topic, partition
        self._producer = producer
        self._publisher = publisher
        self._batch_bytes = batch_bytes
        #: Batches between two attempts, in the order of the calls.
        self._waiting: deque[_Batch] = deque()

    def close(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            for item in batch.items:
                self._publisher.fail(item, batch.attempts.final_error())

    def _serve(self) -> None:
        """Attempt batches until the queue is empty, or has to wait for its next attempt."""
        self._publisher.linger(self.items)
        while (batch := self._next(time.monotonic())) is not None:
            try:
                delay = self._attempt(batch)
            except Exception as exc:
                self._end(batch, exc)
                continue
            if delay is not None:
                batch.retry_at = time.monotonic() + delay
                self._waiting.appendleft(batch)
                self._publisher.call_later(self, batch.retry_at)

    def _next(self, now: float) -> _Batch | None:
        """Return the batch to attempt now; None if the queue is empty, or a batch waits."""
        try:
            batch = self._waiting.popleft()
        except IndexError:
            pass
        else:
            if batch.retry_at <= now:
                return batch
            self._waiting.appendleft(batch)
            if self.partition is not None or len(self._waiting) >= self.width:
                self.resting_until = batch.retry_at
                return None
        items: list[PublishFuture] = []
        while not items:
            try:
                items = self._publisher.take(self.items)
            except IndexError:  # nothing is queued, or another worker has it
                return None
        return self._batch(items)

    def _batch(self, items: list[PublishFuture]) -> _Batch:
        """Make a batch. Messages that do not fit, because of their headers, become the next one."""
        has_header = any([bool(_message(item).header) for item in items])
        if has_header:
            size, count = 4, 0
            for item in items:
                size += 6 + len(item.body) + len(_message(item).header)
                if count and size > self._batch_bytes:
                    self._waiting.appendleft(self._batch(items[count:]))
                    items = items[:count]
                    break
                count += 1
        return _Batch(items, self._producer.attempts(
            self.topic, None, self.partition, has_header, len(items),
            max(extensions.extended_size(len(item.body), _message(item).header)
                for item in items)))

    def _attempt(self, batch: _Batch) -> float | None:
        """Return the seconds until the next attempt, or None if the batch is stored."""
        deadline = Deadline(max(0.0, batch.until - time.monotonic()))
        try:
            placed = self._producer.attempt(
                batch.attempts, lambda partition: self._command(batch, partition), deadline,
                is_async=True)
        except TooManyUnderWay:
            if not deadline.expired():
                return _TURN_PAUSE
            placed = None
        if placed is None:
            delay = self._producer.pause_before_next(batch.attempts, deadline.remaining())
            if delay is None:
                raise batch.attempts.final_error()
            return delay
        items = batch.items
        stored = self._producer.stored(self.topic, _message(items[0]), placed)
        self._publisher.on_stored(items, stored)
        return None

    def _command(self, batch: _Batch, partition: int) -> bytes:
        items = batch.items
        if len(items) == 1 and items[0].options is not None:
            message: PreparedMessage = items[0].options
            return message.command(self.topic, partition)
        if batch.attempts.has_header:
            return extensions.mpub_ext(
                self.topic, partition, [(_message(item).header, item.body) for item in items])
        name = extensions.partition_name(self.topic, partition)
        return commands.pub_or_mpub(name, [item.body for item in items])

    def _end(self, batch: _Batch, error: Exception) -> None:
        """Fail a batch; but if one message is at fault, publish each message alone."""
        attempts = batch.attempts
        if attempts.is_one_at_fault:
            alone = [self._batch([item]) for item in batch.items]
            for one in alone:
                one.attempts.maybe_stored = attempts.maybe_stored
            self._waiting.extendleft(reversed(alone))
            return
        outcome = as_outcome(error)
        for item in batch.items:
            self._publisher.fail(item, outcome)


def _message(item: PublishFuture) -> PreparedMessage:
    return item.options or PreparedMessage(item.body)
