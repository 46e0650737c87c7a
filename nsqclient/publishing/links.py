"""``Link``: the way to one nsqd, opened on demand; ``Links``: the choice among several."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.errors import ClosedError, ConnectError, NSQConnectionError, NSQError, ServerError
from nsqclient.flow.delays import reconnect_delay
from nsqclient.protocol.wire import RawMessage
from nsqclient.publishing.verdicts import UNABLE, Attempt, Verdict, verdict_of
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.producer")

#: Seconds for the dialogue before the first publish, within the publish's own deadline.
HANDSHAKE_TIMEOUT = 5.0


class JustEnded(ConnectError):
    """The connection ended before anything was sent: try again at once."""


class Link:
    """One nsqd of a producer: a connection that is made when it is needed.

    Threads: any. One of those that need the connection dials, the others wait for it.
    """

    def __init__(self, address: str, config: Config) -> None:
        self.address = address
        self._config = config
        self._rng = random.Random()
        self._changed = threading.Condition()
        self._conn: Connection | None = None  # guarded by _changed, as all below
        self._dialing: Connection | None = None
        self._failures = 0  # dials that failed, in a row
        self._refusals = 0  # publishes that nsqd was unable to store, in a row
        self._rests_until = 0.0  # no dial before, on time.monotonic()
        self._last_error: NSQError | None = None
        self._closed = False
        self._ended: list[Connection] = []  # lost ones, to be joined

    @property
    def last_error(self) -> NSQError | None:
        """Why the last dial failed or the last connection ended."""
        return self._last_error

    def rest(self, now: float) -> float:
        """Seconds for which this nsqd should be left alone; 0 when it may be used."""
        with self._changed:
            return 0.0 if self._conn is not None else max(0.0, self._rests_until - now)

    def submit(self, command: bytes, deadline: Deadline) -> Attempt:
        """Send a publish; the Attempt is settled when its verdict is known.

        Blocks: while the connection is made, until the deadline at most.

        Raises:
            NSQConnectionError, ServerError, NegotiationError, RemoteProtocolError: no connection;
                the message was not sent.
            ClosedError: the link was closed.
        """
        conn = self._connect(deadline)
        attempt = Attempt()
        try:
            conn.send(lambda core: core.send_publish(command, attempt), deadline)
        except ClosedError as exc:
            # Nothing was queued: the connection has just ended, and the next try dials.
            with self._changed:
                if self._conn is conn:
                    self._conn = None
            raise JustEnded(self.address, "the connection ended just before") from exc
        except NSQConnectionError:
            pass  # queued, so the reader settles the attempt when it reports the end
        return attempt

    def ping(self, deadline: Deadline) -> None:
        """Connect if need be and send a NOP. Blocks and raises like ``submit``."""
        self._connect(deadline).send(lambda core: core.send_nop(), deadline)

    def _connect(self, deadline: Deadline) -> Connection:
        """Return the open connection, dialing it or waiting for whoever dials it."""
        waited = False
        with self._changed:
            while True:
                if self._closed:
                    raise ClosedError("the producer is closed")
                if self._conn is not None:
                    return self._conn
                if self._dialing is None:
                    if waited and self._last_error is not None:
                        raise self._last_error  # the dial we waited for failed
                    break
                if deadline.expired() or not self._changed.wait(deadline.remaining()):
                    raise ConnectError(self.address, "still connecting when the time was over")
                waited = True
            conn = self._dialing = Connection(self.address, self._config, self)
        return self._dial(conn, deadline)

    def _dial(self, conn: Connection, deadline: Deadline) -> Connection:
        error: NSQError | None = None
        try:
            conn.open(Deadline(deadline.at_most(HANDSHAKE_TIMEOUT)))
        except NSQError as exc:
            error = exc
        finally:
            with self._changed:
                self._dialing = None
                if error is not None:
                    self._note_failure(error)
                else:
                    self._failures = 0
                    self._conn = conn
                closed = self._closed
                self._changed.notify_all()
        if error is not None:
            raise error
        conn.start()
        if closed:
            conn.close()
        return conn

    def _note_failure(self, error: NSQError) -> None:
        """Needs _changed."""
        self._failures += 1
        self._last_error = error
        self._rest_after(self._failures)

    def _rest_after(self, failures: int) -> None:
        """Needs _changed."""
        delay = reconnect_delay(failures, self._config.max_reconnect_delay, self._rng)
        self._rests_until = time.monotonic() + delay

    def close(self) -> list[Connection]:
        """Refuse further use and end the connection; return the connections to join."""
        with self._changed:
            self._closed = True
            conns = [*self._ended, *filter(None, (self._conn, self._dialing))]
            self._changed.notify_all()
        for conn in conns:
            conn.close("the producer was closed")
        return conns

    # -- from the connection's reader

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Producers subscribe to nothing."""

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """nsqd gave its verdict."""
        if error is None:
            self._refusals = 0
        elif error.code in UNABLE:
            with self._changed:
                # nsqd is up and cannot store: do not come back at once.
                self._refusals += 1
                self._rest_after(self._refusals)
                if self._conn is conn:
                    self._conn = None
        token.settle(verdict_of(error), error)

    def on_answer_failed(self, conn: Connection, error: ServerError) -> None:
        """Producers answer nothing."""

    def on_close_wait(self, conn: Connection) -> None:
        """Producers do not send CLS."""

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended; publishes without a verdict get one now."""
        with self._changed:
            if self._conn is conn:
                self._conn = None
            self._last_error = error
            self._ended = [old for old in self._ended if not old.join(Deadline(0))] + [conn]
            closed = self._closed
        if not closed:
            logger.warning("%s: connection lost (%s)", self.address, error)
        # After a refusal nsqd reads no further: what was pipelined behind it is not stored.
        verdict = Verdict.NOT_READ if isinstance(error, ServerError) else Verdict.UNKNOWN
        for token in unanswered:
            token.settle(verdict, error)


class Links:
    """All nsqds of a producer, used in turn, those that fail left alone for a while."""

    def __init__(self, addresses: list[str], config: Config) -> None:
        self._links = [Link(address, config) for address in addresses]
        self._lock = threading.Lock()
        self._next = random.randrange(len(self._links))  # guarded by _lock

    def choose(self) -> tuple[Link, float]:
        """Return the next nsqd to use, and the seconds to wait before (0 for a healthy one)."""
        with self._lock:
            self._next += 1
            start = self._next
        now = time.monotonic()
        count = len(self._links)
        in_turn = [self._links[(start + n) % count] for n in range(count)]
        best = min(in_turn, key=lambda link: link.rest(now))
        return best, best.rest(now)

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links)
