"""``ConnectionPool``: the connections to one nsqd, each of which serves one publish at a time.
``Pipeline``: the one connection that all asynchronous publishes share.

Idle connections lie on a stack. A publish takes one, or waits, first come, first served, until a
connection is put back or dialed. Nothing here acquires a lock in a publishing thread.

A publish puts its connection back by a single call of C, ``pool.idle.append(conn)``. If an
exception of a signal handler comes before that call, the publish closes the connection. If it comes
after the call, the connection no longer belongs to the publish.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, Union

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import ReentrantCallError
from nsqclient.producer.pipelined import PipelinedConnection
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.deques import copy_deque
from nsqclient.runtime.lock import Lock

PoolConnection = Union[BlockingConnection, PipelinedConnection]
C = TypeVar("C", bound=PoolConnection)

#: A connection used within this many seconds needs no check before the next publish.
_FRESH = 0.001
#: Seconds between two checks of an idle connection, and the fraction of the heartbeat interval if
#: that is shorter: nsqd closes a connection that is silent for two intervals.
_CHECK_INTERVAL, _CHECK_PART = 1.0, 0.25
#: Seconds between two checks by a publish that waits for a connection.
_LOOK_INTERVAL = 0.5
#: Asynchronous publishes that may share a connection at once.
_SHARES = 64


class _Waiter:
    """A publish that waits for a connection."""

    __slots__ = ("wake", "is_served", "is_sent_away")

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.wake.acquire()
        self.is_served = False  # it takes an idle connection
        self.is_sent_away = False  # it chooses another nsqd


class ConnectionPool(Generic[C]):
    """The connections to one nsqd. Thread-safe.

    Args:
        want: called without a lock when connections are ``missing()``; dials them, and calls
            ``add`` or ``release_waiters``.
    """

    def __init__(
        self, make: Callable[[str, Config], C], address: str, config: Config,
        want: Callable[[], None],
    ) -> None:
        self._make: Callable[[str, Config], C] = make
        self._config = config
        self._address = address
        self._limit = config.max_connections
        self._idle_timeout = config.idle_timeout
        #: Seconds without a byte after which a connection is lost, if nsqd sends heartbeats.
        self.silence: float = math.inf
        self._check_interval = _CHECK_INTERVAL
        if config.heartbeat_interval > 0:
            self._check_interval = min(_CHECK_INTERVAL, config.heartbeat_interval * _CHECK_PART)
            self.silence = min(config.read_timeout, 2 * config.heartbeat_interval)
        self._want = want
        self.idle: deque[C] = deque()  # changed by atomic calls
        self.waiting: deque[_Waiter] = deque()  # changed by atomic calls
        self._lock = Lock()
        self._refs: list[weakref.ref[C]] = []  # replaced, under _lock
        self.is_closed: bool = False
        self.dialing: set[C] = set()  # dials that are due or under way; guarded by NodePool
        #: When the last dial succeeded, on time.monotonic().
        self.dialed_at: float = 0.0

    def _referenced(self) -> list[C]:
        return [conn for conn in [ref() for ref in self._refs] if conn is not None]

    def connections(self) -> list[C]:
        """Return the connections that can be used."""
        found = [ref() for ref in self._refs]
        return [conn for conn in found if conn is not None and not conn.is_closed]

    def shortage(self, seconds: float) -> str:
        """Return why a publish got no connection after waiting for ``seconds``."""
        return (f"waited {seconds:.3g} s for a free connection"
                f" ({len(self.connections())} of at most {self._limit} in use)")

    def missing(self) -> int:
        """Return how many connections to dial.

        If publishes doubt a connection, one more is dialed to learn whether nsqd answers.
        """
        live = self.connections()
        doubted = any(conn.suspected_at > self.dialed_at for conn in live)
        spare = self._limit - len(live) + doubted
        waiting = len([one for one in copy_deque(self.waiting) if not one.is_served])
        idle = len([conn for conn in copy_deque(self.idle) if not conn.is_closed])
        wanted = max(0, waiting - idle) + doubted
        return min(wanted, spare) - len(self.dialing)

    def new_connection(self) -> C:
        return self._make(self._address, self._config)

    # -- for a publish

    def take(self, now: float, is_in_turn: bool = False) -> C | None:
        """Return an idle connection. None: there is none, or others wait, unless ``is_in_turn``."""
        while is_in_turn or not self.waiting:
            try:
                conn = self.idle.pop()
            except IndexError:
                return None
            if now - conn.used_at < _FRESH:
                return conn
            try:
                if conn.look():
                    return conn
                self.drop(conn)
            except BaseException:
                self.drop(conn)
                raise
        return None

    def drop(self, conn: C) -> None:
        """Close a connection after a failure."""
        conn.close()
        if self.waiting:
            self._want()

    def serve(self) -> None:
        """Serve the waiting publishes after a connection was put back; end it if this is closed."""
        if self.is_closed:
            self.close_idle()
        for waiter in copy_deque(self.waiting)[:len(self.idle)]:
            self._wake(waiter)

    def wait(self, until: float, is_reentrant: Callable[[], bool]) -> C | None:
        """Return a connection when it is this publish's turn; None: choose another nsqd.

        Blocks: until ``until`` on ``time.monotonic()``, or ``release_waiters()``. Raises
        ReentrantCallError if ``is_reentrant()``: the thread would wait for its interrupted call.
        """
        waiter, conn = _Waiter(), None
        try:
            try:
                self.waiting.append(waiter)
                while not (self.is_closed or waiter.is_sent_away):
                    now = time.monotonic()
                    waiter.is_served = self._has_turn(waiter)
                    if waiter.is_served:
                        conn = self.take(now, True)
                        waiter.is_served = conn is not None
                    if conn is not None or now >= until:
                        return conn
                    if self.missing() > 0:
                        self._want()
                    elif len(self.waiting) > len(self.dialing) and is_reentrant():
                        raise ReentrantCallError()
                    # Not longer: an interrupted thread may not have woken this one.
                    waiter.wake.acquire(timeout=min(until - now, _LOOK_INTERVAL))
                return None
            finally:
                if waiter in self.waiting:
                    self.waiting.remove(waiter)
                self.serve()
        except BaseException:
            if conn is not None:
                self.drop(conn)
            raise

    def _has_turn(self, waiter: _Waiter) -> bool:
        """True if a connection is idle for each publish that waits longer, and for this one."""
        return waiter in copy_deque(self.waiting)[:len(self.idle)]

    @staticmethod
    def _wake(waiter: _Waiter) -> None:
        with contextlib.suppress(RuntimeError):  # another thread was faster
            if waiter.wake.locked():
                waiter.wake.release()

    def release_waiters(self) -> None:
        """Wake the waiting publishes so that each chooses another nsqd."""
        for waiter in copy_deque(self.waiting):
            waiter.is_sent_away = True
            self._wake(waiter)

    # -- for the NodePool

    def add(self, conn: C) -> None:
        """Take a connection that was dialed; close it if the pool is closed."""
        with self._lock:
            self._refs = [*(ref for ref in self._refs if ref() is not None), weakref.ref(conn)]
        self.dialed_at = time.monotonic()
        self.idle.append(conn)
        self.serve()

    def close_idle(self, heard_before: float = math.inf) -> None:
        """Close idle connections, if nsqd was last heard before this time on them."""
        for conn in copy_deque(self.idle):
            if max(conn.used_at, conn.heard_at) < heard_before and self._remove(conn):
                self.drop(conn)

    def _remove(self, conn: C) -> bool:
        with contextlib.suppress(ValueError):  # a publish was faster
            self.idle.remove(conn)
            return True
        return False

    def close(self) -> None:
        """Cut all connections off, and the dials under way."""
        self.is_closed = True
        for conn in [*self._referenced(), *self.dialing.copy()]:
            conn.cut("the producer was closed")
        self.close_idle()
        self.release_waiters()

    def abandon(self) -> None:
        """In a forked child: close the parent's sockets without sending anything to nsqd."""
        for conn in [*self._referenced(), *self.dialing]:
            conn.abandon()

    # -- for the timer

    def check(self, now: float) -> float:
        """Look after the idle connections; return when to check again."""
        for conn in copy_deque(self.idle):
            if now - conn.used_at >= self._check_interval:
                self._check_idle(conn, now)
        return now + self._check_interval

    def _check_idle(self, conn: C, now: float) -> None:
        """Answer a heartbeat on an idle connection; close it if it is dead or was long unused."""
        is_surplus = len(self.connections()) > self._limit  # a doubted one has answered after all
        is_unused = is_surplus or now - conn.used_at >= self._idle_timeout and len(self.idle) > 1
        if not (is_unused or self._is_silent(conn, now) or conn.has_unread()):
            return
        if not self._remove(conn):
            return
        if not is_unused and conn.look() and not self._is_silent(conn, now):
            self.idle.appendleft(conn)
            self.serve()
        else:
            self.drop(conn)

    def _is_silent(self, conn: C, now: float) -> bool:
        return now - max(conn.used_at, conn.heard_at) >= self.silence


class Pipeline(ConnectionPool[PipelinedConnection]):
    """The connection to one nsqd that all asynchronous publishes share.

    It lies on the stack once for each of the publishes that may use it at once.
    """

    def __init__(self, address: str, config: Config, want: Callable[[], None]) -> None:
        super().__init__(PipelinedConnection, address, config, want)
        self._limit, self._idle_timeout = 1, math.inf

    def add(self, conn: PipelinedConnection) -> None:
        """Replace the former connection by one that was dialed."""
        self.close_idle()
        self.idle.extend([conn] * (_SHARES - 1))
        super().add(conn)

    def drop(self, conn: PipelinedConnection) -> None:
        """End one publish. The connection stays for the others."""
        conn.leave()
        if not conn.is_closed:
            self.idle.append(conn)
        elif self.waiting:
            self._want()

    def close_idle(self, heard_before: float = math.inf) -> None:
        """Retire the connection, unless ``heard_before`` is given: its reader hears nsqd."""
        if heard_before == math.inf:
            for conn in self.connections():
                conn.retire()
            self.idle.clear()

    def check(self, now: float) -> float:
        """Serve waiting publishes: exceptions may have ended publishes that held a share."""
        for conn in self.connections():
            self.idle.extend([conn] * len(self.waiting))
        self.serve()
        return math.inf

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end of the readers, after ``close()``; return True if they have ended."""
        return all([conn.join(deadline) for conn in self._referenced()])
