"""``Deferred``: asynchronous publishes to partitions, on a few threads of their own.

Messages of one key leave in the order of the calls, because one thread has them all; others may
overtake each other.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future

from nsqclient.errors import ClosedError, PublishError, PublishNotSent, PublishUnknown
from nsqclient.protocol.extended import Stored
from nsqclient.publishing.statistics import Statistics
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.futures import PlainFuture
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import ThreadStartError
from nsqclient.runtime.workers import WorkerPool

#: So many publishes are under way at once.
_THREADS = 4

_Publish = Callable[[], "Stored | None"]
_Task = tuple[Future["Stored | None"], _Publish, int]


class Deferred:
    """The asynchronous publishes of one producer.

    Args:
        max_pending: how many may wait for their outcome.
        block: whether a publish beyond that waits for room; else it raises.

    Life: threads start with the first publish; ``close()``. Threads: every method, any thread.
    """

    def __init__(self, max_pending: int, block: bool, statistics: Statistics) -> None:
        self._max_pending = max_pending
        self._block = block
        self._statistics = statistics
        self._changed = Monitor()
        self._pending: set[Future[Stored | None]] = set()  # by _changed, as below
        self._is_closed = False
        self._turn = itertools.count()
        # Pools of one thread each: what is put into one stays in order.
        self._lanes: list[WorkerPool[_Task]] = []

    @property
    def pending(self) -> int:
        """How many have no outcome yet."""
        return len(self._pending)

    def put(
        self, key: object, publish: _Publish, size: int, deadline: Deadline
    ) -> Future[Stored | None]:
        """Queue one publish; what ``publish`` returns or raises is the Future's.

        Raises:
            PublishNotSent: there was no room. ClosedError: after ``close()``.
        """
        lane = next(self._turn) if key is None else hash(key)
        future: Future[Stored | None] = PlainFuture()
        while not self._try_put(lane, (future, publish, size)):
            if not self._block or deadline.expired():
                raise PublishNotSent(f"pending publishes: {self.pending} (max_pending)")
            self._changed.wait_for(
                lambda: self.pending < self._max_pending or self._is_closed, deadline.remaining()
            )
        return future

    def _try_put(self, lane: int, task: _Task) -> bool:
        """Queue one publish; False when there is no room."""
        future = task[0]
        with self._changed.lock:
            if self._is_closed:
                raise ClosedError("the producer is closed")
            if self.pending >= self._max_pending:
                return False
            while len(self._lanes) < _THREADS:
                pool: WorkerPool[_Task] = WorkerPool("nsq-publisher", 1, self._run)
                try:
                    pool.start()
                except ThreadStartError as exc:
                    self._statistics.count("rejected", 1)
                    raise PublishNotSent(f"no thread to publish it: {exc}") from exc
                self._lanes.append(pool)
            try:
                self._pending.add(future)
                self._lanes[lane % _THREADS].put(task)
            except BaseException:  # a signal handler raised: nobody has the Future
                future.cancel()
                self._pending.discard(future)
                raise
        return True

    def _run(self, task: _Task) -> None:
        future, publish, size = task
        began = time.monotonic()
        if future.set_running_or_notify_cancel():
            try:
                result = publish()
            except BaseException as exc:
                if isinstance(exc, PublishError):
                    is_unknown = isinstance(exc, PublishUnknown)
                    self._statistics.count("unknown" if is_unknown else "rejected", 1)
                future.set_exception(exc)
            else:
                self._statistics.on_published(1, size, time.monotonic() - began)
                future.set_result(result)
        with self._changed.lock:
            self._changed.notify_all()
            self._pending.discard(future)

    def flush(self, deadline: Deadline) -> bool:
        """Wait until all have their outcome; False when time was over."""
        return self._changed.wait_for(lambda: not self._pending, deadline.remaining())

    def close(self, deadline: Deadline) -> list[str]:
        """Refuse what is not under way; return the names of threads that stay."""
        with self._changed.lock:
            self._changed.notify_all()
            self._is_closed = True
        for pool in self._lanes:
            for future, _, _ in pool.take_all():
                if future.set_running_or_notify_cancel():
                    future.set_exception(PublishNotSent("the producer was closed"))
                with self._changed.lock:
                    self._pending.discard(future)
        return [name for pool in self._lanes for name in pool.stop(deadline)]
