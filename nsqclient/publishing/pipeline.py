"""``Pipeline``: asynchronous publishes; those that wait together for one topic leave as one MPUB.

One thread, ``nsq-publisher``, takes what is queued, makes commands of it and sends them. It sends
only while few are unanswered, so that under load the queue fills and the batches grow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from nsqclient.errors import (
    ClosedError,
    ConfigError,
    ConnectError,
    NSQError,
    PublishError,
    PublishNotSent,
    PublishUnknown,
    ServerError,
)
from nsqclient.publishing.batches import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    Batch,
    closed,
    cut,
    failure_of,
    too_late,
)
from nsqclient.publishing.items import Item
from nsqclient.publishing.link import JustEnded, Link
from nsqclient.publishing.links import Links
from nsqclient.publishing.unanswered import Unanswered
from nsqclient.publishing.unseen import UnseenFailures
from nsqclient.publishing.verdicts import Verdict
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.monitor import Monitor, Waiter
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.threads import LibraryThread, ThreadStartError

logger = logging.getLogger("nsqclient.producer")

#: Seconds that the publisher waits for one socket; it writes the rest by itself. Another nsqd may
#: be waiting for work.
_WRITE = 0.05
#: Seconds between two looks for queued messages whose deadline has passed.
_SWEEP = 0.25

_Divert = Callable[
    [Link, list[Item], Callable[[Sequence[Item]], None], Callable[[BaseException], None]], bool
]


class Pipeline:
    """The asynchronous publishes of one producer.

    Args:
        max_pending, max_pending_bytes: what may be without a verdict at once.
        block: whether ``put`` waits when the window is full, or raises.
        linger: seconds to wait for company before sending.
        divert: True: the items that would be sent there go another way (``HandOver.divert``).

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
        divert: _Divert = lambda link, items, done, note: False,
    ) -> None:
        self._links = links
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._block = block
        self._linger = linger
        self._retry_unknown = retry_unknown
        self._batch_bytes = min(BATCH_BYTES, max_body_size)
        self._count = count
        self._divert = divert
        self._lock = threading.Lock()
        self._work = Monitor(self._lock)  # the publisher waits for something to do
        self._room = Monitor(self._lock)  # others wait for the window, or for flush
        self._queue: deque[Item] = deque()  # guarded by _lock, as all below
        self._unanswered = Unanswered()
        # Neither queued nor unanswered for a moment; a fork may come just then.
        self._in_hand: list[Item] = []  # with the publisher
        self._settling: set[Batch] = set()  # with a reader
        self._unseen = UnseenFailures()
        self._silent: list[Batch] = []  # of the publisher alone
        self._next_sweep = 0.0  # on time.monotonic()
        self.pending = 0
        self._pending_bytes = 0
        self._publisher_sleeps = False
        self._is_full = False  # it sleeps because no nsqd has room
        self._closed = False
        self._thread: LibraryThread | None = None
        self._has_publisher = False  # it was started

    def put(self, item: Item) -> None:
        """Queue a message.

        Blocks: while the window is full, until the item's deadline.

        Raises:
            PublishNotSent: the window stayed full (at once, unless it blocks).
            ClosedError: the producer was closed.
        """
        size = len(item.body)
        if size > self._max_pending_bytes:
            raise ConfigError(f"a body of {size} bytes is over max_pending_bytes")
        while not self._try_put(item, size):
            left = item.until - time.monotonic()
            if left <= 0 or not self._block:
                self._count("rejected", 1)
                raise PublishNotSent(
                    f"{counted(self.pending, 'publish', 'publishes')} without a result yet: raise"
                    " max_pending or"
                    " publish more slowly"
                )
            self._room.wait_for(lambda: self._closed or self._has_room(size), left)

    def _has_room(self, size: int) -> bool:
        """Tell whether the window takes a message of so many bytes. Needs _lock."""
        return (
            self.pending < self._max_pending
            and self._pending_bytes + size <= self._max_pending_bytes
        )

    def _try_put(self, item: Item, size: int) -> bool:
        """Queue a message; False when the window is full."""
        with self._lock:
            if self._closed:
                raise ClosedError("the producer is closed")
            if not self._has_room(size):
                return False
            if not self._has_publisher:
                self._start()
            if self._publisher_sleeps and not self._is_full:
                self._work.notify_all()
                self._publisher_sleeps = False
            # An exception from a signal handler may come behind a call: all three or none.
            self.pending += 1
            self._pending_bytes += size
            self._queue.append(item)
        return True

    def _start(self) -> None:
        """Start the publisher. Needs _lock."""
        if self._thread is None:  # else the launch was interrupted
            self._thread = LibraryThread(self._run, "nsq-publisher")
        try:
            self._thread.launch()
        except ThreadStartError as exc:
            self._count("rejected", 1)
            raise PublishNotSent(f"no thread to publish it: {exc}") from exc
        self._has_publisher = True

    def flush(self, deadline: Deadline) -> bool:
        """Wait until nothing is pending; False when something still is."""
        return self._room.wait_for(lambda: self.pending == 0, deadline.remaining())

    def topics(self) -> list[str]:
        """The topics of what has no outcome yet."""
        with self._lock:
            batches = [*self._unanswered, *self._settling]
            items = [*self._queue, *self._in_hand, *(i for batch in batches for i in batch.items)]
        return sorted({item.topic for item in items if not item.done()})

    def close(self, deadline: Deadline) -> bool:
        """Refuse new messages, fail those that still have no verdict, and end the thread."""
        self._end()
        thread = self._thread
        clean = True
        if thread is not None and thread is not threading.current_thread():
            thread.join(deadline.remaining())
            clean = not thread.is_alive()
        self.report_unseen()
        return clean

    def _end(self) -> None:
        with self._lock:
            self._work.notify_all()
            self._room.notify_all()
            self._closed = True
            left = list(self._queue)
            self._queue.clear()
            batches = self._unanswered.take_all()
        for item in left:
            self._fail(item, closed(item))
        for batch in batches:
            for item in batch.items:
                self._fail(item, PublishUnknown("the producer was closed before the verdict"))

    def report_unseen(self) -> None:
        """Log now which failures nobody has looked at."""
        self._unseen.report(at_once=True)

    def abandon(self) -> None:
        """In a forked child: fail the futures that the child inherited, and nothing else."""
        sent = [*self._unanswered, *self._settling]
        items = [*self._queue, *self._in_hand, *(item for batch in sent for item in batch.items)]
        for item in items:
            item.abandon()

    # -- the publisher thread

    def _run(self) -> None:
        waiter = self._work.waiter()
        while True:
            items = self._take(waiter)
            if items is None:
                return
            self._publish(items)
            # While the publisher sleeps it must not keep alive what nobody else wants.
            del items
            self._in_hand = []
            self._unseen.report()

    def _publish(self, items: list[Item]) -> None:
        """Send those whose time is not over."""
        now = time.monotonic()
        self._pass_over_silent()
        sendable = []
        for item in items:
            if item.until <= now:
                self._fail(item, too_late(item))
            elif item.start():
                sendable.append(item)
            else:
                self._done([item])  # it was cancelled
        if sendable:
            try:
                self._send(Batch(sendable, self._on_settled))
            except Exception as exc:
                logger.exception("publisher failed; it goes on")
                for item in sendable:
                    self._fail(item, PublishUnknown(f"internal error: {exc!r}"))

    def _take(self, waiter: Waiter) -> list[Item] | None:
        """Wait for items that may travel together, and remove them; None at the end."""
        has_lingered = not self._linger
        while True:
            with self._lock:
                self._publisher_sleeps = False
                if self._closed:
                    return None
                late = self._take_late()
                self._silent = self._unanswered.met_silence(time.monotonic())
                if late or self._silent:
                    self._in_hand = late
                    return late
                self._is_full = not self._unanswered.has_room(self._links.ready)
                if self._queue and not self._is_full:
                    if (has_lingered or len(self._queue) >= BATCH_MESSAGES
                            or self._room.is_awaited):
                        items: list[Item] = []
                        self._in_hand = items  # before they leave the queue
                        cut(self._queue, items, self._batch_bytes)
                        return items
                    has_lingered = True
                    pause: float | None = self._linger
                else:
                    self._publisher_sleeps = True
                    pause = self._until_next_deadline()
                waiter.arm()
            waiter.sleep(pause)

    def _until_next_deadline(self) -> float | None:
        first = self._unanswered.next_look()
        if self._queue:
            first = self._next_sweep if first is None else min(first, self._next_sweep)
        return None if first is None else max(0.0, first - time.monotonic())

    def _take_late(self) -> list[Item]:
        """Remove and return the items whose deadline has passed. Needs _lock."""
        now = time.monotonic()
        late = self._unanswered.take_late(now)
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

    def _pass_over_silent(self) -> None:
        """Turn to other nsqds, where there are any, with what a silent one leaves unanswered."""
        silent, self._silent = self._silent, []
        for batch in silent:
            link = batch.link
            if link is not None and self._links.pass_over(link) and self._retry_unknown:
                error = ConnectError(link.address, "connected, but no answer")
                self._on_settled(batch, Verdict.UNKNOWN, error)

    def _take_link(self, deadline: Deadline) -> Link:
        """As ``Links.take``; what is queued meanwhile ends at its own deadline."""
        with self._lock:
            link = self._unanswered.choose(self._links.in_turn())
        if link is not None:
            return link
        while True:
            step = Deadline(deadline.at_most(_SWEEP))
            try:
                return self._links.take(step)
            except NSQError:
                if deadline.expired() or not step.expired():
                    raise
            with self._lock:
                late = self._take_late()
            for item in late:
                self._fail(item, too_late(item))

    def _send(self, batch: Batch) -> None:
        items = batch.items
        command = batch.command()
        deadline = Deadline(max(0.0, items[0].until - time.monotonic()))
        while True:
            try:
                link = self._take_link(deadline)
                if self._divert(link, items, self._done, self._unseen.note):
                    return
                with self._lock:
                    if self._closed:
                        raise ClosedError("the producer is closed")
                    self._unanswered.add(batch, link, time.monotonic())
                link.send(command, batch, Deadline(deadline.at_most(_WRITE)))
                return
            except JustEnded:
                with self._lock:
                    self._unanswered.remove(batch)
            except NSQError as exc:
                for item in items:
                    code = exc.code if isinstance(exc, ServerError) else None
                    self._fail(item, PublishUnknown(str(exc)) if item.maybe_stored
                               else PublishNotSent(str(exc), code))
                return

    # -- verdicts, on a reader thread

    def _on_settled(self, batch: Batch, verdict: Verdict, error: NSQError | None) -> None:
        """A command got its verdict."""
        with self._lock:
            self._settling.add(batch)
            if not self._unanswered.remove(batch):
                self._settling.discard(batch)
                return  # too late: its futures were told already
            self._is_full = False  # a message that is queued from now on wakes the publisher
            if self._publisher_sleeps and self._queue:
                self._work.notify_all()
                self._publisher_sleeps = False
        try:
            self._settle(batch, verdict, error)
        finally:
            self._settling.discard(batch)

    def _settle(self, batch: Batch, verdict: Verdict, error: NSQError | None) -> None:
        items = batch.items
        if verdict is Verdict.STORED:
            # Before anybody hears of it, so that flush() and stats() agree with the outcomes.
            self._done(items)
            for item in items:
                item.succeed()
            self._count("published", len(items))
            return
        failure = failure_of(batch, verdict, error, self._retry_unknown)
        if failure is None:
            self._count("retried", len(items))
            self._put_back(items)
            return
        for item in items:
            self._fail(item, PublishUnknown(str(failure)) if item.maybe_stored else failure)

    def _put_back(self, items: list[Item]) -> None:
        with self._lock:
            if not self._closed:
                self._work.notify_all()
                self._queue.extendleft(reversed(items))
                return
        for item in items:
            self._fail(item, closed(item))

    def _fail(self, item: Item, error: PublishError) -> None:
        if item.fail(error, self._unseen.note):
            self._count("unknown" if isinstance(error, PublishUnknown) else "rejected", 1)
        self._done([item])

    def _done(self, items: Sequence[Item]) -> None:
        size = sum([len(item.body) for item in items])
        with self._lock:
            self._room.notify_all()
            self.pending -= len(items)
            self._pending_bytes -= size
