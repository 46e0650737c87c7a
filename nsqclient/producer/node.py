"""``NsqdNode``: one connection of a producer to an nsqd. ``Rotation`` chooses one of several.

``StallDetector`` watches the progress of a node.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any

from nsqclient.config import Config
from nsqclient.connection.connection import Connection
from nsqclient.errors import ClosedError, NSQConnectionError, NSQError, ServerError
from nsqclient.producer.outcome import (
    SERVER_UNAVAILABLE,
    BusyConnection,
    PublishOutcome,
    StaleConnection,
    outcome_of,
)
from nsqclient.producer.pool import ConnectionPool
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.extensions import StoredPosition
from nsqclient.protocol.frames import RawMessage

if TYPE_CHECKING:
    from nsqclient.producer.nodes import NodePool

#: Seconds without progress after which an nsqd is stalled, at most.
_STALL_TIMEOUT = 1.0
#: The part of a publish's time after which it is, where that is less.
_STALL_PART = 0.25


def stall_timeout(seconds: float) -> float:
    """How long an nsqd may make no progress with a publish that has so many seconds."""
    return min(_STALL_TIMEOUT, seconds * _STALL_PART)


class StallDetector:
    """Watches whether an nsqd takes bytes or answers publishes.

    Args:
        seconds: without progress, after which it is stalled.
    """

    __slots__ = ("next_check", "progress", "_node", "_seconds")

    def __init__(self, node: NsqdNode, seconds: float, now: float) -> None:
        self._node = node
        self._seconds = seconds
        #: The node's progress at the last check.
        self.progress: tuple[int, int] = node.progress()
        #: When to ask, on time.monotonic().
        self.next_check: float = now + seconds

    def is_stalled(self, now: float) -> bool:
        """Return, once it is time to check, whether there was no progress since the last check."""
        if now < self.next_check:
            return False
        before, self.progress = self.progress, self._node.progress()
        self.next_check = now + self._seconds
        return before == self.progress and not self._node.has_unread()


class Rotation:
    """The nodes that are connected in one way: by a pool for publish(), or by a pipeline.

    Args:
        known: all nodes; where fewer are connected, ``look`` is called with each choice.
        sticky: use the first one until it fails, instead of all in turn.
        is_pooled: by a pool.
    """

    def __init__(
        self, known: Sized, look: Callable[[Rotation], None], sticky: bool, is_pooled: bool
    ) -> None:
        #: Those that are connected, without those that do not respond while others do.
        #: Replaced, never changed, and read without a lock.
        self.nodes: tuple[NsqdNode, ...] = ()
        #: Those that are connected, the longest first. By the lock of the NodePool, as below.
        self.alive: list[NsqdNode] = []
        #: When those that are not connected are looked at again, while one is connected, and
        #: while publishers wait because none is.
        self.next_look: float = 0.0
        self.next_hurried_look: float = 0.0
        self.is_pooled = is_pooled
        self._known = known
        self._look = look
        self._sticky = sticky
        self._turn = itertools.count(random.randrange(1000))

    def choose(self) -> NsqdNode | None:
        """Return the next node; None where none is connected."""
        nodes = self.nodes
        if not nodes:
            return None
        if len(nodes) < len(self._known):
            self._look(self)
        return nodes[0] if self._sticky else nodes[next(self._turn) % len(nodes)]

    def in_order(self) -> tuple[NsqdNode, ...]:
        """Return the nodes in the order in which to try them; none where none is connected."""
        nodes = self.nodes
        if nodes and len(nodes) < len(self._known):
            self._look(self)
        if self._sticky or len(nodes) < 2:
            return nodes[:1]
        first = next(self._turn) % len(nodes)
        return nodes[first:] + nodes[:first]

    def update(self) -> None:
        """Say anew which ones are to be used. Needs the lock of the NodePool."""
        alive = tuple([node for node in self.alive if not node.number])
        if not self.is_pooled:
            alive = tuple(node for node in alive if not node.is_stalled) or alive
        self.nodes = alive

    def look_soon(self) -> None:
        """Look at those that are not connected with the next choice. Needs the same lock."""
        self.next_look = self.next_hurried_look = 0.0


class NsqdNode:
    """One nsqd of a producer: its connections, and when it is dialed again.

    ``pool`` has the connections of publish(), ``conn`` is that of publish_async(). The lock of the
    NodePool guards all its state.

    A partition has the connection to itself from its publish until the answer. It claims it under
    the lock of the connection, together with the publish.

    Args:
        number: 0 for the first connection to an nsqd; others serve single partitions for a time.
    """

    def __init__(self, address: str, pool: NodePool, config: Config, number: int = 0) -> None:
        self.address = address
        self.number = number
        self.partition_name: str = ""  # the topic and partition that used it last; by conn's lock
        self.used_at: float = 0.0  # when that began, or was answered last, on time.monotonic()
        self.is_retired = False  # takes no more publishes to partitions; by conn's lock
        self.conn: Connection | None = None  # read without the lock by publishers
        self.sources: set[str] = set()  # the nsqlookupds that list it
        self.is_dialing = False  # or waits for its turn to be dialed
        self.is_wanted = False  # a publish waits in connect() for that dial
        self.dialed: Connection | None = None  # while it is being opened
        self.has_worked = False  # it was connected once
        self.has_stored: bool = False  # on this connection
        self.failures: int = 0  # dials that failed or led to nothing, in a row
        self.refusals: int = 0  # publishes that nsqd was unable to store, in a row
        self.failed_at: float = 0.0  # when it failed last, on time.monotonic()
        self.retry_at: float = 0.0  # no dial before, unless publishers wait; same clock
        self.last_error: NSQError | None = None
        self.is_stalled = False  # leaves publishes unanswered, so others are used
        self.is_partitioned = False  # known once it was connected
        self.is_warned_of = False  # as a partitioned nsqd without nsqlookupds
        #: The connections of publishes that wait for their response.
        self.pool: ConnectionPool = ConnectionPool(
            address, config, lambda: pool.want_connections(self))
        self._answers = 0  # by the reader
        self._pool = pool

    def send(self, command: bytes, token: Any, until: float) -> Connection:
        """Send a publish; ``token.settle(outcome, error)`` is called when the outcome is known.

        Args:
            until: its deadline, on ``time.monotonic()``.

        Blocks: while the socket takes no bytes, until the deadline; the rest follows by itself.

        Returns: the connection by which it went.

        Raises:
            StaleConnection: nothing was sent.
        """
        return self._send(lambda core: core.send_publish(command, token), until)

    def send_to_partition(
        self, command: bytes, token: Any, until: float, name: str
    ) -> Connection:
        """As ``send``; nsqd may answer with where it is stored: ``token.note_stored`` first.

        ``token.conn`` is the connection, from before the answer can come.

        Args:
            name: the topic and the partition.

        Raises:
            BusyConnection: another partition uses the connection; nothing was sent.
        """
        def queue(core: ClientProtocol) -> None:
            self._claim(core, name)
            core.send_traced_publish(command, token)

        return self._send(queue, until, token=token)

    def _claim(self, core: ClientProtocol, name: str) -> None:
        """Have a partition use the connection. Needs its lock; the publish follows under it."""
        is_free = not core.awaits_answer()
        if self.is_retired or not (is_free or name == self.partition_name):
            raise BusyConnection(f"{self.address} has not answered {self.partition_name}")
        if is_free:
            self.partition_name, self.used_at = name, time.monotonic()

    def retire(self) -> bool:
        """Take no more publishes to partitions; False while one awaits its answer."""
        def retire(core: ClientProtocol) -> None:
            self.is_retired = not core.awaits_answer()

        conn = self.conn
        with contextlib.suppress(ClosedError, NSQConnectionError):  # it has ended by itself
            if conn is not None:
                conn.try_send(retire)
        return self.is_retired

    def _send(
        self, queue: Callable[[ClientProtocol], None], until: float, token: Any = None,
    ) -> Connection:
        conn = self.conn
        if token is not None:
            token.conn = conn
        try:
            if conn is None:
                raise ClosedError("no connection")
            conn.send(queue, until)
        except ClosedError as exc:
            self._pool.remove(self, conn)
            raise StaleConnection(self.address, "the connection ended just before") from exc
        except NSQConnectionError:
            pass  # queued, so the reader settles the token when it reports the end
        assert conn is not None
        return conn

    def progress(self) -> tuple[int, int]:
        """Two numbers that grow while nsqd takes bytes and answers publishes."""
        conn = self.conn
        return (0 if conn is None else conn.bytes_sent), self._answers

    def has_unread(self) -> bool:
        """Whether nsqd has sent something that was not read yet: this process was suspended."""
        conn = self.conn
        return conn is not None and conn.has_unread

    # -- from the connection's reader

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Producers subscribe to nothing."""

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """nsqd answered a publish."""
        self._answers += 1
        if self.partition_name:
            self._pool.on_partition_answered(self)
        if self.is_stalled:
            self._pool.mark_responsive(self)
        if error is None:
            self.refusals = self.failures = 0
            self.has_stored = True
            token.settle(PublishOutcome.STORED, None)
            return
        if error.code in SERVER_UNAVAILABLE and not conn.is_partitioned:
            self._pool.remove(self, conn)
            self._pool.mark_unavailable(self, self._pool.pipelined)
        token.settle(outcome_of(error), error)

    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        """Producers answer nothing."""

    def on_close_wait(self, conn: Connection) -> None:
        """Producers do not send CLS."""

    def on_traced(self, conn: Connection, token: Any, stored: StoredPosition) -> None:
        """A traced publish is stored."""
        token.note_stored(stored)
        self.on_published(conn, token, None)

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended; publishes without an outcome get one now."""
        self._pool.on_closed(self, conn, error)
        # After a refusal nsqd reads no further: what was pipelined behind it is not stored.
        is_refusal = isinstance(error, ServerError)
        outcome = PublishOutcome.NOT_READ if is_refusal else PublishOutcome.UNKNOWN
        for token in unanswered:
            token.settle(outcome, error)
