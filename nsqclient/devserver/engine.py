"""The broker made safe for threads: one lock, the clock, the timer, wake-ups and observers.

After ``with engine as broker: ...``, with the lock released, the engine wakes the sessions that
have messages, sets the timer and calls the observers. Lock order: the engine's lock, then the
observers' lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from nsqclient.devserver.broker import TopicChange
from nsqclient.devserver.queues import Scheduler
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.timer import Timer

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

_NEVER = float("inf")


#: Called when a topic or channel was created or deleted: in order, one at a time; must not block,
#: and may call the server.
Observer = Callable[[TopicChange], None]


class BrokerProtocol(Protocol):
    scheduler: Scheduler

    def take_changes(self) -> list[TopicChange]:
        ...


B = TypeVar("B", bound=BrokerProtocol)


class Engine(Generic[B]):
    """Guards the broker. Lifecycle: created, :meth:`start`, :meth:`stop`.

    Threads: ``with engine`` from any thread; inside, only call the broker and pure code.
    """

    def __init__(self, broker: B) -> None:
        self._broker = broker  # guarded by _lock
        self._lock = threading.Lock()
        self._now = 0.0  # guarded by _lock: the time at which the block was entered
        self._timer = Timer("nsq-devserver-timer")
        self._tick_at = _NEVER  # guarded by _lock: the earliest tick that is scheduled
        #: For wait_until(); guarded by _lock.
        self._changed = threading.Condition(self._lock)
        self._waiters = 0  # guarded by _lock
        self._observers: list[Observer] = []
        self._changes: deque[TopicChange] = deque()  # added under _lock, taken under _notifying
        self._notifying = threading.Lock()

    @property
    def now(self) -> float:
        """The time of this ``with`` block, on the steady clock."""
        return self._now

    def start(self) -> None:
        self._timer.start()

    def stop(self, deadline: Deadline | None = None) -> None:
        self._timer.stop(deadline)

    def add_observer(self, observer: Observer) -> None:
        with self._notifying:
            self._observers.append(observer)

    def wait_until(self, condition: Callable[[B], bool], timeout: float) -> bool:
        """Wait until ``condition``, which runs under the lock, holds; False if time is over."""
        deadline = Deadline(timeout)
        with self._lock:
            self._waiters += 1
            try:
                while not condition(self._broker):
                    if deadline.expired():
                        return False
                    self._changed.wait(deadline.remaining())
                return True
            finally:
                self._waiters -= 1

    def __enter__(self) -> B:
        self._lock.acquire()
        self._now = time.monotonic()
        return self._broker

    def __exit__(self, *exc_info: object) -> None:
        scheduler = self._broker.scheduler
        woken = scheduler.take_woken()
        changes = self._broker.take_changes()
        self._changes.extend(changes)
        tick_at = self._earlier_tick(scheduler.next_due())
        if self._waiters:
            self._changed.notify_all()
        self._lock.release()
        for consumer in woken:
            consumer.wake()
        if tick_at is not None:
            self._timer.schedule(tick_at - time.monotonic(), partial(self._tick, tick_at))
        if changes:
            self._notify_observers()

    def _earlier_tick(self, due: float | None) -> float | None:
        """Return ``due`` if that is before the tick that is scheduled. Needs _lock."""
        if due is None or due >= self._tick_at:
            return None
        self._tick_at = due
        return due

    def _tick(self, at: float) -> None:
        with self as broker:
            # A tick that an earlier one has replaced must not schedule others, or their
            # number would grow.
            if at == self._tick_at:
                self._tick_at = _NEVER
                broker.scheduler.tick(self._now)

    def _notify_observers(self) -> None:
        """Call the observers. The thread with the lock also reports changes added meanwhile."""
        while self._changes and self._notifying.acquire(blocking=False):
            try:
                while self._changes:
                    change = self._changes.popleft()
                    for observer in self._observers:
                        try:
                            observer(change)
                        except Exception:
                            logger.exception("observer failed on %s", change)
            finally:
                self._notifying.release()
