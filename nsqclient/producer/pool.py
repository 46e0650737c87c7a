"""``ConnectionPool``: the connections to one nsqd that publishes take for themselves.

A publish takes an idle connection from the stack, and puts it back: no lock while no publish waits.
Where none is idle it waits, first come, first served, until a connection is put back
or dialed. A Pipeline has one connection, which publishes share.

What is alive is what somebody refers to, and not closed: a thread that an exception of a signal
handler interrupts may lose a connection at any moment, and then the garbage collector closes it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Union

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection, Exchange
from nsqclient.errors import ConnectError, ConnectionLostError
from nsqclient.producer.pipelined import PipelinedConnection
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock, is_foreign
from nsqclient.runtime.threads import LibraryThread

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds after which the end of a connection may have come without notice: less is between two
#: publishes of a loop.
_FRESH = 0.001
#: Seconds after which the timer looks after an idle connection, at most.
_IDLE = 1.0
#: The part of the interval of heartbeats after which it does, where that is less: nsqd closes a
#: connection that has sent nothing for two of them.
_IDLE_PART = 0.25

#: Seconds in which the owner of a connection has to read what has come.
_GRACE = 0.25

PoolConnection = Union[BlockingConnection, PipelinedConnection]


class _Waiter:
    """A publish that waits for a connection."""

    __slots__ = ("conn", "wake")

    def __init__(self) -> None:
        self.conn: PoolConnection | None = None
        self.wake = threading.Lock()  # released, under the lock of the pool, to wake the thread
        self.wake.acquire()


class ConnectionPool:
    """The connections of publishes to one nsqd.

    Args:
        want: called without a lock when connections are ``missing()``: has them dialed, and calls
            ``add`` or ``release_waiters``.

    Threads: any.
    """

    def __init__(self, address: str, config: Config, want: Callable[[], None]) -> None:
        self._address = address
        self._config = config
        self._limit = config.max_connections
        self._idle_timeout = config.idle_timeout
        # Without heartbeats silence means nothing; TCP's keepalive has to suffice.
        self._silence = float("inf")
        self._look_interval = _IDLE
        if config.heartbeat_interval > 0:
            self._look_interval = min(_IDLE, config.heartbeat_interval * _IDLE_PART)
            self._silence = min(config.read_timeout, 2 * config.heartbeat_interval)
        self._want = want
        self._lock = Lock()
        self._idle: deque[PoolConnection] = deque()  # changed by single calls
        self._waiting: deque[_Waiter] = deque()  # by _lock; read without it
        self._live: list[weakref.ref[PoolConnection]] = []  # by _lock
        self._is_closed = False  # by _lock
        #: Those that are to be dialed, and whether that has begun. By the lock of the NodePool.
        self.dialing: dict[PoolConnection, bool] = {}
        #: Grows with each response. Threads may overwrite each other's sum: it only has to change.
        self.responses = 0

    def connections(self) -> list[PoolConnection]:
        """Return those that are alive."""
        found = [ref() for ref in self._live.copy()]
        return [conn for conn in found if conn is not None and not conn.is_closed]

    @property
    def is_awaited(self) -> bool:
        """Return whether a publish waits for a connection."""
        return bool(self._waiting)

    def missing(self) -> int:
        """Return how many connections are to be dialed, those under way left out."""
        spare = self._limit - len(self.connections())
        return min(len(self._waiting), spare) - len(self.dialing)

    def new_connection(self) -> PoolConnection:
        """Return a connection that is to be dialed."""
        return BlockingConnection(self._address, self._config)

    # -- for a publish

    def take(self, now: float) -> PoolConnection | None:
        """Return an idle connection; None where there is none, or others wait."""
        while not self._waiting:
            try:
                conn = self._idle.pop()
            except IndexError as exc:
                if is_foreign(exc):
                    raise
                return None
            if now - conn.used_at < _FRESH or conn.look():
                return conn
            conn.close()
        return None

    def drop(self, conn: PoolConnection) -> None:
        """Close a connection that has failed, or may have."""
        conn.close()

    def wait(self, until: float) -> PoolConnection | None:
        """Return a connection when it is this publish's turn; None: choose an nsqd anew.

        Blocks: until ``until`` on ``time.monotonic()``, or ``release_waiters()``.
        """
        waiter = _Waiter()
        try:
            with self._lock:
                if self._is_closed:
                    return None
                self._waiting.append(waiter)
                self._serve()
            if waiter.conn is None:
                if self.missing() > 0:
                    self._want()
                waiter.wake.acquire(timeout=max(0.0, until - time.monotonic()))
        finally:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
        conn = waiter.conn
        if conn is not None and time.monotonic() - conn.used_at >= _FRESH and not conn.look():
            self.drop(conn)
            return None
        return conn

    def put_back(self, conn: PoolConnection) -> None:
        """Give a connection to the publish that waits longest, or put it on the stack."""
        if self._waiting:
            with self._lock:
                self._idle.appendleft(conn)
                self._serve()
            return
        self._idle.append(conn)
        if self._waiting:  # a publish came meanwhile, and may have looked before
            with self._lock:
                self._serve()

    def _serve(self) -> None:
        """Give idle connections to those that wait. Needs _lock."""
        while self._waiting and self._idle:
            try:
                conn = self._idle.pop()
            except IndexError as exc:  # another thread was faster
                if is_foreign(exc):
                    raise
                return
            waiter = self._waiting.popleft()
            waiter.conn = conn
            waiter.wake.release()

    def release_waiters(self) -> None:
        """Have those that wait choose an nsqd anew."""
        with self._lock:
            while self._waiting:
                self._waiting.popleft().wake.release()

    # -- for the NodePool

    def add(self, conn: PoolConnection) -> None:
        """Take a connection that was dialed."""
        with self._lock:
            live = list(ref for ref in self._live if ref() is not None)
            self._live = [*live, weakref.ref(conn)]
        self.put_back(conn)

    def close_idle(self) -> None:
        """Close those that no publish uses."""
        while True:
            try:
                conn = self._idle.pop()
            except IndexError:
                return
            conn.close()

    def close(self) -> None:
        """Cut all of them off, those that are being dialed too."""
        with self._lock:
            self._is_closed = True
        for conn in [*self.connections(), *self.dialing.copy()]:
            conn.cut(ConnectionLostError(self._address, "the producer was closed"))
        self.close_idle()
        self.release_waiters()

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back without a word to nsqd."""
        for conn in [*self.connections(), *self.dialing]:
            conn.abandon()

    # -- for the timer

    def check(self, now: float, has_others: bool) -> tuple[float, bool]:
        """Cut off what is overdue, look after what is idle.

        Args:
            has_others: there is another nsqd to publish to.

        Returns: when to call it next, and whether nsqd leaves publishes unanswered while another
            one may answer them.
        """
        due = now + self._look_interval
        is_stalled = False
        conns = self.connections()
        for conn in conns:
            exchanges = conn.exchanges()
            for exchange in exchanges:
                is_stalled |= self._check_exchange(conn, exchange, now, has_others)
                due = min(due, exchange["check_at"])
            if not exchanges and now - conn.used_at >= self._look_interval:
                self._look_after(conn, now)
        self._close_unused(now)
        if len(self._live) > len(conns):
            with self._lock:
                self._live = list(ref for ref in self._live if ref() in conns)
        return due, is_stalled

    def _check_exchange(
        self, conn: PoolConnection, exchange: Exchange, now: float, has_others: bool
    ) -> bool:
        """Cut it off where it is too late; return whether that was because nsqd is stalled."""
        until = exchange.get("until", float("inf"))
        if now < exchange["check_at"]:
            return False
        if "grace" not in exchange and conn.has_unread():  # this process was suspended, perhaps
            exchange["grace"] = exchange["check_at"] = now + _GRACE
            return False
        if now >= until:
            conn.cut(ConnectError(self._address, "connected, but no answer in time"), exchange)
            return False
        if now - max(exchange["began"], conn.heard_at) >= self._silence:
            error = ConnectionLostError(self._address, f"silent for {self._silence:g} s")
            conn.cut(error, exchange)
            return False
        pause = exchange["pause"]
        exchange["check_at"] = min(until, now + pause)
        seen, exchange["seen"] = exchange["seen"], self.responses + conn.pieces
        if seen != exchange["seen"] or not has_others:
            return False
        return conn.cut(ConnectError(self._address, "connected, but no answer"), exchange)

    def _look_after(self, conn: PoolConnection, now: float) -> None:
        """Answer a heartbeat on an idle connection; close a dead one."""
        is_silent = now - max(conn.used_at, conn.heard_at) >= self._silence
        if not is_silent and not conn.has_unread():
            return
        try:
            self._idle.remove(conn)
        except ValueError:
            return  # a publish was faster
        if conn.look() and now - max(conn.used_at, conn.heard_at) < self._silence:
            with self._lock:
                self._idle.appendleft(conn)
                self._serve()
        else:
            conn.close()

    def _close_unused(self, now: float) -> None:
        """Close the idle ones that were not used for long, but one."""
        for conn in self._idle.copy():
            if len(self._idle) < 2:
                return
            if now - conn.used_at >= self._idle_timeout:
                try:
                    self._idle.remove(conn)
                except ValueError:
                    continue  # a publish was faster
                conn.close()


class Pipeline(ConnectionPool):
    """The connection of asynchronous publishes to one nsqd, which all of them share."""

    def __init__(self, address: str, config: Config, want: Callable[[], None]) -> None:
        super().__init__(address, config, want)
        self._limit = 1

    def new_connection(self) -> PoolConnection:
        """Return a connection that is to be dialed."""
        return PipelinedConnection(self._address, self._config)

    def add(self, conn: PoolConnection) -> None:
        """Take a connection that was dialed, in place of a connection that has ended."""
        self._idle = deque([conn])
        super().add(conn)

    def take(self, now: float) -> PoolConnection | None:
        """Return the connection; None where there is none, or it has ended."""
        for conn in self._idle.copy():
            if not conn.is_closed:
                return conn
        return None

    def put_back(self, conn: PoolConnection) -> None:
        """Let publishes that wait have it, too."""
        if self._waiting:
            with self._lock:
                self._serve()

    def drop(self, conn: PoolConnection) -> None:
        """Nothing: others may use it, and where it has ended its reader closes it."""

    def close_idle(self) -> None:
        """Nothing: as ``drop``."""

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end of its threads; True when they have ended. ``close()`` comes before."""
        return all([conn.join(deadline) for conn in self._idle
                    if isinstance(conn, PipelinedConnection)])

    def _serve(self) -> None:
        """Have all that wait use it. Needs _lock."""
        conn = self.take(0.0)
        while conn is not None and self._waiting:
            publish = self._waiting.popleft()
            publish.conn = conn
            publish.wake.release()

    def _look_after(self, conn: PoolConnection, now: float) -> None:
        """Nothing: its reader answers heartbeats."""


class PoolTimer:
    """Calls each of ``checks`` when one is due: deadlines of publishes, idle connections, ...

    Args:
        check: the first one; each gets the time, and returns when it is to be called next.

    Life: ``start()``, idempotent; ``stop()``. Threads: any.
    """

    def __init__(self, check: Callable[[float], float]) -> None:
        self.checks: list[Callable[[float], float]] = [check]
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._is_stopped = False
        self._thread = LibraryThread(self._run, "nsq-timer")
        #: When it comes next by itself, on time.monotonic(). A thread that has something to be
        #: looked at before that makes it visible to ``check`` first, then reads this.
        self.due: float = math.inf
        #: Of its thread, which may not wait for a response: nobody would cut it.
        self.ident: int = 0

    def start(self) -> None:
        """Start the thread. Raises RuntimeError where there is none."""
        self._thread.launch()

    def wake(self) -> None:
        """Have it come now. May be called by any code at any moment."""
        self._wakeups.put(None)

    def stop(self, deadline: Deadline) -> bool:
        """End the thread; False where it did not in time."""
        self._is_stopped = True
        self.wake()
        if self._thread is threading.current_thread():
            return True
        self._thread.join(deadline.remaining())
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.ident = threading.get_ident()
        while not self._is_stopped:
            now = time.monotonic()
            self.due = now + _IDLE  # before the look: what comes behind it compares with this
            try:
                self.due = min([check(now) for check in self.checks])
            except Exception:
                logger.exception("looking after connections failed; the timer continues")
            try:
                self._wakeups.get(timeout=max(0.0, self.due - time.monotonic()))
            except Empty:
                pass
        self.ident = 0  # the system gives it to another thread
