"""``PartitionNodePool``: the nsqds of a producer that may have partitions.

publish() has a connection of the pool of the leader to itself. The pipelined publishes of
publish_async() share connections, but never those of two partitions at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from nsqclient.config import Config
from nsqclient.errors import ClosedError, ConnectError
from nsqclient.producer.node import NsqdNode
from nsqclient.producer.nodes import NodePool
from nsqclient.runtime.dial_queue import standing_of

#: Most connections to one nsqd for partitions; most of them that partitions which left publishes
#: unanswered may occupy, so that others always find one.
MAX_CONNECTIONS, _MAX_SUSPECT = 32, 16
#: Seconds for which a partition that left a publish unanswered may leave further ones so.
_SUSPECT_TIME = 5.0
#: Seconds after which a connection beyond the first that nothing used is closed.
_IDLE_TIME = 60.0


class PartitionNodePool(NodePool):
    """A NodePool that also gives connections to one chosen nsqd, the leader of a partition.

    Threads: any.
    """

    def __init__(
        self, addresses: Iterable[str], config: Config, sticky: bool, lookupds: Iterable[str] = ()
    ) -> None:
        #: Further connections for partitions, by the key of their dial.
        self._extras: dict[str, NsqdNode] = {}
        self._suspects: dict[tuple[str, str], float] = {}  # (nsqd, partition) -> until when
        #: Synchronous publishes to partitions, and since when; changed by single calls.
        self._partitions_under_way: dict[object, tuple[str, float]] = {}
        #: Called, without the lock, when a ``try_connect`` that returned None may succeed.
        self.on_change: Callable[[], None] = lambda: None
        self._is_tried = False  # it is to be called
        super().__init__(addresses, config, sticky, lookupds)

    @contextlib.contextmanager
    def partition_under_way(self, address: str, name: str) -> Iterator[NsqdNode]:
        """Give the nsqd that leads a partition; the block publishes to it, in its pool.

        Args:
            name: the topic and the partition.
        """
        ticket = object()
        try:
            with self._changed.lock:
                node = self._nodes.get(address)
                if node is None:
                    node = self._nodes[address] = NsqdNode(address, self, self._config)
                    node.sources = set(self._lookupds)
            self._partitions_under_way[ticket] = (name, time.monotonic())
            yield node
        finally:
            self._partitions_under_way.pop(ticket, None)

    def busy_partitions(self) -> set[str]:
        """Return the partitions that a synchronous publish uses just now."""
        return {name for name, _ in self._partitions_under_way.copy().values()}

    def note_partition(self, address: str, name: str, is_answered: bool, seconds: float) -> None:
        """Note whether a partition answered a synchronous publish within so many seconds."""
        with self._changed.lock:
            if not is_answered:
                self._suspects[address, name] = time.monotonic() + seconds + _SUSPECT_TIME
            elif self._suspects:
                self._suspects.pop((address, name), None)

    def try_connect(self, address: str, name: str, asked: set[NsqdNode]) -> NsqdNode | None:
        """Return a connection to one nsqd, the leader of a partition, for a pipelined publish.

        Publishes of another partition never wait for an answer on it: a publish that nsqd leaves
        unanswered delays what is behind it on its connection. So there may be several to an nsqd.
        Where none can be used, one is dialed at once, before all others, and this returns None:
        ``on_change`` comes next. The caller calls it again at once where the publish then finds
        that another partition was faster (``BusyConnection``).

        Args:
            name: the topic and the partition.
            asked: what this publish has had dialed: none is dialed for it twice.

        Raises:
            ClosedError: ``close()`` was called.
            NSQError: the reason why it is not connected.
        """
        with self._changed.lock:
            node = self._find_slot(address, name)
            if node is not None:
                return node
            if self._closed:
                raise ClosedError("the producer is closed")
            self._want_slot(address, name, asked)
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
        self._on_changed()

    def _on_changed(self) -> None:
        if self._is_tried:
            self._is_tried = False
            self.on_change()

    def unanswered_names(self, seconds: float) -> set[str]:
        """Return the partitions that left a publish unanswered for so long, or just did."""
        now = time.monotonic()
        under_way = self._partitions_under_way.copy().values()
        found = {name for name, began in under_way if began <= now - seconds}
        with self._changed.lock:
            found.update(node.partition_name for node in self._unanswered(now - seconds))
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
                and node in self.pipelined.alive and not node.is_retired)

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
            node = NsqdNode(address, self, self._config, number)
            node.sources, node.used_at = set(self._lookupds), time.monotonic()
            (self._extras if number else self._nodes)[_key(node)] = node
        self._dials.put(_key(node), node.sources, standing_of(True, node.failures))
        node.is_dialing = node.is_wanted = True
        asked.add(node)

    def _every_node(self) -> list[NsqdNode]:
        return [*super()._every_node(), *self._extras.values()]

    def _find(self, key: str) -> NsqdNode | None:
        return super()._find(key) or self._extras.get(key)

    def _forget(self, node: NsqdNode) -> None:
        if self._extras.get(_key(node)) is node:  # not another one of the same number
            del self._extras[_key(node)]

    def _is_news(self, node: NsqdNode) -> bool:
        # Where the nsqd ended, the line for its first connection is enough.
        return not node.number or (node.address, node.partition_name) in self._suspects


def _key(node: NsqdNode) -> str:
    """Return what the dial of a pipelined connection is found by."""
    return f"{node.address}/{node.number}" if node.number else node.address
