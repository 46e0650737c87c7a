"""``Pipeline``: asynchronous publishes; those that wait together for one topic leave as one MPUB.

One thread, ``nsq-publisher``, takes what is queued, makes commands of it and sends them. It sends
only while few are unanswered, so that under load the queue fills and the batches grow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from nsqclient.errors import (
    ClosedError,
    ConfigError,
    NSQError,
    PublishError,
    PublishNotSent,
    PublishRejected,
    PublishUnknown,
    ServerError,
)
from nsqclient.protocol import commands
from nsqclient.publishing.links import JustEnded, Links
from nsqclient.publishing.verdicts import Verdict, is_about_one_message, rejection
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.producer")

#: Commands without a verdict per producer: enough to keep the wire busy.
_UNANSWERED = 3
#: Messages whose deadlines are further apart than this, in seconds, do not share an MPUB.
_DEADLINE_SPREAD = 0.5
#: Most messages and bytes of one MPUB of ours; well under nsqd's limits, and quick to store.
_BATCH_MESSAGES = 2000
_BATCH_BYTES = 1024 * 1024


class Item:
    """One message on its way."""

    __slots__ = (
        "topic", "body", "delay_ms", "future", "until", "maybe_stored", "alone", "has_started"
    )

    def __init__(
        self, topic: str, body: bytes, delay_ms: int | None, future: Future[None], until: float
    ) -> None:
        self.topic = topic
        self.body = body
        self.delay_ms = delay_ms
        self.future = future
        self.until = until  # its deadline, on time.monotonic()
        self.maybe_stored = False
        self.alone = delay_ms is not None  # must travel as a command of its own
        self.has_started = False  # its future can no longer be cancelled


class Batch:
    """Items that travel as one command; the token of that command."""

    __slots__ = ("items", "until", "_pipeline")

    def __init__(self, items: list[Item], pipeline: Pipeline) -> None:
        self.items = items
        self.until = max(item.until for item in items)
        self._pipeline = pipeline

    def settle(self, verdict: Verdict, error: NSQError | None) -> None:
        """The verdict is known. On a reader thread."""
        self._pipeline.on_settled(self, verdict, error)


class Pipeline:
    """The asynchronous publishes of one producer.

    Args:
        max_pending, max_pending_bytes: what may be without a verdict at once.
        block: whether ``put`` waits when the window is full, or raises.
        linger: seconds to wait for company before sending.

    Threads: any.
    """

    def __init__(
        self,
        links: Links,
        *,
        max_pending: int,
        max_pending_bytes: int,
        block: bool,
        linger: float,
        retry_unknown: bool,
        max_body_size: int,
        count: Callable[[str, int], None],
    ) -> None:
        self._links = links
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._block = block
        self._linger = linger
        self._retry_unknown = retry_unknown
        self._batch_bytes = min(_BATCH_BYTES, max_body_size)
        self._count = count
        self._changed = threading.Condition()
        self._queue: deque[Item] = deque()  # guarded by _changed, as all below
        self._unanswered: set[Batch] = set()
        self.pending = 0
        self._pending_bytes = 0
        self._publisher_sleeps = False
        self._putters = 0  # threads that wait for the window or for flush
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, item: Item, timeout: float) -> None:
        """Queue a message.

        Blocks: while the window is full, at most ``timeout`` seconds.

        Raises:
            PublishNotSent: the window stayed full (at once, unless it blocks).
            ClosedError: the producer was closed.
        """
        size = len(item.body)
        if size > self._max_pending_bytes:
            raise ConfigError(f"a body of {size} bytes is over max_pending_bytes")
        with self._changed:
            while True:
                if self._closed:
                    raise ClosedError("the producer is closed")
                if (self.pending < self._max_pending
                        and self._pending_bytes + size <= self._max_pending_bytes):
                    break
                left = item.until - time.monotonic()
                if not self._block or left <= 0:
                    raise PublishNotSent(
                        f"{self.pending} publishes have no verdict yet: raise max_pending or"
                        " publish more slowly"
                    )
                self._putters += 1
                self._changed.wait(min(left, timeout))
                self._putters -= 1
            self.pending += 1
            self._pending_bytes += size
            self._queue.append(item)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="nsq-publisher", daemon=True
                )
                self._thread.start()
            elif self._publisher_sleeps and len(self._unanswered) < _UNANSWERED:
                self._publisher_sleeps = False
                self._changed.notify_all()

    def flush(self, deadline: Deadline) -> bool:
        """Wait until nothing is pending; False when something still is."""
        with self._changed:
            self._putters += 1
            done = self._changed.wait_for(lambda: self.pending == 0, deadline.remaining())
            self._putters -= 1
            return done

    def close(self, deadline: Deadline) -> bool:
        """Refuse new messages, fail those that still have no verdict, and end the thread."""
        with self._changed:
            self._closed = True
            left = list(self._queue)
            self._queue.clear()
            batches, self._unanswered = self._unanswered, set()
            self._changed.notify_all()
            thread = self._thread
        for item in left:
            self._fail(item, PublishNotSent("the producer was closed before it was sent"))
        for batch in batches:
            for item in batch.items:
                self._fail(item, PublishUnknown("the producer was closed before the verdict"))
        if thread is not None and thread is not threading.current_thread():
            thread.join(deadline.remaining())
            return not thread.is_alive()
        return True

    def abandon(self) -> None:
        """In a forked child: fail the futures that the child inherited, and nothing else."""
        items = list(self._queue) + [item for batch in self._unanswered for item in batch.items]
        for item in items:
            # A thread that does not exist here may have held the lock of the future.
            item.future._condition = threading.Condition()
            if not item.future.done():
                item.future.set_exception(
                    ClosedError("published before a fork: only the parent knows the outcome")
                )

    # -- the publisher thread

    def _run(self) -> None:
        while True:
            with self._changed:
                items = self._take()
                if items is None:
                    return
            now = time.monotonic()
            sendable = []
            for item in items:
                if item.until <= now:
                    self._fail(item, _too_late(item))
                elif item.has_started or item.future.set_running_or_notify_cancel():
                    item.has_started = True
                    sendable.append(item)
                else:
                    self._done([item])  # its future was cancelled
            if sendable:
                try:
                    self._send(Batch(sendable, self))
                except Exception as exc:
                    logger.exception("publisher failed; it goes on")
                    for item in sendable:
                        self._fail(item, PublishUnknown(f"internal error: {exc!r}"))

    def _take(self) -> list[Item] | None:
        """Wait for items that may travel together, and remove them. Needs _changed."""
        while True:
            if self._closed:
                return None
            late = self._take_late()
            if late:
                return late
            if self._queue and len(self._unanswered) < _UNANSWERED:
                if self._linger and len(self._queue) < _BATCH_MESSAGES and not self._putters:
                    self._changed.wait(self._linger)
                return self._cut()
            self._publisher_sleeps = True
            self._changed.wait(self._until_next_deadline())
            self._publisher_sleeps = False

    def _cut(self) -> list[Item]:
        """Take the first item and those behind it that may share its MPUB. Needs _changed."""
        queue = self._queue
        if not queue:
            return []
        first = queue.popleft()
        items, size = [first], 8 + len(first.body)
        while queue and not first.alone and len(items) < _BATCH_MESSAGES:
            item = queue[0]
            size += 4 + len(item.body)
            if item.topic != first.topic or item.alone or size > self._batch_bytes:
                break
            if abs(item.until - first.until) > _DEADLINE_SPREAD:
                break
            items.append(queue.popleft())
        return items

    def _until_next_deadline(self) -> float | None:
        first = min((batch.until for batch in self._unanswered), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _take_late(self) -> list[Item]:
        """Remove and return the items whose verdict did not come in time. Needs _changed."""
        now = time.monotonic()
        late = [batch for batch in self._unanswered if batch.until <= now]
        for batch in late:
            self._unanswered.discard(batch)
            for item in batch.items:
                item.maybe_stored = True
        return [item for batch in late for item in batch.items]

    def _send(self, batch: Batch) -> None:
        items = batch.items
        first = items[0]
        if len(items) > 1:
            command = commands.mpub_unchecked(first.topic, [item.body for item in items])
        elif first.delay_ms is not None:
            command = commands.dpub_unchecked(first.topic, first.delay_ms, first.body)
        else:
            command = commands.pub_unchecked(first.topic, first.body)
        deadline = Deadline(max(0.0, first.until - time.monotonic()))
        while True:
            try:
                link = self._links.take(deadline)
                with self._changed:
                    if self._closed:
                        raise ClosedError("the producer is closed")
                    self._unanswered.add(batch)
                link.send(command, batch, deadline)
                return
            except JustEnded:
                with self._changed:
                    self._unanswered.discard(batch)
            except NSQError as exc:
                for item in items:
                    code = exc.code if isinstance(exc, ServerError) else None
                    self._fail(item, PublishUnknown(str(exc)) if item.maybe_stored
                               else PublishNotSent(str(exc), code))
                return

    # -- verdicts, on a reader thread

    def on_settled(self, batch: Batch, verdict: Verdict, error: NSQError | None) -> None:
        """A command got its verdict."""
        with self._changed:
            if batch not in self._unanswered:
                return  # too late: its futures were told already
            self._unanswered.discard(batch)
            if self._publisher_sleeps and self._queue:
                self._publisher_sleeps = False
                self._changed.notify_all()
        items = batch.items
        if verdict is Verdict.STORED:
            for item in items:
                item.future.set_result(None)
            self._done(items)
            self._count("published", len(items))
            return
        again = verdict is Verdict.NOT_READ or (verdict is Verdict.UNKNOWN and self._retry_unknown)
        if verdict is Verdict.REJECTED and isinstance(error, ServerError):
            refused = rejection("nsqd", error)
            if len(items) > 1 and is_about_one_message(error):
                # One of them is guilty: each is tried alone, and only that one will fail.
                again = True
                for item in items:
                    item.alone = True
            elif not refused.retryable:
                for item in items:
                    self._fail(item, PublishUnknown(str(error)) if item.maybe_stored else refused)
                return
            else:
                again = True
        if verdict is Verdict.UNKNOWN:
            for item in items:
                item.maybe_stored = True
        if again:
            self._count("retried", len(items))
            self._put_back(items)
            return
        for item in items:
            self._fail(item, PublishUnknown(f"no verdict: {error}"))

    def _put_back(self, items: list[Item]) -> None:
        with self._changed:
            if not self._closed:
                self._queue.extendleft(reversed(items))
                self._changed.notify_all()
                return
        for item in items:
            self._fail(item, PublishUnknown("the producer was closed before the verdict"))

    def _fail(self, item: Item, error: PublishError) -> None:
        future = item.future
        if not future.done() and (item.has_started or future.set_running_or_notify_cancel()):
            future.set_exception(error)
            self._count("unknown" if isinstance(error, PublishUnknown) else "rejected", 1)
            self._done([item])

    def _done(self, items: Iterable[Item]) -> None:
        with self._changed:
            for item in items:
                self.pending -= 1
                self._pending_bytes -= len(item.body)
            if self._putters:
                self._changed.notify_all()


def _too_late(item: Item) -> PublishRejected | PublishUnknown:
    if item.maybe_stored:
        return PublishUnknown("no verdict before the deadline")
    return PublishNotSent("the deadline came before it could be sent")
