"""``NodePool``: the nsqds of a producer, dialed in the background.

Publishers never dial: they take a connected nsqd, or wait until one is connected. So a dead
address costs nobody anything while another one is alive. A ``DialScheduler`` dials, a limited
number at once; what has to wait before it is dialed again is not in its hands yet.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping

from nsqclient.config import Config
from nsqclient.connection.connection import Connection
from nsqclient.errors import (
    ClosedError,
    ConnectError,
    NSQConnectionError,
    NSQError,
    ServerError,
)
from nsqclient.hints import with_hint
from nsqclient.log_fields import log_fields
from nsqclient.producer.group_commit import BATCH_BYTES
from nsqclient.producer.node import NsqdNode, Rotation
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import reconnect_delay
from nsqclient.runtime.dial_queue import DIRECT, standing_of
from nsqclient.runtime.dial_scheduler import DialScheduler
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import ThreadStartError

logger = logging.getLogger("nsqclient.producer")

#: Seconds for the dialogue before the first publish.
HANDSHAKE_TIMEOUT = 5.0
#: Longest pause in seconds between two dials of one nsqd while publishers wait and no other is
#: alive: it may be back.
_MAX_PAUSE = 0.5
#: Seconds between two looks at the connections at the end of the process.
_LOOK = 0.05
#: Most connections to one nsqd for partitions; most of them that partitions which left publishes
#: unanswered may occupy, so that others always find one.
MAX_CONNECTIONS, _MAX_SUSPECT = 32, 16
#: Seconds for which a partition that left a publish unanswered may leave further ones so.
_SUSPECT_TIME = 5.0
#: Seconds after which a connection beyond the first that nothing used is closed.
_IDLE_TIME = 60.0


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
        self._batch_bytes = min(BATCH_BYTES, config.nsqd_max_body_size)
        self._rng = random.Random()
        self._changed = Monitor()
        self._nodes: dict[str, NsqdNode] = {}  # by _changed, as all below
        #: Further connections for partitions, by the key of their dial.
        self._extras: dict[str, NsqdNode] = {}
        #: (nsqd, partition) -> the connection that it used last; read without the lock.
        self._used: dict[tuple[str, str], NsqdNode] = {}
        self._suspects: dict[tuple[str, str], float] = {}  # (nsqd, partition) -> until when
        #: Called, without the lock, when a ``try_connect`` that returned None may succeed.
        self.on_change: Callable[[], None] = lambda: None
        self._is_tried = False  # it is to be called
        self._alive: list[NsqdNode] = []  # those that are connected, the longest first; by _changed
        #: The nodes to use.
        self.rotation = Rotation(self._nodes, self._look_after_the_rest, sticky)
        #: When those that are not connected are looked at again, while one is connected, and
        #: while publishers wait because none is.
        self._next_look = self._next_hurried_look = 0.0
        self._closed = False  # written under _changed
        self._serves = False  # connections need no reader: serve() receives for them
        self._failed_dials = LineLimit(logger)
        self._ended: list[Connection] = []  # lost connections, to be joined; by _changed
        #: Why no nsqd is known, where they come from nsqlookupd.
        self.discovery_error: NSQError | None = None
        given, self._lookupds = set(addresses), list(lookupds)
        self._dials: DialScheduler[str] = DialScheduler(
            ([DIRECT] if given or not self._lookupds else []) + self._lookupds, self
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
            self._next_look = self._next_hurried_look = 0.0

    def _set_sources(self, address: str, names: set[str]) -> None:
        """Note which sources name an nsqd, also a new one. Needs _changed."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NsqdNode(address, self, self._batch_bytes)
        if node.sources != names:
            node.sources = names
            self._dials.set_sources(address, names)

    def _drop_unconnected(self, address: str) -> None:
        """Forget an nsqd, unless it is connected or about to be. Needs _changed."""
        node = self._nodes[address]
        if node.conn is None and node.dialed is None and not node.is_wanted:
            self._dials.discard(address)
            del self._nodes[address]

    @property
    def ready(self) -> tuple[NsqdNode, ...]:
        """The nodes to use: connected, without those that do not respond while others do."""
        return self.rotation.nodes

    def acquire(self, deadline: Deadline) -> NsqdNode:
        """Return a connected nsqd, waiting for one where none is.

        Blocks: until the deadline.

        Raises:
            ConnectError: none was connected in time.
            NSQError: the reason why none can be used, where waiting cannot help.
            ClosedError: ``close()`` was called.
        """
        node = self.rotation.choose()
        if node is not None:
            return node
        waiter = self._changed.waiter()
        try:
            while True:
                with self._changed.lock:
                    if self.ready:
                        return self.ready[0]
                    pause = self._want_the_rest(time.monotonic(), hurry=True)
                self._dials.dispatch()
                with self._changed.lock:
                    if self.ready:
                        return self.ready[0]
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

    # -- connections for partitions

    def connect(self, address: str, deadline: Deadline, name: str = "") -> NsqdNode:
        """Return a connection to one nsqd, the leader of a partition.

        Publishes of another partition never wait for an answer on it: a publish that nsqd leaves
        unanswered delays what is behind it on its connection. So there may be several to an nsqd.
        Where none can be used, one is dialed at once, before all others. The caller pauses before
        it repeats a call that failed, and calls it again at once where the publish then finds that
        another partition was faster (``BusyConnection``).

        Args:
            name: the topic and the partition.

        Blocks: until the dial has ended and a connection is free, or the deadline.

        Raises:
            ClosedError: ``close()`` was called.
            NSQError: the reason why it is not connected.
        """
        node = self._used.get((address, name))
        if node is not None and node.partition_name == name:
            conn = node.conn
            if conn is not None and not (conn.is_closed or node.is_retired):
                return node
        with self._changed.lock:
            node = self._find_slot(address, name)
        return node or self._wait_for_slot(address, deadline, name)

    def _wait_for_slot(self, address: str, deadline: Deadline, name: str) -> NsqdNode:
        """As ``connect``, where there is none at once."""
        waiter = self._changed.waiter()
        asked: set[NsqdNode] = set()
        try:
            while True:
                node = self.try_connect(address, name, asked, waiter.arm)
                if node is not None:
                    return node
                if deadline.expired():
                    with self._changed.lock:
                        slots = self._slots(address)
                        if any(map(self._is_connected, slots)):
                            raise ConnectError(address, "its connections wait for answers")
                        error = slots[0].last_error if slots else None
                        raise error or ConnectError(address, "not connected in time")
                waiter.sleep(deadline.remaining())
        finally:
            waiter.close()

    def try_connect(
        self, address: str, name: str, asked: set[NsqdNode],
        arm: Callable[[], None] | None = None,
    ) -> NsqdNode | None:
        """As ``connect`` without waiting: None when ``on_change`` is to come first.

        Args:
            asked: what this publish has had dialed: none is dialed for it twice.
            arm: called under the lock where None is returned, instead of ``on_change`` later.
        """
        with self._changed.lock:
            node = self._find_slot(address, name)
            if node is not None:
                return node
            if self._closed:
                raise ClosedError("the producer is closed")
            self._want_slot(address, name, asked)
            if arm is not None:
                arm()
            else:
                self._is_tried = True
        self._dials.dispatch()
        return None

    def close_idle(self) -> None:
        """Close the connections beyond the first to each nsqd that nothing has used for long."""
        with self._changed.lock:
            now = time.monotonic()
            # A retired one is still there if its closing was interrupted.
            idle = list(node for node in self._extras.values() if now - node.used_at > _IDLE_TIME
                        and (node.is_retired or self._is_connected(node)) and self._is_free(node))
        for node in idle:
            conn = node.conn
            if conn is not None and node.retire():
                conn.close("not needed any more")

    def on_partition_answered(self, node: NsqdNode) -> None:
        """A publish to a partition was answered: its connection may be free."""
        with self._changed.lock:
            self._changed.notify_all()
            node.used_at = time.monotonic()
            if self._suspects:
                self._suspects.pop((node.address, node.partition_name), None)
        self._report_change()

    def _report_change(self) -> None:
        if self._is_tried:
            self._is_tried = False
            self.on_change()

    def unanswered_names(self, seconds: float) -> set[str]:
        """Return the partitions that left a publish unanswered for so long, or just did."""
        now = time.monotonic()
        with self._changed.lock:
            found = {node.partition_name for node in self._unanswered(now - seconds)}
            found.update(name for (_, name), until in self._suspects.items() if until > now)
        return found

    def close_unanswered(self, seconds: float) -> None:
        """Close the connections that have left a publish to a partition unanswered for so long."""
        now = time.monotonic()
        with self._changed.lock:
            ended = list((node.conn, node.address, node.partition_name)
                         for node in self._unanswered(now - seconds)
                         if node.conn is not None and not node.has_unread())
            self._suspects.update(
                ((address, name), now + seconds + _SUSPECT_TIME) for _, address, name in ended)
        for conn, _, name in ended:
            conn.close(f"no answer to a publish to {name} within {seconds:.3g} s")

    def _unanswered(self, since: float) -> list[NsqdNode]:
        """Return the nodes that a publish has used since then. Needs _changed.

        Those without a connection too, while they are dialed or rest after a dial that failed.
        """
        now = time.monotonic()
        return [
            node for node in [*self._nodes.values(), *self._extras.values()]
            if node.used_at <= since and node.partition_name and not self._is_free(node)
            and (node.conn is not None or node.is_dialing or node.retry_at > now)
        ]

    def _slots(self, address: str) -> list[NsqdNode]:
        """Return the connections of an nsqd, also those that are being dialed. Needs _changed."""
        first = self._nodes.get(address)
        if not self._extras:
            return [] if first is None else [first]
        extras = [node for node in self._extras.values() if node.address == address]
        return extras if first is None else [first, *extras]

    def _is_connected(self, node: NsqdNode) -> bool:
        conn = node.conn
        return (conn is not None and conn.has_reader and not conn.is_closed
                and node in self._alive and not node.is_retired)

    def _is_free(self, node: NsqdNode) -> bool:
        """Return whether no publish uses its connection now."""
        conn = node.conn
        return conn is not None and not conn.awaits_answer

    def _find_slot(self, address: str, name: str) -> NsqdNode | None:
        """Return the connection of this partition, or a free one. Needs _changed."""
        slots = self._slots(address)
        found = None
        for node in slots:
            if node.partition_name == name and self._is_connected(node):
                found = node
                break
            if found is None and self._is_free(node) and self._is_connected(node):
                found = node
        if found is None or found.partition_name != name and self._is_barred(slots, name):
            return None
        self._used[address, name] = found
        return found

    def _is_barred(self, slots: list[NsqdNode], name: str) -> bool:
        """Return whether a partition must wait: others like it occupy enough. Needs _changed."""
        if not self._suspects or not slots:
            return False
        if self._suspects.get((slots[0].address, name), 0.0) <= time.monotonic():
            return False
        occupied = [node for node in slots if (node.address, node.partition_name) in self._suspects
                    and not self._is_free(node)]
        return len(occupied) >= _MAX_SUSPECT

    def _want_slot(self, address: str, name: str, asked: set[NsqdNode]) -> None:
        """Have a connection dialed, unless one is; raise why that failed. Needs _changed."""
        slots = self._slots(address)
        connected = any(map(self._is_connected, slots))
        wanted = [node for node in slots if node.is_dialing and node.is_wanted]
        asked.update(wanted)
        if wanted or self._is_barred(slots, name):
            return
        node = next((node for node in slots if node.conn is None), None)
        if node in asked:
            if not connected:
                assert node is not None
                raise node.last_error or ConnectError(address, "not connected")
            return  # one of the others will be free
        if node is None:
            if any(not one.number and one.conn is not None and not self._is_connected(one)
                   for one in slots):
                return  # it is about to start, or to end
            if len(slots) >= MAX_CONNECTIONS:
                return
            number = len(slots) and max(one.number for one in slots) + 1
            node = NsqdNode(address, self, self._batch_bytes, number)
            node.sources, node.used_at = set(self._lookupds), time.monotonic()
            (self._extras if number else self._nodes)[_key(node)] = node
        self._dials.put(_key(node), node.sources, standing_of(True, node.failures))
        node.is_dialing = node.is_wanted = True
        asked.add(node)

    def _look_after_the_rest(self) -> None:
        """Dial those that are not connected, now and then."""
        if time.monotonic() >= self._next_look:
            with self._changed.lock:
                self._want_the_rest(time.monotonic())
            self._dials.dispatch()

    def _want_the_rest(self, now: float, hurry: bool = False) -> float | None:
        """Have dialed what is not connected and does not rest. Needs _changed.

        ``dispatch()`` comes next, without the lock.

        Returns: seconds until the next one has rested; None when all failed permanently.
        """
        if hurry and now < self._next_hurried_look:  # publishers that wait share one look
            return self._next_hurried_look - now
        pause = None
        for node in self._nodes.values():
            if node.conn is not None or self._closed:
                continue
            if node.is_dialing:
                pause = min(pause or _MAX_PAUSE, _MAX_PAUSE)
                continue
            until = node.retry_at
            if hurry:  # publishers wait, so it is not left alone for long: it may be back
                until = min(until, node.failed_at + _MAX_PAUSE)
            rest = until - now
            if rest <= 0:
                standing = standing_of(node.has_worked, node.failures)
                self._dials.put(node.address, node.sources, standing)
                node.is_dialing = True  # last: Ctrl-C before it costs another put, at worst
                rest = _MAX_PAUSE
            if node.last_error is None or self._may_help(node.last_error) or node.is_dialing:
                pause = rest if pause is None else min(pause, rest)
        if not self._nodes:
            pause = _MAX_PAUSE
        self._next_look = now + (pause or _MAX_PAUSE)
        if hurry and pause is not None:
            self._next_hurried_look = now + pause
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
        with self._changed.lock:
            node = self._nodes.get(key) or self._extras.get(key)
            if node is None:
                return  # dropped meanwhile
            if node.dialed is not None:
                return  # serve() came while a last thread dials it, or the other way round
            if node.conn is not None:
                node.is_dialing = False
                return
            conn = node.dialed = Connection(node.address, self._config, node)
        error = self._open(node, conn)
        is_misused = False
        with self._changed.lock:
            if node.is_wanted:
                self._changed.notify_all()
            node.is_dialing = node.is_wanted = False
            node.dialed = None
            closed = self._closed
            node.last_error = error
            if error is not None:
                self._on_dial_failed(node, error)
            elif not closed:
                is_misused = conn.is_partitioned and not self._lookupds and not node.has_worked
                node.has_stored = False
                node.has_worked = True
                node.conn = conn
        if is_misused:
            logger.warning(
                "%s is a partitioned nsqd: without nsqlookupd it stores messages in any partition"
                " that it leads, and rejects them if it leads none; pass lookupd_http_addresses"
                " instead of nsqd_tcp_addresses", node.address, extra=log_fields(nsqd=node.address))
        if error is None:
            # Started before anybody may use it: what it is sent is answered by its reader.
            try:
                conn.start()
            except ThreadStartError as exc:  # on_closed() hears of it from here
                if not self._serves:
                    conn.close(f"no thread to read from it: {exc}")
            if closed:
                conn.close("the producer was closed")
        elif not closed:
            # Once for each outage; publishers that wait dial twice a second.
            level = logging.DEBUG
            if node.failures == 1:
                level = self._failed_dials.level(logging.WARNING)
            # What another dial does not help against is raised by the publish at once.
            logger.log(level, "cannot publish to %s%s: %s", node.address,
                       ", trying again" if self._may_help(error) else "",
                       with_hint(error, node.address), extra=log_fields(nsqd=node.address))
        with self._changed.lock:
            if node.conn is conn and not conn.is_closed:
                self._changed.notify_all()
                node.is_stalled = False
                self._alive.append(node)
                self._update_ready()
        self._report_change()

    def on_no_thread(self, key: str, error: ThreadStartError) -> None:
        """For the DialScheduler: the system has no thread left."""
        with self._changed.lock:
            node = self._nodes.get(key) or self._extras.get(key)
            if node is not None:
                if node.is_wanted:
                    self._changed.notify_all()
                node.is_dialing = node.is_wanted = False
                node.last_error = ConnectError(node.address, f"no thread to dial it: {error}")
                self._on_dial_failed(node, node.last_error)
        self._report_change()

    def _on_dial_failed(self, node: NsqdNode, error: NSQError) -> None:
        """Let it rest; publishers that wait look for themselves when it has. Needs _changed."""
        node.failures += 1
        self._rest(node, node.failures)
        if self._may_help(error) or any(other.is_dialing for other in self._nodes.values()):
            return
        self._changed.notify_all()  # perhaps no other can be used either
        self._next_hurried_look = 0.0

    def serve(self, is_over: Callable[[], bool], deadline: Deadline) -> None:
        """Dial and receive in the calling thread, until ``is_over()``.

        For the end of the process, when no thread can be started. Blocks: until the deadline.
        """
        self._serves = True

        def is_round_over() -> bool:
            return is_over() or deadline.expired()

        while not is_round_over():
            conns = [node.conn for node in self.ready if node.conn is not None]
            unread = [conn for conn in conns if not conn.has_reader]
            if unread:
                unread[0].serve(is_round_over)
                continue
            if not conns:
                for address in self.addresses:
                    if not self.ready and not is_round_over():
                        self.dial(address)
            if not self.ready or conns:  # readers that live on do their work
                self._changed.wait_for(is_over, deadline.at_most(_LOOK))

    def _update_ready(self) -> None:
        """Say anew which ones are to be used. Needs _changed."""
        alive = tuple([node for node in self._alive if not node.number])
        responsive = tuple(node for node in alive if not node.is_stalled)
        self.rotation.nodes = responsive or alive

    def _open(self, node: NsqdNode, conn: Connection) -> NSQError | None:
        """Open a connection; return what went wrong."""
        if self._closed:
            return ClosedError("the producer is closed")
        try:
            conn.open(Deadline(HANDSHAKE_TIMEOUT))
        except NSQError as exc:
            return exc
        except Exception as exc:
            logger.exception("dialing %s failed", node.address,
                             extra=log_fields(nsqd=node.address))
            return ConnectError(node.address, f"internal error: {exc!r}")
        return None

    def _rest(self, node: NsqdNode, failures: int) -> None:
        """Leave it alone for a while. Needs _changed."""
        delay = reconnect_delay(failures, self._config.max_reconnect_delay, self._rng)
        node.failed_at = time.monotonic()
        node.retry_at = node.failed_at + delay
        again = min(node.retry_at, node.failed_at + _MAX_PAUSE)
        self._next_hurried_look = min(self._next_hurried_look, again)

    def remove(self, node: NsqdNode, conn: Connection | None) -> None:
        """This connection is of no use any more."""
        with self._changed.lock:
            if node.conn is conn:
                node.conn = None
            if node.conn is None:
                self._alive = list(other for other in self._alive if other is not node)
                self._update_ready()
                self._next_look = self._next_hurried_look = 0.0
                if self._extras.get(_key(node)) is node:  # not another one of the same number
                    del self._extras[_key(node)]

    def mark_unresponsive(self, node: NsqdNode, progress: tuple[int, int]) -> bool:
        """It leaves a publish unanswered: use the others, where there are any.

        Args:
            progress: how far it was when it was found to be stalled.

        Returns: whether there is another nsqd that answers, and this one still does not.
        """
        with self._changed.lock:
            others = list(one for one in self._alive if one is not node and not one.is_stalled)
            news = bool(others) and node in self._alive and not node.is_stalled
            if others:
                was_stalled, node.is_stalled = node.is_stalled, True
                # After the mark, which an answer from now on removes. An answer from before may
                # have been the last: nothing else would remove it.
                if node.progress() != progress:
                    node.is_stalled = was_stalled
                    return False
                # Also where an exception from a signal handler prevented it before.
                self._update_ready()
        if news:
            logger.warning("%s does not respond to publishes: using others", node.address,
                           extra=log_fields(nsqd=node.address))
        return bool(others)

    def mark_responsive(self, node: NsqdNode) -> None:
        """It answers again; with ``sticky`` it has lost its place."""
        with self._changed.lock:
            node.is_stalled = False
            if node in self._alive:
                self._alive.remove(node)
                self._alive.append(node)
            self._update_ready()
        logger.info("%s responds to publishes again", node.address,
                    extra=log_fields(nsqd=node.address))

    def mark_unavailable(self, node: NsqdNode, conn: Connection) -> None:
        """nsqd is up and cannot store: do not come back at once."""
        with self._changed.lock:
            node.refusals += 1
            self._rest(node, node.refusals)
        self.remove(node, conn)

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
            closed = self._closed
            # Where the nsqd ended, the line for its first connection is enough.
            is_news = not node.number or (node.address, node.partition_name) in self._suspects
        if not closed:
            logger.log(logging.WARNING if is_news else logging.DEBUG,
                       "lost a connection, connecting again: %s", error,
                       extra=log_fields(nsqd=node.address))
        self._report_change()

    def close(self, deadline: Deadline) -> list[str]:
        """Refuse further use and end all connections; return the names of threads that stay."""
        with self._changed.lock:
            self._changed.notify_all()
            self._closed = True
            nodes = [*self._nodes.values(), *self._extras.values()]
            live = list(node.conn for node in nodes if node.conn is not None)
            dialed = list(node.dialed for node in nodes if node.dialed is not None)
            conns = [*self._ended, *live]
        self._dials.close()
        for conn in dialed:
            conn.close("the producer was closed")
        for conn in live:
            conn.drain(deadline.at_most(0.5))
            conn.close("the producer was closed")
        stuck = [f"nsq-reader-{conn.address}" for conn in conns if not conn.join(deadline)]
        return stuck + self._dials.join(deadline)

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back without a word to nsqd."""
        conns = list(self._ended)
        for node in [*self._nodes.values(), *self._extras.values()]:
            conns += [conn for conn in (node.conn, node.dialed) if conn is not None]
        for conn in conns:
            conn.abandon()


def _key(node: NsqdNode) -> str:
    """Return what the dial of a connection is found by."""
    return f"{node.address}/{node.number}" if node.number else node.address
