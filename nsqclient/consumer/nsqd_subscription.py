"""``NsqdSubscription``: one connection that is subscribed to a channel, and its RDY.

What is done with its messages is a subclass's: ``Subscription`` or ``BulkSubscription``.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from nsqclient.connection.connection import Connection
from nsqclient.connection.handshake import Subscribe
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.rdy import RdyState
from nsqclient.display import counted
from nsqclient.errors import (
    ClosedError, NSQConnectionError, NSQError, ReentrantCallError, ServerError,
)
from nsqclient.log_records import log_fields
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import Endpoint
from nsqclient.protocol.frames import RawMessage
from nsqclient.protocol.names import is_ephemeral
from nsqclient.runtime.deadline import Deadline

#: FINs that wait for others at most; they are also sent when the queue runs dry.
MAX_FIN_BATCH = 256


class NsqdSubscription(ABC):
    """One connection of a consumer. Threads: any."""

    def __init__(self, address: str, context: ConsumerContext, owner: object) -> None:
        config = context.config
        self._log = context.log
        self._config = config
        self._context = context
        self._reports_to = owner
        self.topic: str = context.topic
        self.channel: str = context.channel
        self.address = address
        self.place: Endpoint = Endpoint(address)  # its place among the consumer's connections
        self.conn: Connection = Connection(address, config, self)
        self.rdy_state: RdyState | None = None  # guarded by FlowControl's lock
        #: What ``open()`` subscribes to.
        self.wanted: Subscribe = Subscribe(self.topic, self.channel)
        self._rdy_on_wire = 0  # guarded by the connection's lock
        #: How many FINs may wait for others: few where RDY is small, else nsqd would idle.
        self.fin_batch: int = 1
        #: Seconds after which nsqd delivers a message again.
        self.msg_timeout: float = 60.0
        self._max_msg_timeout = 900.0
        #: CLOSE_WAIT came: nsqd sends no more messages.
        self.was_drained: bool = False
        #: Whether it is replaced when nsqd delivers nothing although RDY allows it. An ephemeral
        #: channel would be deleted with its messages.
        self.is_watched: bool = not (config.sample_rate or is_ephemeral(self.channel))
        #: It is being replaced: it gets no more RDY, and ends with its last message.
        self.is_retired: bool = False

    def reports_to(self, owner: object) -> bool:
        """Return whether it reports to this owner."""
        return self._reports_to is owner

    def open(self, deadline: Deadline) -> None:
        """Connect and subscribe, without RDY yet. Blocks and raises as ``Connection.open``."""
        self.conn.open(deadline, subscribe=self.wanted)
        settings = self.conn.settings
        self.msg_timeout = settings.msg_timeout_ms / 1000
        self._max_msg_timeout = settings.max_msg_timeout_ms / 1000
        if not settings.raw and self._config.msg_timeout:
            self.msg_timeout = self._config.msg_timeout

    def abandon(self) -> None:
        """In a forked child: close the inherited socket. An answer from here is a lost one."""
        self.fin_batch = 0  # counted at once: no timer runs here
        self.conn.abandon()

    @property
    def max_rdy(self) -> int:
        """The highest RDY that makes sense."""
        return self.conn.settings.max_rdy_count

    # -- for a subclass

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Whether the connection has ended, and nsqd has taken its messages back."""

    @property
    @abstractmethod
    def received(self) -> int:
        """How many messages have arrived."""

    @abstractmethod
    def count_in_flight(self, now: float) -> int:
        """How many messages are in flight that nsqd still counts as ours."""

    @abstractmethod
    def forget_orphans(self, before: float) -> None:
        """Drop messages whose deadline passed before ``before`` and that nobody answered."""

    @abstractmethod
    def count_more(self, counter: str, number: int = 1) -> int:
        """Add to one of the counters, and return its new value."""

    @abstractmethod
    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Messages arrived, in this order. Called by the reader, as those below."""

    @abstractmethod
    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        """nsqd rejected a FIN, REQ or TOUCH, because the message had timed out."""

    @abstractmethod
    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended: its messages are nsqd's again."""

    # -- sending

    def post_rdy(self) -> bool:
        """Write the RDY of ``rdy_state``, if it is not on the wire already; never waits.

        Returns False when bytes were left: call ``flush_rest()`` where waiting is allowed.
        """

        def queue(core: ClientProtocol) -> None:
            # Read here, under the connection's lock: of two threads that race to send, both
            # write the newest decision.
            wanted = 0 if self.rdy_state is None else self.rdy_state.rdy
            if wanted != self._rdy_on_wire:
                core.send_rdy(wanted)
                self._rdy_on_wire = wanted
                self.fin_batch = max(1, min(MAX_FIN_BATCH, wanted // 8))

        try:
            return self.conn.send(queue, waits=False)
        except NSQError as exc:
            self._log.debug("%s: RDY not sent: %s", self.address, exc,
                            extra=log_fields(nsqd=self.address))
            return True

    def flush_rest(self) -> None:
        """Write what did not fit into the socket. Blocks as ``send``; never raises."""
        try:
            self.conn.flush()
        except NSQError as exc:
            self._log.debug("%s: not all was written: %s", self.address, exc,
                            extra=log_fields(nsqd=self.address))

    def _send(
        self, queue: Callable[[ClientProtocol], None], answers: int, *, waits: bool = True
    ) -> bool:
        """Send answers; return whether they may reach nsqd.

        Args:
            waits: False: what does not fit into the socket is left to a background task.
        """
        try:
            if not self.conn.send(queue, waits=waits):
                self._context.run_in_background(self.flush_rest)
        except ReentrantCallError:  # nothing was queued
            self._context.run_in_background(lambda: self._send_again(queue, answers))
        except (ClosedError, NSQConnectionError) as exc:
            self._count_lost(answers, exc)
            return False
        return True

    def _send_again(self, queue: Callable[[ClientProtocol], None], answers: int) -> None:
        self._send(queue, answers, waits=False)

    def _count_lost(self, answers: int, error: NSQError | None = None) -> None:
        is_first = self.count_more("lost_answers", answers) == answers
        self._log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "%s: %s lost with the connection; nsqd delivers again%s",
            self.address, counted(answers, "response"), "" if error is None else f": {error}",
            extra=log_fields(nsqd=self.address),
        )

    # -- from the connection's reader

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """Consumers publish nothing."""

    def on_close_wait(self, conn: Connection) -> None:
        """CLS was answered: so were all FINs before it."""
        self.was_drained = True
