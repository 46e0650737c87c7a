"""``NodePool``: the nsqds of a producer, dialed in the background.

Publishers never dial: they take a connected nsqd, or wait until one is connected. From the first
publish on, the timer decides which nsqds to dial, and a ``DialScheduler`` dials some at once.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NSQConnectionError,
    NSQError,
    ReentrantCallError,
    with_hint,
)
from nsqclient.log_records import log_fields
from nsqclient.producer.pool import C, ConnectionPool, Pipeline, PoolConnection
from nsqclient.producer.timer import PoolTimer
from nsqclient.protocol.events import ServerSettings
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import reconnect_delay
from nsqclient.runtime.dialing import DIRECT, DialScheduler
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.lock import Monitor
from nsqclient.runtime.threads import need_threads

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds for dialing and the handshake.
HANDSHAKE_TIMEOUT = 5.0
#: Longest pause in seconds between two dials of an nsqd if publishes wait for it.
_MAX_PAUSE = 0.5
#: Seconds: an nsqd whose connection ends sooner is not dialed again at once.
_BRIEF = 2.0
#: Maximum number of nsqds that ``missing()`` names.
_MOST_NAMED = 5


class NsqdNode:
    """One nsqd of a producer. The lock of the NodePool guards its state."""

    def __init__(self, address: str, config: Config, want: Callable[[], None]) -> None:
        self.address = address
        self._max_pause = config.max_reconnect_delay
        self.pool: ConnectionPool[BlockingConnection] = ConnectionPool(
            BlockingConnection, address, config, want)
        self.pipeline: Pipeline = Pipeline(address, config, want)
        self.pools: tuple[ConnectionPool[Any], ...] = (self.pool, self.pipeline)
        self.sources: set[str] = set()  # the nsqlookupds that list it
        self.has_worked: bool = False  # it was connected once
        self.is_failing: bool = False  # its last dial failed
        self.dialed_at: float = 0.0  # when a dial succeeded last, on time.monotonic()
        #: Dials in a row that failed, or whose connection was lost before it answered a publish.
        self.failures: int = 0
        #: Answers to publishes. Threads may overwrite each other's sum: it only has to change.
        self.responses: int = 0
        self.failed_at: float = 0.0  # when it failed last, on time.monotonic()
        self.retry_at: float = 0.0  # no dial before, unless publishes wait; same clock
        self.last_error: NSQError | None = None
        self.version: str = ""  # version of nsqd; empty before the first connection

    def close(self) -> None:
        for pool in self.pools:
            pool.close()

    def connections(self) -> list[PoolConnection]:
        return [conn for pool in self.pools for conn in pool.connections()]

    @property
    def is_awaited(self) -> bool:
        return any(pool.waiting for pool in self.pools)

    def dials(self) -> list[PoolConnection]:
        return [conn for pool in self.pools for conn in pool.dialing]

    def release_waiters(self) -> None:
        """Wake the waiting publishes so that each chooses another nsqd."""
        for pool in self.pools:
            pool.release_waiters()

    def rest(self, rng: random.Random) -> None:
        """Do not dial the nsqd for a while after a failure."""
        self.failures += 1
        self.failed_at = time.monotonic()
        self.retry_at = self.failed_at + reconnect_delay(self.failures, self._max_pause, rng)

    def dial_at(self, is_awaited: bool) -> float:
        """Return when the nsqd may be dialed: soon if publishes wait, as it may be back."""
        return min(self.retry_at, self.failed_at + _MAX_PAUSE) if is_awaited else self.retry_at

    @property
    def is_hopeless(self) -> bool:
        """True if the last dial has failed in a way that another one cannot help."""
        return self.last_error is not None and not _may_help(self.last_error)


def _may_help(error: NSQError) -> bool:
    """True if the same dial may succeed later."""
    return isinstance(error, NSQConnectionError)


class NodePool:
    """All nsqds of a producer. Thread-safe.

    Args:
        check: called with an address and the settings of its nsqd, on a thread that dials; raises
            an NSQError if publishes to this nsqd cannot succeed.
    """

    def __init__(
        self, addresses: Iterable[str], config: Config, lookupds: Iterable[str] = (),
        check: Callable[[str, ServerSettings], None] = lambda address, settings: None,
    ) -> None:
        self._config = config
        self._check_nsqd = check
        self._rng = random.Random()
        self._changed = Monitor()
        self._nodes: dict[str, NsqdNode] = {}  # guarded by _changed.lock, as all below
        #: The nsqds to use, those connected longest first. Replaced, and read without a lock.
        self.connected: tuple[NsqdNode, ...] = ()
        #: True if the last publish that found no nsqd was asynchronous; None before the first one.
        self._is_async: bool | None = None
        #: Checks idle connections, and starts the dials of missing ones.
        self.timer: PoolTimer = PoolTimer(self._check)
        self._closed = False  # written under _changed
        self._failed_dials = LineLimit()
        #: The last failure of an nsqlookupd.
        self.discovery_error: NSQError | None = None
        given, self._lookupds = set(addresses), list(lookupds)
        self._dials: DialScheduler[PoolConnection] = DialScheduler(
            ([DIRECT] if given or not self._lookupds else []) + self._lookupds, self.dial
        )
        self.set_addresses({DIRECT: given})

    @property
    def addresses(self) -> list[str]:
        return list(self._nodes)

    def set_addresses(self, named: Mapping[str, Iterable[str]]) -> None:
        """Use the nsqds that the sources name; drop all others that are not connected."""
        sources: dict[str, set[str]] = {}
        for source, addresses in named.items():
            for address in addresses:
                sources.setdefault(address, set()).add(source)
        with self._changed.lock:
            self._changed.notify_all()
            for address, names in sources.items():
                node = self._node(address)
                node.sources = names
                for conn in node.dials():
                    self._dials.put(conn, names)
            for address in set(self._nodes).difference(sources):
                self._drop_unconnected(self._nodes[address])
        self.timer.wake()

    def node_at(self, address: str) -> NsqdNode:
        """Return an nsqd that nsqlookupds list."""
        with self._changed.lock:
            node = self._node(address)
            node.sources = node.sources or set(self._lookupds)
            return node

    def _node(self, address: str) -> NsqdNode:
        """Needs _changed."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NsqdNode(address, self._config, self.timer.wake)
            if self._closed:
                node.close()
        return node

    def _drop_unconnected(self, node: NsqdNode) -> None:
        """Forget an nsqd that is not connected. Needs _changed."""
        if not node.connections():
            for conn in node.dials():
                self._dials.discard(conn)
            node.close()
            del self._nodes[node.address]

    def count_connections(self) -> dict[str, int]:
        with self._changed.lock:
            counts = {address: len(node.connections()) for address, node in self._nodes.items()}
        return {address: count for address, count in counts.items() if count}

    def missing(self) -> str:
        """Name the nsqds that are not connected, with reasons; empty if all are."""
        with self._changed.lock:
            missing = [node for node in self._nodes.values() if node not in self.connected]
        named = [f"{node.address} ({node.last_error or 'no connection yet'})"
                 for node in missing[:_MOST_NAMED]]
        if len(missing) > _MOST_NAMED:
            named.append(f"{len(missing) - _MOST_NAMED} more")
        return ", ".join(named)

    def why_none(self, otherwise: str = "no nsqd is known yet") -> NSQError:
        """Return the last error of an nsqd or nsqlookupd; without one, ``otherwise``."""
        with self._changed.lock:
            return self._reason() or ConnectError("nsqd", otherwise)

    # -- nsqds for publishes

    def acquire(self, deadline: Deadline, is_async: bool = False) -> NsqdNode:
        """Wait for a connected nsqd, until the deadline.

        Raises:
            ConnectError: none was connected in time.
            NSQError: the reason why no nsqd can be used, if waiting cannot help.
            ClosedError: ``close()`` was called.
            ReentrantCallError: a finalizer on the timer thread would wait for that thread.
            RuntimeError: no thread can be started.
        """
        self._need_threads()
        if not self._closed:
            self.timer.start()

        def find() -> NsqdNode | None:
            if self.connected:
                return self.connected[0]
            if self._closed:
                raise ClosedError("the producer is closed")
            self._is_async = is_async
            if self._is_hopeless():
                raise self._reason() or ConnectError("nsqd", "no nsqd can be used")
            self.timer.wake()  # to start dials
            return None

        node = self._changed.wait_for(find, deadline.remaining())
        if node is None:
            raise self.why_none("no nsqd was connected in time")
        return node

    def _need_threads(self) -> None:
        """Raise an error if no thread would wake the calling thread."""
        if self.timer.is_current():
            raise ReentrantCallError()
        need_threads()

    def _is_hopeless(self) -> bool:
        """True if every nsqd has recently failed in a permanent way. Needs _changed."""
        now = time.monotonic()
        return bool(self._nodes) and all(
            node.is_hopeless and not node.dials() and now < node.dial_at(True)
            for node in self._nodes.values())

    def wait_for_connection(
        self, node: NsqdNode, pool: ConnectionPool[C], until: float, interval: float,
        is_reentrant: Callable[[], bool],
    ) -> C | None:
        """Return a connection when it is the caller's turn; None: choose an nsqd again.

        Blocks and raises as ``ConnectionPool.wait``, but at most for ``interval`` seconds if
        another nsqd is connected. If that is inf, only this nsqd will do.
        """
        self._need_threads()
        if interval < math.inf:
            is_removed = not node.connections() and self._remove(node)
            has_others = any(other is not node for other in self.connected)
            if is_removed or has_others and not node.connections():
                return None
            if has_others:
                until = min(until, time.monotonic() + interval)
        return pool.wait(until, is_reentrant)

    def pause(self, seconds: float) -> None:
        """Wait, but not after ``close()``."""
        self._changed.wait_for(lambda: self._closed, max(0.0, seconds))

    # -- failures

    def on_lost(self, node: NsqdNode, error: NSQError, is_new: bool) -> None:
        """A publish has lost or left a connection; ``is_new``: it had not answered any publish."""
        with self._changed.lock:
            if isinstance(error, NSQConnectionError):
                node.last_error = error
            if is_new and isinstance(error, ConnectionLostError):
                # It accepts connections and loses them: do not dial it without a pause.
                node.rest(self._rng)
        self._log_loss(node, error, is_last=not node.connections() and self._remove(node))

    def on_refused(self, node: NsqdNode) -> None:
        """Stop using an nsqd whose last connection has ended, until it is dialed again."""
        if not node.connections():
            self._remove(node)

    def leave_stalled(self, node: NsqdNode) -> None:
        """Use other nsqds until this one, which does not answer, is dialed again."""
        if self._remove(node):
            logger.warning("%s does not respond to publishes: using others", node.address,
                           extra=log_fields(nsqd=node.address))

    def _remove(self, node: NsqdNode) -> bool:
        """Stop using an nsqd until it is dialed again; return True if it was in use."""
        with self._changed.lock:
            was_connected = node in self.connected
            self.connected = tuple(other for other in self.connected if other is not node)
        node.release_waiters()
        self.timer.wake()
        return was_connected

    def _log_loss(self, node: NsqdNode, error: NSQError, is_last: bool) -> None:
        if not self._closed:
            logger.log(logging.WARNING if is_last else logging.DEBUG,
                       "lost a connection, connecting again: %s", error,
                       extra=log_fields(nsqd=node.address))

    def _check(self, now: float) -> float:
        """Check all connections, and dial missing ones; return when to check again."""
        due = now + 1.0
        with self._changed.lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            due = min([due, *(pool.check(now) for pool in node.pools)])
            if node in self.connected and not (node.connections() or node.is_awaited):
                with self._changed.lock:
                    if now - node.dialed_at < _BRIEF:
                        node.rest(self._rng)
                self._log_loss(
                    node, ConnectionLostError(node.address, "it ended while it was idle"),
                    is_last=self._remove(node))
            with self._changed.lock:
                retry_at = self._put_missing(node, now)
            if retry_at < math.inf and not node.connections():
                node.release_waiters()  # they may find another nsqd
            due = min(due, retry_at)
        self._dials.dispatch()
        return due

    # -- dialing

    def _put_missing(self, node: NsqdNode, now: float) -> float:
        """Queue the dials of missing connections, or return when they may be dialed."""
        if self._closed or self._nodes.get(node.address) is not node:
            return math.inf
        for pool in node.pools:  # an exception of a time limit may have ended a dial
            pool.dialing = {conn for conn in pool.dialing if conn in self._dials}
        missing = {pool: pool.missing() for pool in node.pools if pool.missing() > 0}
        if self._is_async is not None and not (
            missing or node.dials() or node in self.connected
        ):
            is_shared = self._is_async and not node.pipeline.connections()
            missing = {node.pipeline if is_shared else node.pool: 1}
        is_awaited = not self.connected and self._changed.is_awaited
        due = math.inf
        for pool, number in missing.items():
            retry_at = node.dial_at(
                is_awaited or bool(pool.waiting) and not pool.connections())
            if now < retry_at:
                due = min(due, retry_at)
                continue
            for _ in range(number):
                conn = pool.new_connection()
                pool.dialing.add(conn)
                self._dials.put(
                    conn, node.sources, has_worked=node.has_worked, failures=node.failures)
        return due

    def _reason(self) -> NSQError | None:
        """Needs _changed."""
        errors = [node.last_error for node in self._nodes.values() if node.last_error is not None]
        return errors[-1] if errors else self.discovery_error

    def dial(self, conn: PoolConnection) -> None:
        """For the DialScheduler: open one more connection to an nsqd."""
        node = self._nodes.get(conn.address)
        pools = [] if node is None else [pool for pool in node.pools if conn in pool.dialing]
        if node is None or not pools:
            return  # dropped meanwhile
        pool = pools[0]
        try:
            error = self._open(conn)
            self._settle_dial(node, pool, conn, error)
        except BaseException:  # a time limit raised it in this thread: the timer dials again
            if conn in pool.dialing and conn not in pool.idle:  # else a publish may have it
                conn.close()
            raise

    def _settle_dial(
        self, node: NsqdNode, pool: ConnectionPool[Any], conn: PoolConnection,
        error: NSQError | None,
    ) -> None:
        with self._changed.lock:
            node.last_error = error
            is_news, node.is_failing = not node.is_failing, error is not None
            if error is not None:
                node.rest(self._rng)
                if node.is_hopeless:
                    self._changed.notify_all()  # perhaps no nsqd can be used
            else:
                node.has_worked = True
                node.dialed_at = time.monotonic()
                node.version = conn.settings.version
                if not pool.is_closed and node not in self.connected:
                    self.connected += (node,)
                pool.add(conn)
                self._changed.notify_all()
            pool.dialing.discard(conn)
        if error is not None:
            if not pool.is_closed:
                self._log_failed_dial(node, error, is_news)
            conn.close()
            self.on_refused(node)
        self.timer.wake()

    def _open(self, conn: PoolConnection) -> NSQError | None:
        if self._closed:
            return ClosedError("the producer is closed")
        try:
            conn.open(Deadline(HANDSHAKE_TIMEOUT))
            self._check_nsqd(conn.address, conn.settings)
        except NSQError as exc:
            return exc
        except Exception as exc:
            logger.exception("dialing %s failed", conn.address,
                             extra=log_fields(nsqd=conn.address))
            return ConnectError(conn.address, f"internal error: {exc!r}")
        return None

    def _log_failed_dial(self, node: NsqdNode, error: NSQError, is_news: bool) -> None:
        level = self._failed_dials.level(logging.WARNING) if is_news else logging.DEBUG
        # If another dial cannot help, the publish raises the error at once.
        logger.log(level, "cannot publish to %s%s: %s", node.address,
                   ", trying again" if _may_help(error) else "",
                   with_hint(error, node.address), extra=log_fields(nsqd=node.address))

    # -- closing

    def close(self, deadline: Deadline) -> list[str]:
        """Refuse further use and end all connections; return the names of stuck threads."""
        self._dials.close()
        with self._changed.lock:
            self._changed.notify_all()
            self._closed = True
            self.connected = ()
            nodes = list(self._nodes.values())
        for node in nodes:
            node.close()
        stuck = self._dials.join(deadline)
        stuck += [f"nsq-reader-{node.address}" for node in nodes
                  if not node.pipeline.join(deadline)]
        return stuck if self.timer.stop(deadline) else [*stuck, "nsq-timer"]

    def abandon(self) -> None:
        """In a forked child: close the parent's sockets without sending anything to nsqd."""
        for node in self._nodes.values():
            for pool in node.pools:
                pool.abandon()
