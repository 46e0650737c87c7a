"""``Pool``: one connection to each nsqd, shared by all topics, partitions and threads.

Unlike the links of a stock producer nobody may choose: a partition has one leader. So it is the
publisher that dials, and what goes wrong is its to hear.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.errors import ClosedError, ConnectError, NSQError, ServerError
from nsqclient.protocol.extended import Stored
from nsqclient.protocol.wire import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import ThreadStartError

logger = logging.getLogger("nsqclient.producer")

#: Seconds for the dialogue before the first publish.
HANDSHAKE_TIMEOUT = 5.0
#: Seconds between two looks at whether another thread still dials.
_LOOK = 0.5


class Try:
    """One try of one publish; the token that the core hands back. Settled once."""

    def __init__(self) -> None:
        self.error: NSQError | None = None
        self.stored: Stored | None = None
        #: Nobody read it: surely not stored.
        self.was_read = True
        # A plain lock, released once: no exception in the waiting thread can hang who settles.
        self._settled = threading.Lock()
        self._settled.acquire()

    def settle(
        self, error: NSQError | None, stored: Stored | None = None, was_read: bool = True
    ) -> None:
        """Set the outcome and wake the waiter."""
        if self._settled.locked():
            self.error, self.stored, self.was_read = error, stored, was_read
            self._settled.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is settled; False when it was not in time. Not again after True."""
        return self._settled.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


class PooledConnection:
    """A connection to one nsqd; its listener."""

    def __init__(self, address: str, config: Config, pool: Pool) -> None:
        self.address = address
        self.conn = Connection(address, config, self)
        self._pool = pool

    def send(self, command: bytes, token: Try, traced: bool, deadline: Deadline) -> None:
        """Send a publish; the token is settled when the verdict is known, or none can come.

        Raises:
            ClosedError: the connection ended before; nothing was sent.
        """
        try:
            if traced:
                self.conn.send(lambda core: core.send_traced_publish(command, token), deadline)
            else:
                self.conn.send(lambda core: core.send_publish(command, token), deadline)
        except ClosedError:
            raise
        except NSQError as exc:
            # Queued, so that the reader settles the token when it reports the end.
            logger.debug("%s: %s", self.address, exc)

    def close(self, reason: str) -> None:
        """End it; those who wait for a verdict hear so. Idempotent."""
        self._pool.remove(self)
        self.conn.close(reason)

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Producers subscribe to nothing."""

    def on_detailed_messages(self, conn: Connection, batch: Any, extras: Any) -> None:
        """Producers subscribe to nothing."""

    def on_published(self, conn: Connection, token: Try, error: ServerError | None) -> None:
        """nsqd gave its verdict."""
        token.settle(error)

    def on_traced(self, conn: Connection, token: Try, stored: Stored) -> None:
        """nsqd stored it, and says where."""
        token.settle(None, stored)

    def on_answer_failed(self, conn: Connection, error: ServerError) -> None:
        """Producers answer nothing."""

    def on_close_wait(self, conn: Connection) -> None:
        """Producers do not send CLS."""

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Try]) -> None:
        """The connection ended; after a refusal nsqd has not read what was pipelined behind."""
        self._pool.remove(self)
        for token in unanswered:
            token.settle(error, was_read=not isinstance(error, ServerError))


class _Claim:
    """One thread that wants to dial an address."""

    def __init__(self, address: str) -> None:
        self.address = address


class Pool:
    """The connections. Life: usable at once, ``close()``. Threads: every method, any thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._changed = Monitor()
        self._lock = self._changed.lock
        self._open: dict[str, PooledConnection] = {}  # by _lock, as below
        self._dialing: set[_Claim] = set()  # one for each address; the others wait for it
        self._ended: list[Connection] = []  # to be joined
        self._all: set[Connection] = set()  # that have a socket
        self._is_closed = False

    @property
    def addresses(self) -> list[str]:
        """The nsqds that are connected."""
        return list(self._open)

    def take(self, address: str, deadline: Deadline) -> PooledConnection:
        """Return the connection to a nsqd; dial where there is none.

        Blocks: while it dials, at most until the deadline.

        Raises:
            ClosedError: the pool is closed.
            NSQError: why it cannot be used.
        """
        found = self._open.get(address)
        if found is not None and not found.conn.is_closed:
            return found
        claim = _Claim(address)
        try:
            # The notification is missing where an exception from a signal handler came before it.
            while not self._changed.wait_for(lambda: self._is_mine(claim), deadline.at_most(_LOOK)):
                if deadline.expired():
                    raise ConnectError(address, "another thread dials it, and no time was left")
            found = self._open.get(address)
            if found is not None and not found.conn.is_closed:
                return found
            return self._dial(address, deadline)
        finally:
            self._dialing.discard(claim)  # first, and in one call
            with self._lock:
                self._changed.notify_all()

    def _is_mine(self, claim: _Claim) -> bool:
        """Take the right to dial, where no other thread has it. Needs the lock."""
        if any(other.address == claim.address for other in list(self._dialing)):
            return False
        self._dialing.add(claim)
        return True

    def _dial(self, address: str, deadline: Deadline) -> PooledConnection:
        pooled = PooledConnection(address, self._config, self)
        with self._lock:
            if self._is_closed:
                raise ClosedError("the producer is closed")
            self._all.add(pooled.conn)
        try:
            pooled.conn.open(Deadline(deadline.at_most(HANDSHAKE_TIMEOUT)))
        except BaseException:
            with self._lock:
                self._all.discard(pooled.conn)
            raise
        with self._lock:
            self._open[address] = pooled
        # Started last: when it ends at once it is removed from where it was put.
        try:
            pooled.conn.start()
        except BaseException as exc:
            pooled.close(f"no thread to read from it: {exc}")
            if isinstance(exc, ThreadStartError):
                raise ConnectError(address, f"no thread to read from it: {exc}") from exc
            raise
        return pooled

    def remove(self, pooled: PooledConnection) -> None:
        """This connection is of no use any more."""
        with self._lock:
            if self._open.get(pooled.address) is pooled:
                del self._open[pooled.address]
            if pooled.conn in self._all:
                self._all.discard(pooled.conn)
                self._ended = [old for old in self._ended if not old.join(Deadline(0))]
                self._ended.append(pooled.conn)

    def close(self, deadline: Deadline) -> list[str]:
        """End all connections; return the names of threads that stay."""
        with self._lock:
            self._is_closed = True
            conns = [*self._all]
            live = {pooled.conn for pooled in self._open.values()}
            ended = [*self._ended]
        for conn in conns:
            if conn in live:  # the others are being dialed, and not to be written to
                conn.drain(deadline.at_most(0.5))
            conn.close("the producer was closed")
        return [f"nsq-reader-{conn.address}" for conn in {*conns, *ended}
                if not conn.join(deadline)]

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back without a word to nsqd."""
        for conn in [*self._all, *self._ended]:
            conn.abandon()
