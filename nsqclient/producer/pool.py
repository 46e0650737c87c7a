"""``ConnectionPool``: the connections to one nsqd, each of which serves one publish at a time.

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

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import ReentrantCallError

#: A connection used within this many seconds needs no check before the next publish.
_FRESH = 0.001
#: Seconds between two checks of an idle connection, and the fraction of the heartbeat interval if
#: that is shorter: nsqd closes a connection that is silent for two intervals.
_CHECK_INTERVAL, _CHECK_PART = 1.0, 0.25
#: Seconds between two checks by a publish that waits for a connection.
_LOOK_INTERVAL = 0.5


class ConnectionPool:
    """The connections to one nsqd. Thread-safe.

    Args:
        want: called without a lock when connections are ``missing()``; dials them, and calls
            ``add`` or ``release_waiters``.
    """

    def __init__(self, config: Config, want: Callable[[], None]) -> None:
        self._limit = config.max_connections
        self._idle_timeout = config.idle_timeout
        #: Seconds without a byte after which a connection is lost, if nsqd sends heartbeats.
        self.silence: float = math.inf
        self._check_interval = _CHECK_INTERVAL
        if config.heartbeat_interval > 0:
            self._check_interval = min(_CHECK_INTERVAL, config.heartbeat_interval * _CHECK_PART)
            self.silence = min(config.read_timeout, 2 * config.heartbeat_interval)
        self._want = want
        self.idle: deque[BlockingConnection] = deque()  # changed by atomic calls
        #: The locks by which the publishes wait; changed by atomic calls.
        self.waiting: deque[threading.Lock] = deque()
        self._refs: list[weakref.ref[BlockingConnection]] = []  # replaced
        self.is_closed: bool = False
        #: Dials that are due or under way; guarded by NodePool.
        self.dialing: set[BlockingConnection] = set()
        #: When the last dial succeeded, on time.monotonic().
        self.dialed_at: float = 0.0

    def connections(self) -> list[BlockingConnection]:
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
        wanted = max(0, len(self.waiting) - len(self.idle)) + doubted
        return min(wanted, spare) - len(self.dialing)

    # -- for a publish

    def take(self, now: float, is_in_turn: bool = False) -> BlockingConnection | None:
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

    def drop(self, conn: BlockingConnection) -> None:
        """Close a connection after a failure."""
        conn.close()
        if self.waiting:
            self._want()

    def serve(self) -> None:
        """Serve the waiting publishes after a connection was put back; end it if this is closed."""
        if self.is_closed:
            self.close_idle()
        for turn in self._in_turn():
            self._wake(turn)

    def _in_turn(self) -> list[threading.Lock]:
        """Return the publishes that have waited longest, one for each idle connection."""
        return list(self.waiting.copy())[:len(self.idle)]

    def wait(
        self, until: float, is_reentrant: Callable[[], bool]
    ) -> BlockingConnection | None:
        """Return a connection when it is this publish's turn; None: choose another nsqd.

        Blocks: until ``until`` on ``time.monotonic()``, or ``release_waiters()``. Raises
        ReentrantCallError if ``is_reentrant()``: the thread would wait for its interrupted call.
        """
        turn, conn = threading.Lock(), None
        turn.acquire()
        try:
            try:
                self.waiting.append(turn)
                while turn in self.waiting and not self.is_closed:
                    now = time.monotonic()
                    if turn in self._in_turn():
                        conn = self.take(now, True)
                    if conn is not None or now >= until:
                        return conn
                    if self.missing() > 0:
                        self._want()
                    elif len(self.waiting) > len(self.dialing) and is_reentrant():
                        raise ReentrantCallError()
                    # Not longer: an interrupted thread may not have woken this one.
                    turn.acquire(timeout=min(until - now, _LOOK_INTERVAL))
                return None
            finally:
                try:
                    self.waiting.remove(turn)
                except ValueError:
                    pass  # release_waiters() was faster
                self.serve()
        except BaseException:
            if conn is not None:
                self.drop(conn)
            raise

    @staticmethod
    def _wake(turn: threading.Lock) -> None:
        with contextlib.suppress(RuntimeError):  # another thread was faster
            if turn.locked():
                turn.release()

    def release_waiters(self) -> None:
        """Wake the waiting publishes so that each chooses another nsqd."""
        for turn in self.waiting.copy():
            with contextlib.suppress(ValueError):  # its thread was faster
                self.waiting.remove(turn)
            self._wake(turn)

    # -- for the NodePool

    def add(self, conn: BlockingConnection) -> None:
        """Take a connection that was dialed; close it if the pool is closed. One thread at once."""
        self._refs = [*(ref for ref in self._refs if ref() is not None), weakref.ref(conn)]
        self.dialed_at = time.monotonic()
        self.idle.append(conn)
        self.serve()

    def close_idle(self, heard_before: float = math.inf) -> None:
        """Close idle connections, if nsqd was last heard before this time on them."""
        for conn in self.idle.copy():
            if max(conn.used_at, conn.heard_at) < heard_before and self._remove(conn):
                self.drop(conn)

    def _remove(self, conn: BlockingConnection) -> bool:
        with contextlib.suppress(ValueError):  # a publish was faster
            self.idle.remove(conn)
            return True
        return False

    def close(self) -> None:
        """Cut all connections off, and the dials under way."""
        self.is_closed = True
        for conn in [*self.connections(), *self.dialing.copy()]:
            conn.cut("the producer was closed")
        self.close_idle()
        self.release_waiters()

    def abandon(self) -> None:
        """In a forked child: close the parent's sockets without sending anything to nsqd."""
        for conn in [*self.connections(), *self.dialing]:
            conn.abandon()

    # -- for the timer

    def check(self, now: float) -> float:
        """Look after the idle connections; return when to check again."""
        for conn in self.idle.copy():
            if now - conn.used_at >= self._check_interval:
                self._check_idle(conn, now)
        return now + self._check_interval

    def _check_idle(self, conn: BlockingConnection, now: float) -> None:
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

    def _is_silent(self, conn: BlockingConnection, now: float) -> bool:
        return now - max(conn.used_at, conn.heard_at) >= self.silence
