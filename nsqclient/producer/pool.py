"""``ConnectionPool``: the connections to one nsqd that publishes take for themselves.

Idle connections lie on a stack. A publish takes one, or waits, first come, first served, until a
connection is put back or dialed. Nothing here acquires a lock in a publishing thread.

A publish holds its connection in a list of one item, and puts it back by two calls of C. So an
exception of a signal handler, which may come between any two calls, leaves the connection in the
list, where ``drop`` closes it, or without a reference, and then the garbage collector closes it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Union

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import ConnectionLostError, ReentrantCallError
from nsqclient.producer.pipelined import PipelinedConnection
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock

#: A connection used within this many seconds needs no check before the next publish.
_FRESH = 0.001
#: Seconds between two checks of an idle connection, and the fraction of the heartbeat interval if
#: that is shorter: nsqd closes a connection that is silent for two intervals.
_CHECK_INTERVAL, _CHECK_PART = 1.0, 0.25
#: Seconds between two looks of a publish that waits for a connection.
_LOOK_INTERVAL = 0.5

PoolConnection = Union[BlockingConnection, PipelinedConnection]
#: The connection of one publish, or nothing once it was put back or dropped.
Taken = list[PoolConnection]


class _Waiter:
    """A publish that waits for a connection."""

    __slots__ = ("wake", "is_served", "is_sent_away")

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.wake.acquire()
        self.is_served = False  # it takes an idle connection
        self.is_sent_away = False  # it chooses another nsqd


class ConnectionPool:
    """The connections of publishes to one nsqd.

    Args:
        want: called without a lock when connections are ``missing()``; dials them, and calls
            ``add`` or ``release_waiters``.

    Threads: any.
    """

    def __init__(self, address: str, config: Config, want: Callable[[], None]) -> None:
        self._address = address
        self._config = config
        self._limit = config.max_connections
        self._idle_timeout = config.idle_timeout
        #: Seconds without a byte after which a connection is lost. Without heartbeats silence
        #: means nothing, and only TCP's keepalive detects a lost connection.
        self.silence: float = float("inf")
        self._check_interval = _CHECK_INTERVAL
        if config.heartbeat_interval > 0:
            self._check_interval = min(_CHECK_INTERVAL, config.heartbeat_interval * _CHECK_PART)
            self.silence = min(config.read_timeout, 2 * config.heartbeat_interval)
        self._want = want
        self._idle: deque[PoolConnection] = deque()  # changed by single calls
        self._waiting: deque[_Waiter] = deque()  # changed by single calls
        self._lock = Lock()
        self._live: list[weakref.ref[PoolConnection]] = []  # replaced, under _lock
        self._is_closed = False
        #: Connections to dial; the value is True once dialing has begun. Guarded by NodePool.
        self.dialing: dict[PoolConnection, bool] = {}
        #: When the last dial succeeded, on time.monotonic().
        self.dialed_at: float = 0.0

    def connections(self) -> list[PoolConnection]:
        """Return the connections that are alive."""
        found = [ref() for ref in self._live]
        return [conn for conn in found if conn is not None and not conn.is_closed]

    @property
    def is_awaited(self) -> bool:
        """True if a publish waits for a connection."""
        return bool(self._waiting)

    def shortage(self, seconds: float) -> str:
        """Return why a publish got no connection after waiting for ``seconds``."""
        return (f"waited {seconds:.3g} s for a free connection"
                f" ({len(self.connections())} of at most {self._limit} in use)")

    def missing(self) -> int:
        """Return how many connections to dial, beside the dials under way.

        One more is dialed beside connections that publishes doubt, to learn whether nsqd answers.
        """
        live = self.connections()
        doubted = [conn for conn in live if conn.suspected_at > self.dialed_at]
        spare = self._limit - len(live) + len(doubted)
        waiting = len([one for one in self._waiting.copy() if not one.is_served])
        idle = len([conn for conn in self._idle.copy() if not conn.is_closed])
        wanted = max(0, waiting - idle) + bool(doubted)
        return min(wanted, spare) - len(self.dialing)

    def new_connection(self) -> PoolConnection:
        """Return a connection to be dialed."""
        return BlockingConnection(self._address, self._config)

    # -- for a publish

    def take(self, now: float, is_in_turn: bool = False) -> Taken | None:
        """Return an idle connection; None if no connection is idle, or if other publishes wait.

        Args:
            is_in_turn: do not look whether others wait.
        """
        while is_in_turn or not self._waiting:
            taken: Taken = []
            try:
                taken.append(self._idle.pop())
                is_alive = now - taken[0].used_at < _FRESH or taken[0].look()
            except IndexError:
                return None
            except BaseException:
                self.drop(taken)
                raise
            if is_alive:
                return taken
            self.drop(taken)
        return None

    def drop(self, taken: Taken) -> None:
        """Close a connection after a failure."""
        while taken:
            taken.pop().close()
            if self._waiting:
                self._want()

    def wait(self, until: float, is_reentrant: Callable[[], bool]) -> Taken | None:
        """Return a connection when it is this publish's turn; None: choose another nsqd.

        Args:
            is_reentrant: returns whether the calling thread, interrupted by a signal handler or a
                finalizer, uses this pool in an outer call.

        Blocks: until ``until`` on ``time.monotonic()``, or ``release_waiters()``.

        Raises:
            ReentrantCallError: the calling thread would wait for itself.
        """
        taken: Taken = []
        try:
            self._wait(taken, until, is_reentrant)
        except BaseException:
            self.drop(taken)
            raise
        return taken or None

    def _wait(self, taken: Taken, until: float, is_reentrant: Callable[[], bool]) -> None:
        waiter = _Waiter()
        try:
            self._waiting.append(waiter)
            while not (self._is_closed or waiter.is_sent_away):
                now = time.monotonic()
                waiter.is_served = self._has_turn(waiter)
                if waiter.is_served:
                    taken.extend(self.take(now, True) or ())
                    waiter.is_served = bool(taken)
                if taken or now >= until:
                    return
                if self.missing() > 0:
                    self._want()
                elif len(self._waiting) > len(self.dialing) and is_reentrant():
                    raise ReentrantCallError()
                # Not longer: an interrupted thread may not have woken this one.
                waiter.wake.acquire(timeout=min(until - now, _LOOK_INTERVAL))
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            self._wake_next()

    def _has_turn(self, waiter: _Waiter) -> bool:
        """True if there is an idle connection for it and for all that came before."""
        return waiter in list(self._waiting.copy())[:len(self._idle)]

    def _wake_next(self) -> None:
        """Wake as many publishes as there are idle connections."""
        for waiter in list(self._waiting.copy())[:len(self._idle)]:
            self._wake(waiter)

    @staticmethod
    def _wake(waiter: _Waiter) -> None:
        with contextlib.suppress(RuntimeError):  # another thread was faster
            if waiter.wake.locked():
                waiter.wake.release()

    def put_back(self, taken: Taken) -> None:
        """Put a connection on the stack, for the publish that has waited longest if any waits."""
        self._idle.append(taken.pop())
        if self._waiting:
            self._wake_next()
        if self._is_closed:
            self.close_idle()

    def release_waiters(self) -> None:
        """Wake the waiting publishes so that each chooses another nsqd."""
        for waiter in self._waiting.copy():
            waiter.is_sent_away = True
            self._wake(waiter)

    # -- for the NodePool

    def add(self, conn: PoolConnection) -> None:
        """Take a connection that was dialed."""
        with self._lock:
            self._live = [*(ref for ref in self._live if ref() is not None), weakref.ref(conn)]
        self.dialed_at = time.monotonic()
        self.put_back([conn])

    def close_idle(self, heard_before: float = float("inf")) -> None:
        """Close idle connections, if nsqd was last heard before this time on them."""
        for conn in self._idle.copy():
            if max(conn.used_at, conn.heard_at) < heard_before:
                self.drop(self._remove(conn))

    def _remove(self, conn: PoolConnection) -> Taken:
        """Take this connection if it is still idle."""
        try:
            self._idle.remove(conn)
        except ValueError:
            return []  # a publish was faster
        return [conn]

    def close(self) -> None:
        """Cut all connections off, and the dials under way."""
        self._is_closed = True
        for conn in [*self.connections(), *self.dialing.copy()]:
            conn.cut(ConnectionLostError(self._address, "the producer was closed"))
        self.close_idle()
        self.release_waiters()

    def abandon(self) -> None:
        """In a forked child: close the parent's sockets without sending anything to nsqd."""
        for conn in [*self.connections(), *self.dialing]:
            conn.abandon()

    # -- for the timer

    def check(self, now: float) -> float:
        """Answer heartbeats on idle connections, close dead and unused ones; return when to look
        again.
        """
        for conn in self._idle.copy():
            if now - conn.used_at >= self._check_interval:
                self._check_idle(conn, now)
        with self._lock:
            alive = self.connections()
            self._live = [ref for ref in self._live if ref() in alive]
        return now + self._check_interval

    def _check_idle(self, conn: PoolConnection, now: float) -> None:
        """Answer a heartbeat on an idle connection; close it if it is dead or was long unused."""
        is_silent = now - max(conn.used_at, conn.heard_at) >= self.silence
        is_unused = now - conn.used_at >= self._idle_timeout and len(self._idle) > 1
        if not (is_silent or is_unused or conn.has_unread()):
            return
        taken = self._remove(conn)
        if not taken:
            return
        if not is_unused and conn.look() and now - max(
                conn.used_at, conn.heard_at) < self.silence:
            self._idle.appendleft(taken.pop())
        else:
            self.drop(taken)


class Pipeline(ConnectionPool):
    """The connection to one nsqd that all asynchronous publishes share."""

    def __init__(self, address: str, config: Config, want: Callable[[], None]) -> None:
        super().__init__(address, config, want)
        self._limit = 1

    def new_connection(self) -> PoolConnection:
        """Return a connection to be dialed."""
        return PipelinedConnection(self._address, self._config)

    def add(self, conn: PoolConnection) -> None:
        """Replace the former connection by one that was dialed."""
        self._idle = deque([conn])
        with self._lock:
            self._live = [*(ref for ref in self._live if ref() is not None), weakref.ref(conn)]
        self.dialed_at = time.monotonic()
        self._wake_next()

    def take(self, now: float, is_in_turn: bool = False) -> Taken | None:
        """Return the connection; None if it is not dialed, or has ended."""
        taken = list(self._idle.copy())
        return taken if taken and not taken[0].is_closed else None

    def _wake_next(self) -> None:
        if self.take(0.0):
            for waiter in self._waiting.copy():
                self._wake(waiter)

    def put_back(self, taken: Taken) -> None:
        """End the use of the connection by one publish."""
        self.drop(taken)

    def drop(self, taken: Taken) -> None:
        """End the use by one publish. The reader closes a connection that has ended."""
        while taken:
            conn = taken.pop()
            assert isinstance(conn, PipelinedConnection)
            conn.leave()

    def close_idle(self, heard_before: float = float("inf")) -> None:
        """End the connection for all publishes. Its reader hears it, whatever ``heard_before``."""
        if heard_before == float("inf"):
            for conn in self._idle.copy():
                conn.close()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end of its threads; True when they have ended. ``close()`` comes before."""
        return all([conn.join(deadline) for conn in self._idle
                    if isinstance(conn, PipelinedConnection)])

    def _check_idle(self, conn: PoolConnection, now: float) -> None:
        """Do nothing: the reader answers heartbeats."""
