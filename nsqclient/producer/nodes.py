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
from collections.abc import Iterable, Mapping

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.connection.connection import Connection
from nsqclient.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NSQConnectionError,
    NSQError,
    ServerError,
)
from nsqclient.hints import with_hint
from nsqclient.log_fields import log_fields
from nsqclient.producer.node import NsqdNode, Rotation
from nsqclient.producer.pool import PoolTimer
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
#: Seconds between two looks at the connections at the end of the process.
_LOOK = 0.05


class NodePool:
    """All nsqds of a producer.

    Args:
        addresses: those that the user gave; ``set_addresses`` changes them.
        sticky: use one nsqd until it fails, instead of all in turn.
        lookupds: the nsqlookupds that may name others.

    Each nsqlookupd, and the addresses that the user gave, may use an equal part of the dials that
    are under way at once, so that no number of dead addresses that one of them names delays what
    the others name.

    Threads: any.
    """

    def __init__(
        self, addresses: Iterable[str], config: Config, sticky: bool, lookupds: Iterable[str] = ()
    ) -> None:
        self._config = config
        self._rng = random.Random()
        self._changed = Monitor()
        self._nodes: dict[str, NsqdNode] = {}  # by _changed, as all below
        #: The nodes to use, for publish() and for publish_async().
        self.pooled: Rotation = Rotation(self._nodes, self._look_after_the_rest, sticky, True)
        self.pipelined: Rotation = Rotation(self._nodes, self._look_after_the_rest, sticky, False)
        #: Watches the deadlines of publishes, and looks after idle connections.
        self.timer: PoolTimer = PoolTimer(self._check_pools)
        self._closed = False  # written under _changed
        self._failed_dials = LineLimit(logger)
        self._ended: list[Connection] = []  # lost connections, to be joined; by _changed
        #: Why no nsqd is known, where they come from nsqlookupd.
        self.discovery_error: NSQError | None = None
        given, self._lookupds = set(addresses), list(lookupds)
        self._dials: DialScheduler[str] = DialScheduler(
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
                self._set_sources(address, names)
            for address in set(self._nodes).difference(sources):
                self._drop_unconnected(address)
            self.pooled.look_soon()
            self.pipelined.look_soon()

    def _set_sources(self, address: str, names: set[str]) -> None:
        """Note which sources name an nsqd, also a new one. Needs _changed."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NsqdNode(address, self, self._config)
        if node.sources != names:
            node.sources = names
            self._dials.set_sources(address, names)

    def _drop_unconnected(self, address: str) -> None:
        """Forget an nsqd, unless it is connected or about to be. Needs _changed."""
        node = self._nodes[address]
        pool = node.pool
        is_dialed = node.dialed is not None or any(pool.dialing.values())
        is_wanted = node.is_wanted or node.pool.is_awaited
        if node.conn is None and not (is_dialed or is_wanted or pool.connections()):
            self._dials.discard(address)
            for slot in pool.dialing:
                self._dials.discard(_pool_key(node, slot))
            del self._nodes[address]

    @property
    def ready(self) -> tuple[NsqdNode, ...]:
        """The nodes that ``publish_async`` uses now."""
        return self.pipelined.nodes

    @property
    def connected(self) -> list[str]:
        """The addresses of the nsqds that are connected."""
        nodes = dict.fromkeys((*self.pooled.nodes, *self.pipelined.nodes))
        return [node.address for node in nodes]

    def count_connections(self) -> dict[str, int]:
        """Return how many connections there are to each nsqd."""
        with self._changed.lock:
            counts = {address: len(node.pool.connections()) for address, node in
                      self._nodes.items()}
            for node in self.pipelined.alive:
                counts[node.address] = counts.get(node.address, 0) + 1
        return {address: count for address, count in counts.items() if count}

    def acquire(self, deadline: Deadline, rotation: Rotation) -> NsqdNode:
        """Return an nsqd that is connected in this way, waiting for one where none is.

        Blocks: until the deadline.

        Raises:
            ConnectError: none was connected in time.
            NSQError: the reason why none can be used, where waiting cannot help.
            ClosedError: ``close()`` was called.
        """
        node = rotation.choose()
        if node is not None:
            return node
        waiter = self._changed.waiter()
        try:
            while True:
                with self._changed.lock:
                    if rotation.nodes:
                        return rotation.nodes[0]
                    pause = self._want_the_rest(rotation, time.monotonic(), hurry=True)
                self._dials.dispatch()
                with self._changed.lock:
                    if rotation.nodes:
                        return rotation.nodes[0]
                    if self._closed:
                        raise ClosedError("the producer is closed")
                    is_over = deadline.expired()
                    has_news = time.monotonic() >= rotation.next_hurried_look
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

    # -- connections of publish()

    def wait_for_connection(
        self, node: NsqdNode, until: float, pause: float
    ) -> BlockingConnection | None:
        """Return a connection to this nsqd when it is the caller's turn; None: choose one anew.

        Args:
            pause: seconds to wait where there is another nsqd; inf: only this one will do.

        Blocks: until ``until`` on ``time.monotonic()``.
        """
        if pause < math.inf and not node.pool.connections() and self._remove_pooled(node):
            return None
        if pause < math.inf and len(self.pooled.nodes) > 1:
            until = min(until, time.monotonic() + pause)
        return node.pool.wait(until)

    def want_connections(self, node: NsqdNode) -> None:
        """Have dialed what publishes wait for, for the pool of this nsqd."""
        with self._changed.lock:
            is_over = self._closed
            retry_at = node.retry_at
            if not node.pool.connections():  # a publish waits for this one: it may be back
                retry_at = min(retry_at, node.failed_at + _MAX_PAUSE)
            if not is_over and time.monotonic() >= retry_at:
                for _ in range(node.pool.missing()):
                    self._dial_for_pool(node)
            elif not node.pool.connections():
                is_over = True
        if is_over:
            node.pool.release_waiters()
        self._dials.dispatch()

    def _dial_for_pool(self, node: NsqdNode) -> None:
        """Have one more connection dialed. Needs _changed; ``dispatch()`` comes next."""
        dialing = node.pool.dialing
        slot = next(slot for slot in itertools.count() if slot not in dialing)
        standing = standing_of(node.has_worked, node.failures)
        self._dials.put(_pool_key(node, slot), node.sources, standing)
        dialing[slot] = None  # last: Ctrl-C before it costs another put, at worst

    def _dial_pooled(self, node: NsqdNode, slot: int) -> None:
        """For the DialScheduler: open one more connection of publish()."""
        with self._changed.lock:
            if node.pool.dialing.get(slot, self) is not None:
                return  # dropped meanwhile, or another thread dials it
            conn = BlockingConnection(node.address, self._config)
            node.pool.dialing[slot] = conn
        error = self._open(conn)
        if error is None:
            try:
                self.timer.start()
            except RuntimeError as exc:
                error = ConnectError(node.address, f"no thread to watch it: {exc}")
        with self._changed.lock:
            del node.pool.dialing[slot]
            is_kept = self._note_dialed(node, error, conn.is_partitioned)
            if is_kept:
                node.pool.add(conn)
                if node not in self.pooled.alive:
                    self._changed.notify_all()
                    self.pooled.alive.append(node)
                    self.pooled.update()
        self._log_dial(node, error)
        if is_kept:
            return
        conn.close()
        if not node.pool.connections():
            self._remove_pooled(node)

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

    def on_lost(self, node: NsqdNode, conn: BlockingConnection, error: NSQError) -> None:
        """A connection of publish() ended."""
        is_last = not node.pool.connections() and self._remove_pooled(node)
        with self._changed.lock:
            if isinstance(error, NSQConnectionError):
                node.last_error = error
            if conn.used_at == conn.opened_at and not conn.is_cut:
                # It takes connections and loses them: dialing at once would go round in circles.
                node.failures += 1
                self._rest(node, node.failures)
        self._log_loss(node, error, is_last)

    def _log_loss(self, node: NsqdNode, error: NSQError, is_last: bool) -> None:
        """Log that a connection was lost; one line is enough where an nsqd ended."""
        if not self._closed:
            logger.log(logging.WARNING if is_last else logging.DEBUG,
                       "lost a connection, connecting again: %s", error,
                       extra=log_fields(nsqd=node.address))

    def _remove_pooled(self, node: NsqdNode) -> bool:
        """Publish to other nsqds until it is dialed again; return whether it was in use."""
        with self._changed.lock:
            was_alive = node in self.pooled.alive
            if was_alive:
                others = list(other for other in self.pooled.alive if other is not node)
                self.pooled.alive = others
                self.pooled.update()
                self.pooled.look_soon()
        node.pool.release_waiters()
        return was_alive

    def _check_pools(self, now: float) -> float:
        """Look at all connections of publish(); return when to look again. On the timer."""
        due = now + 1.0
        with self._changed.lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            has_others = any(other is not node for other in self.pooled.nodes)
            again, is_stalled = node.pool.check(now, has_others)
            due = min(due, again)
            if is_stalled:
                self._leave_stalled(node)
            elif node in self.pooled.nodes and not node.pool.connections():
                self._log_loss(
                    node, ConnectionLostError(node.address, "it ended while it was idle"),
                    is_last=self._remove_pooled(node))
        return due

    def _leave_stalled(self, node: NsqdNode) -> None:
        """It leaves a publish unanswered while another may answer: use it once a dial succeeds."""
        if self._remove_pooled(node):
            logger.warning("%s does not respond to publishes: using others", node.address,
                           extra=log_fields(nsqd=node.address))
        node.pool.close_idle()

    # -- what a partitioned cluster adds: see PartitionNodePool

    def close_idle(self) -> None:
        """Close the pipelined connections that nothing has used for long."""

    def on_partition_answered(self, node: NsqdNode) -> None:
        """A publish to a partition was answered."""

    def _on_changed(self) -> None:
        """A dial or a connection has ended. Without the lock."""

    def _every_node(self) -> list[NsqdNode]:
        return list(self._nodes.values())

    def _find(self, key: str) -> NsqdNode | None:
        """Return what a dial is for. Needs _changed."""
        return self._nodes.get(key)

    def _forget(self, node: NsqdNode) -> None:
        """It has lost its pipelined connection. Needs _changed."""

    def _is_news(self, node: NsqdNode) -> bool:
        """Return whether the loss of its pipelined connection is worth a line."""
        return True

    # -- dialing

    def _look_after_the_rest(self, rotation: Rotation) -> None:
        """Dial those that are not connected, now and then."""
        if time.monotonic() >= rotation.next_look:
            with self._changed.lock:
                self._want_the_rest(rotation, time.monotonic())
            self._dials.dispatch()

    def _want_the_rest(
        self, rotation: Rotation, now: float, hurry: bool = False
    ) -> float | None:
        """Have dialed what is not connected in this way and does not rest. Needs _changed.

        ``dispatch()`` comes next, without the lock.

        Returns: seconds until the next one has rested; None when all failed permanently.
        """
        if hurry and now < rotation.next_hurried_look:  # publishers that wait share one look
            return rotation.next_hurried_look - now
        pause = None
        for node in self._nodes.values():
            if self._closed or (
                node in rotation.alive if rotation.is_pooled else node.conn is not None
            ):
                continue
            is_dialing = bool(node.pool.dialing) if rotation.is_pooled else node.is_dialing
            if is_dialing:
                pause = min(pause or _MAX_PAUSE, _MAX_PAUSE)
                continue
            until = node.retry_at
            if hurry:  # publishers wait, so it is not left alone for long: it may be back
                until = min(until, node.failed_at + _MAX_PAUSE)
            rest = until - now
            if rest <= 0:
                is_dialing = True
                if rotation.is_pooled:
                    self._dial_for_pool(node)
                else:
                    standing = standing_of(node.has_worked, node.failures)
                    self._dials.put(node.address, node.sources, standing)
                    node.is_dialing = True  # last: Ctrl-C before it costs another put, at worst
                rest = _MAX_PAUSE
            if node.last_error is None or self._may_help(node.last_error) or is_dialing:
                pause = rest if pause is None else min(pause, rest)
        if not self._nodes:
            pause = _MAX_PAUSE
        rotation.next_look = now + (pause or _MAX_PAUSE)
        if hurry and pause is not None:
            rotation.next_hurried_look = now + pause
        return pause

    @staticmethod
    def _may_help(error: NSQError) -> bool:
        """Return whether the same dial may succeed later."""
        return isinstance(error, NSQConnectionError)

    def _reason(self) -> NSQError | None:
        """Why there is no connection. Needs _changed."""
        errors = [node.last_error for node in self._nodes.values() if node.last_error is not None]
        return errors[-1] if errors else self.discovery_error

    def dial(self, key: str) -> None:
        """For the DialScheduler: connect, or note that it failed."""
        address, is_pooled, slot = key.partition(_POOL_MARK)
        with self._changed.lock:
            node = self._find(address)
        if node is None:
            return  # dropped meanwhile
        if is_pooled:
            self._dial_pooled(node, int(slot))
        else:
            self._dial_pipelined(node)

    def _dial_pipelined(self, node: NsqdNode) -> None:
        """For the DialScheduler: open the connection of publish_async()."""
        with self._changed.lock:
            if node.dialed is not None:
                return  # another thread dials it
            if node.conn is not None:
                node.is_dialing = False
                return
            conn = node.dialed = Connection(node.address, self._config, node)
        error = self._open(conn)
        with self._changed.lock:
            if node.is_wanted:
                self._changed.notify_all()
            node.is_dialing = node.is_wanted = False
            node.dialed = None
            closed = self._closed
            if self._note_dialed(node, error, conn.is_partitioned):
                node.has_stored = False
                node.conn = conn
        self._log_dial(node, error)
        if error is None:
            # Started before anybody may use it: what it is sent is answered by its reader.
            try:
                conn.start()
            except RuntimeError as exc:  # on_closed() hears of it from here
                conn.close(f"no thread to read from it: {exc}")
            if closed:
                conn.close("the producer was closed")
        with self._changed.lock:
            if node.conn is conn and not conn.is_closed:
                self._changed.notify_all()
                node.is_stalled = False
                self.pipelined.alive.append(node)
                self.pipelined.update()
        self._on_changed()

    def _on_dial_failed(self, node: NsqdNode, error: NSQError) -> None:
        """Let it rest; publishers that wait look for themselves when it has. Needs _changed."""
        node.failures += 1
        self._rest(node, node.failures)
        if self._may_help(error) or any(
            other.is_dialing or other.pool.dialing for other in self._nodes.values()
            if other is not node
        ):
            return
        self._changed.notify_all()  # perhaps no other can be used either
        self.pooled.next_hurried_look = self.pipelined.next_hurried_look = 0.0

    def _open(self, conn: Connection | BlockingConnection) -> NSQError | None:
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

    def _rest(self, node: NsqdNode, failures: int) -> None:
        """Leave it alone for a while. Needs _changed."""
        delay = reconnect_delay(failures, self._config.max_reconnect_delay, self._rng)
        node.failed_at = time.monotonic()
        node.retry_at = node.failed_at + delay
        again = min(node.retry_at, node.failed_at + _MAX_PAUSE)
        for rotation in (self.pooled, self.pipelined):
            rotation.next_hurried_look = min(rotation.next_hurried_look, again)

    def remove(self, node: NsqdNode, conn: Connection | None) -> None:
        """This connection is of no use any more."""
        with self._changed.lock:
            if node.conn is conn:
                node.conn = None
            if node.conn is None:
                alive = list(other for other in self.pipelined.alive if other is not node)
                self.pipelined.alive = alive
                self.pipelined.update()
                self.pipelined.look_soon()
                self._forget(node)

    def mark_unresponsive(self, node: NsqdNode, progress: tuple[int, int]) -> bool:
        """It leaves a publish unanswered: use the others, where there are any.

        Args:
            progress: how far it was when it was found to be stalled.

        Returns: whether there is another nsqd that answers, and this one still does not.
        """
        with self._changed.lock:
            others = list(one for one in self.pipelined.alive
                          if one is not node and not one.is_stalled)
            news = bool(others) and node in self.pipelined.alive and not node.is_stalled
            if others:
                was_stalled, node.is_stalled = node.is_stalled, True
                # After the mark, which an answer from now on removes. An answer from before may
                # have been the last: nothing else would remove it.
                if node.progress() != progress:
                    node.is_stalled = was_stalled
                    return False
                # Also where an exception from a signal handler prevented it before.
                self.pipelined.update()
        if news:
            logger.warning("%s does not respond to publishes: using others", node.address,
                           extra=log_fields(nsqd=node.address))
        return bool(others)

    def mark_responsive(self, node: NsqdNode) -> None:
        """It answers again; with ``sticky`` it has lost its place."""
        with self._changed.lock:
            node.is_stalled = False
            if node in self.pipelined.alive:
                self.pipelined.alive.remove(node)
                self.pipelined.alive.append(node)
            self.pipelined.update()
        logger.info("%s responds to publishes again", node.address,
                    extra=log_fields(nsqd=node.address))

    def mark_unavailable(self, node: NsqdNode, rotation: Rotation) -> None:
        """nsqd is up and cannot store: do not come back at once."""
        with self._changed.lock:
            node.refusals += 1
            self._rest(node, node.refusals)
        if rotation.is_pooled:
            self._remove_pooled(node)

    def on_closed(self, node: NsqdNode, conn: Connection, error: NSQError) -> None:
        """A connection ended."""
        self.remove(node, conn)
        with self._changed.lock:
            self._changed.notify_all()
            node.last_error = error if isinstance(error, NSQConnectionError) else node.last_error
            if not node.has_stored and not isinstance(error, ServerError):
                # It takes connections and loses them: dialing at once would go round in circles.
                node.failures += 1
                self._rest(node, node.failures)
            self._ended = [*(old for old in self._ended if not old.join(Deadline(0))), conn]
            # Where the nsqd ended, the line for its first connection is enough.
            is_news = self._is_news(node)
        self._log_loss(node, error, is_news)
        self._on_changed()

    def close(self, deadline: Deadline) -> list[str]:
        """Refuse further use and end all connections; return the names of threads that stay."""
        with self._changed.lock:
            self._changed.notify_all()
            self._closed = True
            nodes = self._every_node()
            live = list(node.conn for node in nodes if node.conn is not None)
            dialed = list(node.dialed for node in nodes if node.dialed is not None)
            conns = [*self._ended, *live]
            pools = [node.pool for node in nodes]
            opening = list(conn for pool in pools for conn in pool.dialing.values()
                           if conn is not None)
        self._dials.close()
        for pool in pools:
            pool.close()
        for pooled in opening:
            pooled.cut(ConnectError(pooled.address, "the producer was closed"))
        for conn in dialed:
            conn.close("the producer was closed")
        for conn in live:
            conn.drain(deadline.at_most(0.5))
            conn.close("the producer was closed")
        stuck = [f"nsq-reader-{conn.address}" for conn in conns if not conn.join(deadline)]
        stuck += self._dials.join(deadline)
        return stuck if self.timer.stop(deadline) else [*stuck, "nsq-timer"]

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back without a word to nsqd."""
        conns = list(self._ended)
        for node in self._every_node():
            conns += [conn for conn in (node.conn, node.dialed) if conn is not None]
            node.pool.abandon()
        for conn in conns:
            conn.abandon()


#: What separates address and slot in the key of a dial for a pool.
_POOL_MARK = "#"


def _pool_key(node: NsqdNode, slot: int) -> str:
    """Return what a dial for the pool of an nsqd is found by."""
    return f"{node.address}{_POOL_MARK}{slot}"
