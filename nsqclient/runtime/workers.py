"""A queue and N named threads that work it off."""

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
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread, keep_running

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("nsqclient.workers")


class WorkerPool(Generic[T]):
    """Runs ``run(item)`` for every item that is put, in N threads, in order of arrival.

    An exception is logged with its traceback, and the worker goes on with the next item. A time
    limit of the user's may raise one between two items; then the next item is lost.

    Args:
        idle: called by a worker that found the queue empty, before it sleeps.

    The queue is not bounded: the reader that puts items must never wait (a server-side timeout
    can push more messages than RDY allows). Taking an item is one ``deque.popleft``, with no
    lock, because it happens for every message.

    Life: created, ``start()``, ``stop()``. Threads: every method, any thread.
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
        self._sleepers: deque[None] = deque()  # one entry for each thread that sleeps
        self._tokens: SimpleQueue[None] = SimpleQueue()  # each wakes one of them
        self._lock = Lock()
        self._stopping = False
        self._threads = [
            LibraryThread(self._run, name if threads == 1 else f"{name}-{n + 1}")
            for n in range(threads)
        ]

    def __len__(self) -> int:
        """How many items wait for a worker."""
        return len(self._items)

    def start(self) -> None:
        """Start the threads that do not run. Idempotent.

        Raises:
            RuntimeError: no thread can be started.
        """
        # Under the lock, so that stop() from another thread finds all of them started.
        with self._lock:
            for thread in self._threads:
                if self._stopping:
                    return
                thread.launch()

    @property
    def has_threads(self) -> bool:
        """Whether any of its threads runs."""
        return any([thread.is_alive() for thread in self._threads])

    def put(self, item: T) -> None:
        """Add one item; never blocks."""
        self._items.append(item)
        self._wake_one()

    def put_many(self, items: Iterable[T]) -> bool:
        """Add items in order; return whether others waited before. Never blocks."""
        had_items = bool(self._items)
        self._items.extend(items)
        if self._sleepers:
            self._tokens.put(None)
        return had_items

    def keep_many(self, items: Iterable[T]) -> bool:
        """Add items like ``put_many``, and wake no worker: the caller takes the first one next."""
        had_items = bool(self._items)
        self._items.extend(items)
        return had_items

    def _wake_one(self) -> None:
        # A worker counts itself as sleeping before it looks at the queue for the last time. So
        # if nobody sleeps here, that last look comes later than our append and finds the item.
        if self._sleepers:
            self._tokens.put(None)

    def _sleep(self, timeout: float | None = None) -> None:
        """Sleep until there may be an item, the time is over, or the pool stops."""
        self._sleepers.append(None)
        try:
            if not self._items and not self._stopping:
                self._tokens.get(timeout=timeout)
        except Empty:
            pass  # the time is over
        finally:
            self._sleepers.pop()

    def take(self, timeout: float | None) -> T | None:
        """Remove and return the first item; None if none came in time.

        For a caller that works the queue off itself. None also once ``stop()`` was called and the
        queue is empty.
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
            if self._sleepers and self._items:
                self._wake_one()  # as in _loop: a burst reaches all waiting threads
            return item

    def take_if(self, condition: Callable[[T], bool]) -> T | None:
        """Remove and return the first item when ``condition(item)`` is true; else None."""
        try:
            if not condition(self._items[0]):
                return None
            item = self._items.popleft()
        except IndexError:
            return None
        if condition(item):
            return item
        self._items.appendleft(item)  # a worker took the other one meanwhile
        self._wake_one()
        return None

    def items(self) -> list[T]:
        """Return the items that no worker has taken yet, and leave them there."""
        return list(self._items.copy())  # the copy is one step for other threads

    def take_where(self, condition: Callable[[T], bool]) -> list[T]:
        """Remove and return the items for which ``condition(item)`` is true.

        The others keep their order, but items that are put meanwhile may come between them.
        """
        taken = []
        # Turned round once, and never emptied: workers take items from it all the time.
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
            self._wake_one()  # it may have been empty for a moment
        return taken

    def take_all(self) -> list[T]:
        """Remove and return the items that no worker has taken yet."""
        taken: list[T] = []
        try:
            while True:
                taken.append(self._items.popleft())
        except IndexError:
            return taken

    def stop(self, deadline: Deadline | None = None) -> list[str]:
        """Let the workers finish the queue and end; return the names of threads that did not end.

        Idempotent. A worker that calls it is not joined and not named.
        """
        self._stopping = True
        # A signal handler may stop a pool in the middle of start().
        with contextlib.suppress(ReentrantCallError), self._lock:
            pass
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
        """True if the calling thread is one of this pool's."""
        return threading.current_thread() in self._threads

    def _run(self) -> None:
        keep_running(self._loop, lambda error: logger.error(
            "%s: task failed; the worker continues", self._name, exc_info=error))

    def _loop(self) -> None:
        """Take and run items until the end."""
        items, sleepers, run = self._items, self._sleepers, self._run_item
        while True:
            if not items and not self._wait_for_item():
                return
            try:
                item = items.popleft()
            except IndexError:  # another worker took it
                continue
            if sleepers and items:
                # Each worker that found more work wakes the next one: a burst reaches all of
                # them, a trickle only as many as it needs.
                self._tokens.put(None)
            run(item)

    def _wait_for_item(self) -> bool:
        """Sleep until there may be an item; False when the worker must end."""
        try:
            self._idle()
        except Exception:  # not left to keep_running(), which would call it again and again
            logger.exception("%s: idle hook failed; the worker continues", self._name)
        while not self._items:
            if self._stopping:
                # One more look: items that were put before stop() are still run.
                return bool(self._items)
            self._sleep()
        return True
