"""``WorkerPool``: a queue and N named threads that process it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from nsqclient.errors import ReentrantCallError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.deques import copy_deque
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread, keep_running

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("nsqclient.workers")


class WorkerPool(Generic[T]):
    """Calls ``run(item)`` for every queued item, in N threads, in order of arrival.

    An exception is logged, and the worker continues with the next item. If a user's time limit
    raises an exception between two items, the next item is lost.

    The queue is unbounded, because a reader that queues messages must not wait. Taking an item is
    one ``popleft()`` without a lock, because it happens for every message.

    Args:
        idle: called by a worker before it sleeps.

    Lifecycle: created, ``start()``, ``stop()``. Threads: any.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        run: Callable[[T], None],
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._run_item = run
        self._idle = idle
        self._items: deque[T] = deque()
        self._sleepers: deque[None] = deque()  # one entry for each sleeping thread
        self._tokens: SimpleQueue[None] = SimpleQueue()  # each wakes one of them
        self._lock = Lock()
        self._stopping = False
        self._threads = [
            LibraryThread(self._run, name if threads == 1 else f"{name}-{n + 1}")
            for n in range(threads)
        ]

    def __len__(self) -> int:
        return len(self._items)

    def start(self) -> None:
        """Start the threads that do not run. Idempotent. Raises RuntimeError if that fails."""
        with self._lock:  # stop() in another thread must find all of them started
            for thread in self._threads:
                if self._stopping:
                    return
                thread.launch()

    def start_another(self) -> None:
        """Start one more thread, unless a thread sleeps or all run. Replace one that has ended.

        Raises RuntimeError if the thread cannot be started.
        """
        if self._sleepers or self._stopping:
            return
        for number, thread in enumerate(self._threads):
            if thread.ident is not None and not thread.is_alive():
                thread = self._threads[number] = LibraryThread(self._run, thread.name)
            if thread.ident is None:
                thread.launch()
                return

    @property
    def has_threads(self) -> bool:
        return any([thread.is_alive() for thread in self._threads])

    def put(self, item: T) -> None:
        self._items.append(item)
        self._wake_one()

    def put_many(self, items: Iterable[T], wakes: bool = True) -> None:
        """Queue items in order.

        Args:
            wakes: wake a worker; False: the caller takes the first item itself.
        """
        self._items.extend(items)
        if wakes and self._sleepers:
            self._tokens.put(None)

    def _wake_one(self) -> None:
        # A worker counts itself as sleeping before it checks the queue for the last time. So if
        # there is no sleeper, that check comes after our append and finds the item.
        if self._sleepers:
            self._tokens.put(None)

    def _sleep(self, timeout: float | None = None) -> None:
        try:
            self._sleepers.append(None)  # inside try: the next step may raise
            if not self._items and not self._stopping:
                with contextlib.suppress(Empty):
                    self._tokens.get(timeout=timeout)
        finally:
            self._sleepers.pop()

    def take(self, timeout: float | None) -> T | None:
        """Remove and return the first item, for a caller that processes the queue itself.

        Returns: None if no item was queued in time, or if the pool is stopped and the queue empty.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                item = self._items.popleft()
            except IndexError:
                left = None if until is None else until - time.monotonic()
                if self._stopping or (left is not None and left <= 0):
                    return None
                self._sleep(left)
                continue
            if self._items:
                self._wake_one()  # as in _loop
            return item

    def items(self) -> list[T]:
        return copy_deque(self._items)

    def take_where(self, condition: Callable[[T], bool] = lambda item: True) -> list[T]:
        """Remove and return the items for which ``condition(item)`` is true.

        Items that are queued meanwhile may come between the others, which keep their order.
        """
        taken = []
        # Rotate the queue once: workers keep taking items meanwhile.
        for _ in range(len(self._items)):
            try:
                item = self._items.popleft()
            except IndexError:
                break
            if condition(item):
                taken.append(item)
            else:
                self._items.append(item)
        if self._items:
            self._wake_one()  # the queue may have been empty for a moment
        return taken

    def take_all(self) -> list[T]:
        return self.take_where()

    def stop(self, deadline: Deadline | None = None) -> list[str]:
        """Let the workers empty the queue and end; return the names of threads that did not end.

        Idempotent. The calling thread is neither joined nor named.
        """
        self._stopping = True
        with contextlib.suppress(ReentrantCallError), self._lock:
            pass  # wait for start(), unless a signal handler has interrupted it
        for _ in range(len(self._sleepers)):
            self._wake_one()
        alive = []
        for thread in self._threads:
            if thread is threading.current_thread():
                continue
            thread.join(None if deadline is None else deadline.remaining())
            if thread.is_alive():
                alive.append(thread.name)
        return alive

    def is_worker(self) -> bool:
        return threading.current_thread() in self._threads

    def _run(self) -> None:
        keep_running(self._loop, lambda error: logger.error(
            "%s: task failed; the worker continues", self._name, exc_info=error))

    def _loop(self) -> None:
        items, sleepers, run = self._items, self._sleepers, self._run_item
        while True:
            if not items and not self._wait_for_item():
                return
            try:
                item = items.popleft()
            except IndexError:  # another worker took it
                continue
            if sleepers and items:
                # Each worker wakes the next one: a burst wakes all of them, a trickle only as many
                # as it needs.
                self._tokens.put(None)
            run(item)

    def _wait_for_item(self) -> bool:
        """Sleep until an item may be queued; False if the worker must end."""
        try:
            self._idle()
        except Exception:  # keep_running() would call the hook again and again
            logger.exception("%s: idle hook failed; the worker continues", self._name)
        while not self._items:
            if self._stopping:
                return bool(self._items)  # check again for an item that was queued before stop()
            self._sleep()
        return True
