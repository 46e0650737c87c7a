"""``SyncPublisher``: publishes in the calling thread, until the outcome is final."""

from __future__ import annotations

import logging
import threading
import time

from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import (
    ClosedError, ConnectError, NSQError, ReentrantCallError, ServerError, as_cause,
)
from nsqclient.producer.node import NsqdNode, stall_timeout
from nsqclient.producer.nodes import NodePool
from nsqclient.producer.outcome import (
    SERVER_UNAVAILABLE, PublishOutcome, StaleConnection, failure_of, no_node_error, outcome_of,
    timeout_error, unknown_instead,
)
from nsqclient.producer.stats import Statistics
from nsqclient.protocol.extensions import StoredPosition
from nsqclient.runtime.deadline import Deadline

logger: logging.Logger = logging.getLogger("nsqclient.producer")


class SyncPublisher:
    """The synchronous publishes of one producer. Thread-safe."""

    def __init__(self, nodes: NodePool, retry_unknown: bool, statistics: Statistics) -> None:
        self._nodes = nodes
        self._timer = nodes.timer
        self._retry_unknown = retry_unknown
        self._statistics = statistics

    def publish(self, command: bytes, until: float, seconds: float) -> None:
        """Send a command until its outcome is final.

        Args:
            until: the deadline, on ``time.monotonic()``; ``seconds`` after the call.

        Blocks: until the deadline.

        Raises:
            PublishRejectedError, PublishUnknownError, ClosedError: as ``Producer.publish``.
        """
        reason: NSQError | None = None
        maybe_stored = False
        while True:
            node = self._nodes.pooled.choose()
            if node is None:
                node = self._acquire(until, seconds, reason, maybe_stored)
            outcome, error, _ = self.attempt(node, command, until, stall_timeout(seconds))
            if error is None:
                return
            if not isinstance(error, StaleConnection):
                reason = error
                failure = failure_of(
                    outcome, error, node.address, self._retry_unknown, len(command))
                if failure is not None:
                    raise unknown_instead(failure, maybe_stored) from as_cause(error)
                maybe_stored = maybe_stored or outcome is PublishOutcome.UNKNOWN
                self._statistics.count_retried()
            if time.monotonic() >= until:
                raise timeout_error(seconds, reason or error, maybe_stored, len(command))

    def ping(self, deadline: Deadline) -> None:
        """Wait until an nsqd is connected, and write to it. Raises as ``NodePool.acquire``."""
        while True:
            node = self._nodes.acquire(deadline, self._nodes.pooled)
            if self._ping(node, deadline):
                return
            if deadline.expired():
                raise ConnectError(node.address, "no connection in time")

    def _ping(self, node: NsqdNode, deadline: Deadline) -> bool:
        conn = None
        is_alive = False
        try:
            conn = node.pool.take(time.monotonic())
            if conn is None:
                conn = self._nodes.wait_for_connection(node, deadline.until, 1.0)
            if conn is not None:
                is_alive = conn.ping()
        finally:
            if conn is not None and not is_alive:
                conn.close()
        if conn is not None and is_alive:
            node.pool.put_back(conn)
        return is_alive

    def attempt(
        self, node: NsqdNode, command: bytes, until: float, pause: float, traced: bool = False
    ) -> tuple[PublishOutcome, NSQError | None, StoredPosition | None]:
        """Send a command once, on a connection to this nsqd; return what is known of it.

        Args:
            pause: seconds without progress after which another nsqd is used, if one answers.
            traced: nsqd may answer where it is stored.

        Blocks: until the response, or the deadline.
        """
        if threading.get_ident() == self._timer.ident:  # a finalizer that runs there
            raise ReentrantCallError()
        pool = node.pool
        conn = None
        is_answered = False
        try:
            now = time.monotonic()
            conn = pool.take(now)
            if conn is None:
                conn = self._nodes.wait_for_connection(node, until, pause)
                if conn is None:
                    return PublishOutcome.NOT_READ, StaleConnection(
                        node.address, "all its connections are in use, or it is lost"), None
                now = time.monotonic()
            check_at = min(until, now + pause)
            conn.exchange_under_way = {
                "until": until, "check_at": check_at, "began": now, "pause": pause,
                "seen": pool.responses + conn.pieces,
            }
            if check_at < self._timer.due:  # read after the connection says what it waits for
                self._timer.wake()
            error = conn.exchange(command, traced)
            is_answered = True
        except NSQError as exc:
            if conn is None:
                raise
            conn.close()
            self._nodes.on_lost(node, conn, exc)
            return PublishOutcome.UNKNOWN, exc, None
        finally:
            if conn is not None and not is_answered:
                conn.close()
        pool.responses += 1
        if error is not None:
            return self._reject(node, conn, error)
        conn.used_at = time.monotonic()
        stored = conn.stored if traced else None
        if node.failures or node.refusals:
            node.failures = node.refusals = 0
        if conn.is_ended:
            conn.close()
        else:
            pool.put_back(conn)
        return PublishOutcome.STORED, None, stored

    def _reject(
        self, node: NsqdNode, conn: BlockingConnection, error: ServerError
    ) -> tuple[PublishOutcome, NSQError, None]:
        """nsqd refused the command; most errors of a stock nsqd end the connection."""
        if error.code in SERVER_UNAVAILABLE and not conn.is_partitioned:
            self._nodes.mark_unavailable(node, self._nodes.pooled)
        if conn.is_ended:
            conn.close()
        else:
            node.pool.put_back(conn)
        return outcome_of(error), error, None

    def _acquire(
        self, until: float, seconds: float, reason: NSQError | None, maybe_stored: bool
    ) -> NsqdNode:
        """Wait for a connected nsqd. Raises as ``publish``."""
        try:
            return self._nodes.acquire(
                Deadline(max(0.0, until - time.monotonic())), self._nodes.pooled)
        except NSQError as exc:
            if isinstance(exc, ClosedError) and not maybe_stored:
                raise
            logger.debug("no nsqd for a publish", exc_info=exc)
            raise no_node_error(exc, seconds, reason, maybe_stored) from as_cause(exc)
