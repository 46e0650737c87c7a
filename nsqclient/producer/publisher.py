"""``Publisher``: sends a publish in the calling thread, until its outcome is final."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time

from nsqclient.errors import ConnectError, NSQError, ReentrantCallError, as_cause
from nsqclient.producer.nodes import NodePool, NsqdNode
from nsqclient.producer.outcome import SERVER_UNAVAILABLE, Attempts, StaleConnection
from nsqclient.producer.stats import Statistics
from nsqclient.protocol.extensions import StoredPosition
from nsqclient.runtime.deadline import Deadline

logger: logging.Logger = logging.getLogger("nsqclient.producer")

#: Seconds without progress after which an nsqd is stalled, at most, and the part of a publish's
#: time after which it is, where that is less.
STALL_TIMEOUT, STALL_PART = 1.0, 0.25


class Publisher:
    """Sends the publishes of one producer, each in the thread that calls. Thread-safe.

    Args:
        retry_unknown: whether a publish is repeated where its outcome is unknown.
        sticky: use one nsqd until it fails, instead of all in turn.
    """

    def __init__(
        self, nodes: NodePool, retry_unknown: bool, statistics: Statistics, sticky: bool = False
    ) -> None:
        self._nodes = nodes
        self._timer = nodes.timer
        self._sticky = sticky
        self._turn = itertools.count(random.randrange(1000))
        self.retry_unknown: bool = retry_unknown
        self.statistics: Statistics = statistics

    def publish(
        self, command: bytes, until: float, seconds: float, attempts: Attempts | None = None,
        is_async: bool = False,
    ) -> None:
        """Send a command until its outcome is final.

        Args:
            until: the deadline, on ``time.monotonic()``; ``seconds`` after the call.
            attempts: takes notes; None: nobody reads them.
            is_async: share a connection with other such publishes.

        Blocks: until the deadline.

        Raises:
            PublishRejectedError, PublishUnknownError, ClosedError: as ``Producer.publish``.
        """
        pause = min(STALL_TIMEOUT, seconds * STALL_PART)
        while True:
            node = self._choose() or self._acquire(
                until, attempts or self._attempts(seconds, command), is_async)
            error, _ = self.attempt(node, command, until, pause, is_async=is_async)
            if error is None:
                return
            attempts = attempts or self._attempts(seconds, command)
            if not isinstance(error, StaleConnection):
                attempts.on_failure(error, node.address)
                self.statistics.count_retried(attempts.messages)
            if time.monotonic() >= until:
                raise attempts.timed_out(error)

    def _choose(self) -> NsqdNode | None:
        """Return the next nsqd; None where none is connected."""
        nodes = self._nodes.connected
        if not nodes:
            return None
        return nodes[0] if self._sticky else nodes[next(self._turn) % len(nodes)]

    def _attempts(self, seconds: float, command: bytes) -> Attempts:
        return Attempts(seconds, len(command), self.retry_unknown)

    def _acquire(self, until: float, attempts: Attempts, is_async: bool) -> NsqdNode:
        """Wait for a connected nsqd. Raises as ``publish``."""
        try:
            return self._nodes.acquire(
                Deadline(max(0.0, until - time.monotonic())), is_async)
        except ReentrantCallError:
            raise
        except NSQError as exc:
            logger.debug("no nsqd for a publish", exc_info=exc)
            error = attempts.without_nsqd(exc)
            raise error from (None if error is exc else as_cause(exc))

    def ping(self, deadline: Deadline) -> None:
        """Wait until an nsqd is connected. Raises as ``NodePool.acquire``."""
        while True:
            node = self._nodes.acquire(deadline)
            conn = node.pool.take(time.monotonic())
            if conn is None:
                conn = self._nodes.wait_for_connection(node, node.pool, deadline.until, 1.0)
            if conn is not None:
                node.pool.put_back(conn)
                return
            if deadline.expired():
                raise ConnectError(node.address, "no connection in time")

    def attempt(
        self, node: NsqdNode, command: bytes, until: float, pause: float, traced: bool = False,
        closes_after_error: bool = False, is_async: bool = False,
    ) -> tuple[NSQError | None, StoredPosition | None]:
        """Send a command once, on a connection to this nsqd.

        Args:
            pause: seconds without progress after which another nsqd is used, if one answers.
            traced: nsqd may answer where it is stored; no other nsqd can store it.
            closes_after_error: nsqd may not have read the whole command then.
            is_async: use the connection that such publishes share.

        Returns: why it failed, None when it is stored; and where, if it was traced.

        Blocks: until the response, or the deadline.
        """
        if threading.get_ident() == self._timer.ident:  # a finalizer that runs there
            raise ReentrantCallError()
        pool = node.pipeline if is_async else node.pool
        conn = None
        is_answered = False
        try:
            now = time.monotonic()
            conn = pool.take(now)
            if conn is None:
                conn = self._nodes.wait_for_connection(node, pool, until, pause)
                if conn is None:
                    return StaleConnection(
                        node.address, "all its connections are in use, or it is lost"), None
                now = time.monotonic()
            check_at = min(until, now + pause)
            conn.begin({
                "until": until, "check_at": check_at, "began": now, "pause": pause,
                "seen": pool.responses + conn.pieces,
            })
            if check_at < self._timer.due:  # read after the connection says what it waits for
                self._timer.wake()
            error = conn.exchange(command, traced)
            is_answered = True
        except NSQError as exc:
            if conn is None:
                raise
            pool.drop(conn)
            self._nodes.on_lost(node, conn, exc)
            return exc, None
        finally:
            if conn is not None and not is_answered:
                pool.drop(conn)
        pool.responses += 1
        stored = None
        if error is None:
            conn.used_at = time.monotonic()
            stored = conn.stored if traced else None
            if node.failures:
                node.failures = 0
        elif error.code in SERVER_UNAVAILABLE and not traced:
            self._nodes.mark_unavailable(node)
        if conn.is_ended or error is not None and closes_after_error:
            pool.drop(conn)
        else:
            pool.put_back(conn)
        return error, stored
