"""The broker made safe for threads: one lock, the clock, the timer, and who is told what.

Use it as ``with engine as broker: ...``; leaving the block wakes the sessions that got
messages, sets the timer and tells the observers, all after the lock is released.

Lock order: the engine's lock, then the observers' lock; never the other way.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, Protocol, TypeVar

from nsqclient.devserver.broker import Notice
from nsqclient.devserver.queues import Agenda, Consumer
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.timer import Timer

logger = logging.getLogger("nsqclient.devserver")

_NEVER = float("inf")


class Observer(Protocol):
    """Is told of topics and channels that come and go."""

    def changed(self, notice: Notice) -> None:
        """Take note; must not block, and may call the server. In order, one at a time."""
        ...


class Brokering(Protocol):
    """What the engine needs of what it holds."""

    agenda: Agenda

    def take_notices(self) -> list[Notice]:
        """Remove and return what observers are to be told."""
        ...


B = TypeVar("B", bound=Brokering)


class Engine(Generic[B]):
    """Holds the broker. Life: created, :meth:`start`, :meth:`stop`.

    Threads: ``with engine`` from any thread; inside, only call the broker and pure code.
    """

    def __init__(self, broker: B, scan_lag: float = 0.0) -> None:
        self._broker = broker  # guarded by _lock
        self._lock = threading.Lock()
        self._now = 0.0  # guarded by _lock: the time at which the block was entered
        self._scan_lag = scan_lag
        self._timer = Timer("nsq-devserver-timer")
        self._tick_at = _NEVER  # guarded by _lock: the earliest tick that is scheduled
        self._bells: dict[int, Callable[[], None]] = {}  # guarded by _lock
        #: Who waits for a change in the queues (see wait_until); guarded by _lock.
        self._changed = threading.Condition(self._lock)
        self._waiters = 0  # guarded by _lock
        self._observers: list[Observer] = []
        self._notices: deque[Notice] = deque()  # added under _lock, taken under _telling
        self._telling = threading.Lock()

    @property
    def now(self) -> float:
        """The time of this ``with`` block, on the steady clock."""
        return self._now

    def start(self) -> None:
        """Start the timer thread."""
        self._timer.start()

    def stop(self, deadline: Deadline | None = None) -> None:
        """Stop the timer thread."""
        self._timer.stop(deadline)

    def add_observer(self, observer: Observer) -> None:
        """Tell ``observer`` of every change from now on."""
        with self._telling:
            self._observers.append(observer)

    def attach(self, number: int, ring: Callable[[], None]) -> None:
        """Call ``ring`` whenever the consumer of this number has something to send."""
        with self._lock:
            self._bells[number] = ring

    def detach(self, number: int) -> None:
        """Forget the bell of a consumer."""
        with self._lock:
            self._bells.pop(number, None)

    def wait_until(self, condition: Callable[[B], bool], timeout: float) -> bool:
        """Wait until ``condition`` holds; False when the time is over.

        Blocks: up to ``timeout`` seconds. The condition runs under the lock.
        """
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
        agenda = self._broker.agenda
        rings = self._rings(agenda.take_woken())
        notices = self._broker.take_notices()
        self._notices.extend(notices)
        tick_at = self._earlier_tick(agenda.next_due())
        if self._waiters:
            self._changed.notify_all()
        self._lock.release()
        for ring in rings:
            ring()
        if tick_at is not None:
            self._timer.schedule(tick_at - time.monotonic(), partial(self._tick, tick_at))
        if notices:
            self._tell()

    def _rings(self, consumers: Iterable[Consumer]) -> list[Callable[[], None]]:
        bells = self._bells
        return [bells[consumer.number] for consumer in consumers if consumer.number in bells]

    def _earlier_tick(self, due: float | None) -> float | None:
        """Return when to tick if that is before the tick that is scheduled. Needs _lock."""
        if due is None:
            return None
        if self._scan_lag > 0:
            due = math.ceil(due / self._scan_lag) * self._scan_lag
        if due >= self._tick_at:
            return None
        self._tick_at = due
        return due

    def _tick(self, at: float) -> None:
        with self as broker:
            # A tick that an earlier one has replaced must not schedule others: they would
            # breed.
            if at == self._tick_at:
                self._tick_at = _NEVER
                broker.agenda.tick(self._now)

    def _tell(self) -> None:
        """Hand out notices. Whoever holds the lock also hands out those that come meanwhile."""
        while self._notices and self._telling.acquire(blocking=False):
            try:
                while self._notices:
                    notice = self._notices.popleft()
                    for observer in self._observers:
                        try:
                            observer.changed(notice)
                        except Exception:
                            logger.exception("observer failed on %s", notice)
            finally:
                self._telling.release()
