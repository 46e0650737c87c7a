"""``NodePool``: the nsqds of a producer, dialed in the background.

Publishers never dial: they take a connected nsqd, or wait until one is connected. So a dead
address costs nobody anything while another one is alive. A ``DialScheduler`` dials, a limited
number at once; what has to wait before it is dialed again is not in its hands yet.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NSQConnectionError,
    NSQError,
)
from nsqclient.hints import with_hint
from nsqclient.log_fields import log_fields
from nsqclient.producer.pipelined import PipelinedConnection
from nsqclient.producer.pool import ConnectionPool, Pipeline, PoolConnection, PoolTimer
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import reconnect_delay
from nsqclient.runtime.dial_queue import DIRECT, standing_of
from nsqclient.runtime.dial_scheduler import DialScheduler
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.monitor import Monitor

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds for the dialogue before the first publish.
HANDSHAKE_TIMEOUT = 5.0
#: Longest pause in seconds between two dials of one nsqd while publishers wait and no other is
#: alive: it may be back.
_MAX_PAUSE = 0.5


class _Dial(NamedTuple):
    """The key of a dial."""

    address: str
    slot: int  #: which one it is of those for the same nsqd
    is_async: bool  #: for asynchronous publishes

    def __str__(self) -> str:
        return self.address


class NsqdNode:
    """One nsqd of a producer. The lock of the NodePool guards its state.

    Args:
        want: called with this node when publishes wait for connections of a pool of it.
    """

    def __init__(
        self, address: str, config: Config, want: Callable[[NsqdNode, ConnectionPool], None]
    ) -> None:
        self.address = address
        self.pool: ConnectionPool = ConnectionPool(
            address, config, lambda: want(self, self.pool))
        self.pipeline: Pipeline = Pipeline(address, config, lambda: want(self, self.pipeline))
        self.pools: tuple[ConnectionPool, ...] = (self.pool, self.pipeline)
        self.sources: set[str] = set()  # the nsqlookupds that list it
        self.has_worked: bool = False  # it was connected once
        self.failures: int = 0  # dials that failed or led to nothing, in a row
        self.refusals: int = 0  # publishes that nsqd was unable to store, in a row
        self.failed_at: float = 0.0  # when it failed last, on time.monotonic()
        self.retry_at: float = 0.0  # no dial before, unless publishers wait; same clock
        self.last_error: NSQError | None = None
        self.is_partitioned: bool = False  # known once it was connected
        self.is_warned_of: bool = False  # as a partitioned nsqd without nsqlookupds

    def connections(self) -> list[PoolConnection]:
        """Return those that are alive."""
        return [conn for pool in self.pools for conn in pool.connections()]

    def dials(self) -> dict[_Dial, PoolConnection | None]:
        """Return those that were asked for: the connection once it is being opened."""
        return {_Dial(self.address, slot, pool is self.pipeline): conn
                for pool in self.pools for slot, conn in pool.dialing.items()}

    def release_waiters(self) -> None:
        """Have publishes that wait for connections choose an nsqd anew."""
        for pool in self.pools:
            pool.release_waiters()

    def __repr__(self) -> str:
        return f"<NsqdNode {self.address}>"


class NodePool:
    """All nsqds of a producer.

    Args:
        addresses: those that the user gave; ``set_addresses`` changes them.
        lookupds: the nsqlookupds that may name others.

    Each nsqlookupd, and the addresses that the user gave, may use an equal part of the dials that
    are under way at once, so that no number of dead addresses that one of them names delays what
    the others name.

    Threads: any.
    """

    def __init__(
        self, addresses: Iterable[str], config: Config, lookupds: Iterable[str] = ()
    ) -> None:
        self._config = config
        self._rng = random.Random()
        self._changed = Monitor()
        self._nodes: dict[str, NsqdNode] = {}  # by _changed, as all below
        #: Those that are connected, the longest first, without those that do not respond while
        #: others do. Replaced, never changed, and read without a lock.
        self.connected: tuple[NsqdNode, ...] = ()
        self.is_complete: bool = False  #: all nsqds are connected; read without a lock too
        #: When those that are not connected are looked at again, while one is connected, and
        #: while publishers wait because none is.
        self._next_look = self._next_hurried_look = 0.0
        #: Watches the deadlines of publishes, and looks after idle connections.
        self.timer: PoolTimer = PoolTimer(self._check_pools)
        self._closed = False  # written under _changed
        self._failed_dials = LineLimit(logger)
        #: Why no nsqd is known, where they come from nsqlookupd.
        self.discovery_error: NSQError | None = None
        given, self._lookupds = set(addresses), list(lookupds)
        self._dials: DialScheduler[_Dial] = DialScheduler(
            ([DIRECT] if given or not self._lookupds else []) + self._lookupds, self.dial
        )
        self.set_addresses({DIRECT: given})

    @property
    def addresses(self) -> list[str]:
        """The nsqds that may be used."""
        return list(self._nodes)

    def set_addresses(self, named: Mapping[str, Iterable[str]]) -> None:
        """Use these nsqds from now on; those not named are dropped where they are not connected.

        Args:
            named: the addresses that each source names: ``DIRECT``, or an nsqlookupd.
        """
        sources: dict[str, set[str]] = {}
        for source, addresses in named.items():
            for address in addresses:
                sources.setdefault(address, set()).add(source)
        with self._changed.lock:
            self._changed.notify_all()
            for address, names in sources.items():
                self._set_sources(self._node(address), names)
            for address in set(self._nodes).difference(sources):
                self._drop_unconnected(self._nodes[address])
            self._next_look = self._next_hurried_look = 0.0

    def node_at(self, address: str) -> NsqdNode:
        """Return one nsqd that nsqlookupds name, also where it is new."""
        with self._changed.lock:
            node = self._node(address)
            node.sources = node.sources or set(self._lookupds)
            return node

    def _node(self, address: str) -> NsqdNode:
        """Return an nsqd, also a new one. Needs _changed."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NsqdNode(address, self._config, self._want_connections)
            self._set_connected(self.connected)
        return node

    def _set_sources(self, node: NsqdNode, names: set[str]) -> None:
        """Note which sources name an nsqd. Needs _changed."""
        node.sources = names
        for dial in node.dials():
            self._dials.set_sources(dial, names)

    def _set_connected(self, nodes: Iterable[NsqdNode]) -> None:
        """Needs _changed."""
        self.connected = tuple(nodes)
        self.is_complete = len(self.connected) == len(self._nodes)

    def _drop_unconnected(self, node: NsqdNode) -> None:
        """Forget an nsqd, unless it is connected or about to be. Needs _changed."""
        dials = node.dials()
        is_awaited = node.pool.is_awaited or node.pipeline.is_awaited
        if any(dials.values()) or is_awaited or node.connections():
            return
        for dial in dials:
            self._dials.discard(dial)
        del self._nodes[node.address]
        self._set_connected(self.connected)

    def count_connections(self) -> dict[str, int]:
        """Return how many connections there are to each nsqd."""
        with self._changed.lock:
            counts = {address: len(node.connections()) for address, node in self._nodes.items()}
        return {address: count for address, count in counts.items() if count}

    # -- nsqds for publishes

    def look_after_the_rest(self, is_async: bool) -> None:
        """Have dialed what is not connected and does not rest, now and then."""
        if time.monotonic() >= self._next_look:
            with self._changed.lock:
                self._want_the_rest(time.monotonic(), is_async=is_async)
            self._dials.dispatch()

    def acquire(self, deadline: Deadline, is_async: bool = False) -> NsqdNode:
        """Return an nsqd that is connected, waiting for one where none is.

        Args:
            is_async: an asynchronous publish waits.

        Blocks: until the deadline.

        Raises:
            ConnectError: none was connected in time.
            NSQError: the reason why none can be used, where waiting cannot help.
            ClosedError: ``close()`` was called.
        """
        waiter = self._changed.waiter()
        try:
            while True:
                with self._changed.lock:
                    if self.connected:
                        return self.connected[0]
                    pause = self._want_the_rest(time.monotonic(), True, is_async)
                self._dials.dispatch()
                with self._changed.lock:
                    if self.connected:
                        return self.connected[0]
                    if self._closed:
                        raise ClosedError("the producer is closed")
                    is_over = deadline.expired()
                    has_news = time.monotonic() >= self._next_hurried_look
                    if pause is not None and has_news and not is_over:
                        continue  # a dial has ended meanwhile
                    reason = self._reason() if is_over or pause is None else None
                    if pause is None and reason is not None and not self._may_help(reason):
                        raise reason
                    if is_over:
                        raise reason or ConnectError("nsqd", "no nsqd was connected in time")
                    waiter.arm()
                waiter.sleep(deadline.at_most(_MAX_PAUSE if pause is None else pause))
        finally:
            waiter.close()

    def wait_for_connection(
        self, node: NsqdNode, pool: ConnectionPool, until: float, pause: float
    ) -> PoolConnection | None:
        """Return a connection of this pool when it is the caller's turn; None: choose an nsqd anew.

        Args:
            pause: seconds to wait where there is another nsqd; inf: only this one will do.

        Blocks: until ``until`` on ``time.monotonic()``.
        """
        if pause < math.inf and not (
            pool.connections() or node.connections()
        ) and self._remove(node):
            return None
        if pause < math.inf and len(self.connected) > 1:
            until = min(until, time.monotonic() + pause)
        return pool.wait(until)

    # -- what has ended

    def on_lost(self, node: NsqdNode, conn: PoolConnection, error: NSQError) -> None:
        """A connection ended under a publish."""
        is_last = not node.connections() and self._remove(node)
        with self._changed.lock:
            if isinstance(error, NSQConnectionError):
                node.last_error = error
            if conn.used_at == conn.opened_at and not conn.is_cut:
                # It takes connections and loses them: dialing at once would go round in circles.
                node.failures += 1
                self._rest(node, node.failures)
        self._log_loss(node, error, is_last)

    def mark_unavailable(self, node: NsqdNode) -> None:
        """nsqd is up and cannot store: do not come back at once."""
        with self._changed.lock:
            node.refusals += 1
            self._rest(node, node.refusals)
        self._remove(node)

    def _remove(self, node: NsqdNode) -> bool:
        """Publish to other nsqds until it is dialed again; return whether it was in use."""
        with self._changed.lock:
            was_connected = node in self.connected
            if was_connected:
                self._set_connected(other for other in self.connected if other is not node)
                self._next_look = self._next_hurried_look = 0.0
        node.release_waiters()
        return was_connected

    def _log_loss(self, node: NsqdNode, error: NSQError, is_last: bool) -> None:
        """Log that a connection was lost; one line is enough where an nsqd ended."""
        if not self._closed:
            logger.log(logging.WARNING if is_last else logging.DEBUG,
                       "lost a connection, connecting again: %s", error,
                       extra=log_fields(nsqd=node.address))

    def _check_pools(self, now: float) -> float:
        """Look at all connections; return when to look again. On the timer."""
        due = now + 1.0
        with self._changed.lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            has_others = any(other is not node for other in self.connected)
            checked = [pool.check(now, has_others) for pool in node.pools]
            due = min([due, *(again for again, _ in checked)])
            if any(is_stalled for _, is_stalled in checked):
                self._leave_stalled(node)
            elif node in self.connected and not node.connections():
                self._log_loss(
                    node, ConnectionLostError(node.address, "it ended while it was idle"),
                    is_last=self._remove(node))
        return due

    def _leave_stalled(self, node: NsqdNode) -> None:
        """It leaves a publish unanswered while another may answer: use it once a dial succeeds."""
        if self._remove(node):
            logger.warning("%s does not respond to publishes: using others", node.address,
                           extra=log_fields(nsqd=node.address))
        node.pool.close_idle()

    # -- dialing

    def _want_connections(self, node: NsqdNode, pool: ConnectionPool) -> None:
        """Have dialed what publishes wait for, for this pool of an nsqd."""
        with self._changed.lock:
            is_over = self._closed
            retry_at = node.retry_at
            if not pool.connections():  # a publish waits for this one: it may be back
                retry_at = min(retry_at, node.failed_at + _MAX_PAUSE)
            if not is_over and time.monotonic() >= retry_at:
                for _ in range(pool.missing()):
                    self._have_dialed(node, pool)
            elif not node.connections():
                is_over = True
        if is_over:
            pool.release_waiters()
        self._dials.dispatch()

    def _want_the_rest(
        self, now: float, hurry: bool = False, is_async: bool = False
    ) -> float | None:
        """Have dialed what is not connected and does not rest. Needs _changed.

        ``dispatch()`` comes next, without the lock.

        Returns: seconds until the next one has rested; None when all failed permanently.
        """
        if hurry and now < self._next_hurried_look:  # publishers that wait share one look
            return self._next_hurried_look - now
        pause = None
        for node in self._nodes.values():
            if self._closed or node in self.connected:
                continue
            is_dialing = bool(node.dials())
            if is_dialing:
                pause = min(pause or _MAX_PAUSE, _MAX_PAUSE)
                continue
            until = node.retry_at
            if hurry:  # publishers wait, so it is not left alone for long: it may be back
                until = min(until, node.failed_at + _MAX_PAUSE)
            rest = until - now
            if rest <= 0:
                is_dialing = True
                is_shared = is_async and not node.pipeline.connections()
                self._have_dialed(node, node.pipeline if is_shared else node.pool)
                rest = _MAX_PAUSE
            if node.last_error is None or self._may_help(node.last_error) or is_dialing:
                pause = rest if pause is None else min(pause, rest)
        if not self._nodes:
            pause = _MAX_PAUSE
        self._next_look = now + (pause or _MAX_PAUSE)
        if hurry and pause is not None:
            self._next_hurried_look = now + pause
        return pause

    def _have_dialed(self, node: NsqdNode, pool: ConnectionPool) -> None:
        """Have one more connection dialed. Needs _changed; ``dispatch()`` comes next."""
        dialing = pool.dialing
        slot = next(slot for slot in itertools.count() if slot not in dialing)
        standing = standing_of(node.has_worked, node.failures)
        self._dials.put(
            _Dial(node.address, slot, pool is node.pipeline), node.sources, standing)
        dialing[slot] = None  # last: Ctrl-C before it costs another put, at worst

    @staticmethod
    def _may_help(error: NSQError) -> bool:
        """Return whether the same dial may succeed later."""
        return isinstance(error, NSQConnectionError)

    def _reason(self) -> NSQError | None:
        """Why there is no connection. Needs _changed."""
        errors = [node.last_error for node in self._nodes.values() if node.last_error is not None]
        return errors[-1] if errors else self.discovery_error

    def dial(self, key: _Dial) -> None:
        """For the DialScheduler: open one more connection to an nsqd."""
        address, slot, is_async = key
        with self._changed.lock:
            node = self._nodes.get(address)
            if node is None or node.dials().get(key, self) is not None:
                return  # dropped meanwhile, or another thread dials it
            pool = node.pipeline if is_async else node.pool
            conn = pool.dialing[slot] = (PipelinedConnection if is_async else BlockingConnection)(
                address, self._config)
        error = self._open(conn)
        if error is None:
            try:
                self.timer.start()
            except RuntimeError as exc:
                error = ConnectError(address, f"no thread to watch it: {exc}")
        with self._changed.lock:
            del pool.dialing[slot]
            is_kept = self._note_dialed(node, error, conn.is_partitioned)
            if is_kept:
                pool.add(conn)
                if node not in self.connected:
                    self._changed.notify_all()
                    self._set_connected([*self.connected, node])
        self._log_dial(node, error)
        if is_kept:
            return
        conn.close()
        if not node.connections():
            self._remove(node)

    def _open(self, conn: PoolConnection) -> NSQError | None:
        """Open a connection; return what went wrong."""
        if self._closed:
            return ClosedError("the producer is closed")
        try:
            conn.open(Deadline(HANDSHAKE_TIMEOUT))
        except NSQError as exc:
            return exc
        except Exception as exc:
            logger.exception("dialing %s failed", conn.address,
                             extra=log_fields(nsqd=conn.address))
            return ConnectError(conn.address, f"internal error: {exc!r}")
        return None

    def _note_dialed(
        self, node: NsqdNode, error: NSQError | None, is_partitioned: bool
    ) -> bool:
        """A dial has ended; return whether the connection is to be used. Needs _changed."""
        node.last_error = error
        if error is not None:
            self._on_dial_failed(node, error)
            return False
        node.is_partitioned = is_partitioned
        node.has_worked = True
        return not self._closed

    def _on_dial_failed(self, node: NsqdNode, error: NSQError) -> None:
        """Let it rest; publishers that wait look for themselves when it has. Needs _changed."""
        node.failures += 1
        self._rest(node, node.failures)
        if self._may_help(error) or any(
            other.dials() for other in self._nodes.values() if other is not node
        ):
            return
        self._changed.notify_all()  # perhaps no other can be used either
        self._next_hurried_look = 0.0

    def _log_dial(self, node: NsqdNode, error: NSQError | None) -> None:
        """Log what a dial has led to, where that is news."""
        if self._closed:
            return
        if error is None:
            if node.is_partitioned and not self._lookupds and not node.is_warned_of:
                node.is_warned_of = True
                logger.warning(
                    "%s is a partitioned nsqd: without nsqlookupd it stores messages in any"
                    " partition that it leads, and rejects them if it leads none; pass"
                    " lookupd_http_addresses instead of nsqd_tcp_addresses", node.address,
                    extra=log_fields(nsqd=node.address))
            return
        # Once for each outage; publishers that wait dial twice a second.
        level = logging.DEBUG
        if node.failures == 1:
            level = self._failed_dials.level(logging.WARNING)
        # What another dial does not help against is raised by the publish at once.
        logger.log(level, "cannot publish to %s%s: %s", node.address,
                   ", trying again" if self._may_help(error) else "",
                   with_hint(error, node.address), extra=log_fields(nsqd=node.address))

    def _rest(self, node: NsqdNode, failures: int) -> None:
        """Leave it alone for a while. Needs _changed."""
        delay = reconnect_delay(failures, self._config.max_reconnect_delay, self._rng)
        node.failed_at = time.monotonic()
        node.retry_at = node.failed_at + delay
        again = min(node.retry_at, node.failed_at + _MAX_PAUSE)
        self._next_hurried_look = min(self._next_hurried_look, again)

    # -- the end

    def close(self, deadline: Deadline) -> list[str]:
        """Refuse further use and end all connections; return the names of threads that stay."""
        with self._changed.lock:
            self._changed.notify_all()
            self._closed = True
            nodes = list(self._nodes.values())
            dials = [conn for node in nodes for conn in node.dials().values()]
        self._dials.close()
        for node in nodes:
            for pool in node.pools:
                pool.close()
        opening = [conn for conn in dials if conn is not None]
        for conn in opening:
            conn.cut(ConnectError(conn.address, "the producer was closed"))
        stuck = self._dials.join(deadline)
        stuck += [f"nsq-reader-{node.address}" for node in nodes
                  if not node.pipeline.join(deadline)]
        stuck += [f"nsq-reader-{conn.address}" for conn in opening
                  if isinstance(conn, PipelinedConnection) and not conn.join(deadline)]
        return stuck if self.timer.stop(deadline) else [*stuck, "nsq-timer"]

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back without a word to nsqd."""
        for node in self._nodes.values():
            for pool in node.pools:
                pool.abandon()
