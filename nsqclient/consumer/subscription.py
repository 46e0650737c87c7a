"""``Subscription``: one connection of a consumer, its messages in flight, and their answers.

FINs are collected and sent together, because a system call for each halves the speed.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from operator import itemgetter, methodcaller
from typing import Any, Protocol

from nsqclient.connection.connection import Connection
from nsqclient.connection.handshake import Subscribe
from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.in_flight import DeliveryCounts, InFlightTable
from nsqclient.consumer.rdy import RdyState
from nsqclient.consumer.stats import ConnectionCounters, ConnectionStats
from nsqclient.display import counted
from nsqclient.errors import (
    AlreadyRespondedError, ClosedError, NSQConnectionError, NSQError, ReentrantCallError,
    ServerError,
)
from nsqclient.log_records import log_fields
from nsqclient.message import Message
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import Endpoint
from nsqclient.protocol.frames import RawMessage
from nsqclient.protocol.names import is_ephemeral
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import requeue_delay
from nsqclient.runtime.deques import copy_deque
from nsqclient.runtime.log_lines import LineLimit

MAX_FIN_BATCH = 256
body_of: itemgetter[int] = itemgetter(3)


class NsqdSubscription(ABC):
    """One connection that is subscribed to a channel, and its RDY. Threads: any.

    The base class of Subscription and BulkSubscription.
    """

    def __init__(self, address: str, context: ConsumerContext, owner: object) -> None:
        config = context.config
        self._log = context.log
        self._config = config
        self._context = context
        self._reports_to = owner
        self.topic: str = context.topic
        self.channel: str = context.channel
        self.address = address
        self.place: Endpoint = Endpoint(address)
        self.conn: Connection = Connection(address, config, self)
        self.rdy_state: RdyState | None = None  # guarded by FlowControl's lock
        #: The command that ``open()`` subscribes with.
        self.wanted: Subscribe = Subscribe(self.topic, self.channel)
        self._rdy_on_wire = 0  # guarded by the connection's lock
        #: Number of FINs that are sent together. Low if RDY is low, or nsqd would wait for them.
        self.fin_batch: int = 1
        self.msg_timeout: float = 60.0
        self._max_msg_timeout = 900.0
        #: CLOSE_WAIT has arrived: nsqd sends no more messages.
        self.was_drained: bool = False
        #: True if the Watchdog may replace it. Replacing would delete an ephemeral channel.
        self.is_watched: bool = not (config.sample_rate or is_ephemeral(self.channel))
        #: Being replaced: it gets no more RDY, and is closed once its messages are answered.
        self.is_retired: bool = False

    def reports_to(self, owner: object) -> bool:
        return self._reports_to is owner

    def open(self, deadline: Deadline) -> None:
        """Connect and subscribe, with RDY 0. Blocks and raises as ``Connection.open``."""
        self.conn.open(deadline, subscribe=self.wanted)
        settings = self.conn.settings
        self.msg_timeout = settings.msg_timeout_ms / 1000
        self._max_msg_timeout = settings.max_msg_timeout_ms / 1000
        if not settings.raw and self._config.msg_timeout:
            self.msg_timeout = self._config.msg_timeout

    def abandon(self) -> None:
        """Close the inherited socket in a forked child. Later answers count as lost."""
        self.fin_batch = 0  # count later answers at once: no timer runs here
        self.conn.abandon()

    @property
    def max_rdy(self) -> int:
        return self.conn.settings.max_rdy_count

    @property
    @abstractmethod
    def is_lost(self) -> bool: ...

    @abstractmethod
    def count_in_flight(self, now: float) -> int:
        """Return the number of messages that nsqd counts as in flight here."""

    @abstractmethod
    def forget_orphans(self, before: float) -> None:
        """Drop unanswered messages whose deadline lies before ``before``."""

    @abstractmethod
    def count_more(self, counter: str, number: int = 1) -> int: ...

    @abstractmethod
    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Messages have arrived. Called by the reader, as the methods below."""

    @abstractmethod
    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        """nsqd has rejected a FIN, REQ or TOUCH, because the message had timed out."""

    @abstractmethod
    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None: ...

    def post_rdy(self) -> None:
        """Send the RDY of ``rdy_state``, unless that value was sent last. Never waits or raises."""

        def queue(core: ClientProtocol) -> None:
            # Read under the connection's lock, so that racing threads send the newest value.
            wanted = 0 if self.rdy_state is None else self.rdy_state.rdy
            if wanted != self._rdy_on_wire:
                core.send_rdy(wanted)
                self._rdy_on_wire = wanted
                self.fin_batch = max(1, min(MAX_FIN_BATCH, wanted // 8))

        try:
            self._post(queue)
        except NSQError as exc:
            self._log.debug("%s: RDY not sent: %s", self.address, exc,
                            extra=log_fields(nsqd=self.address))

    def post_cls(self) -> bool:
        """Send CLS, which nsqd answers with CLOSE_WAIT. Never waits.

        Returns: False if the connection is lost or not open yet.
        """
        try:
            self._post(lambda core: core.send_cls())
        except NSQError as exc:
            self._log.debug("%s: CLS not sent: %s", self.place, exc,
                            extra=log_fields(nsqd=self.address))
            return self.is_retired and not self.conn.is_closed  # the watchdog has sent CLS
        return True

    def _post(self, queue: Callable[[ClientProtocol], None]) -> None:
        """Send without waiting. A background task sends what the socket does not take."""
        if not self.conn.send(queue, waits=False):
            self._context.run_in_background(self._flush_socket)

    def _flush_socket(self) -> None:
        try:
            self.conn.flush()
        except NSQError as exc:
            self._log.debug("%s: not all was written: %s", self.address, exc,
                            extra=log_fields(nsqd=self.address))

    def _send(
        self, queue: Callable[[ClientProtocol], None], answers: int, *, waits: bool = True
    ) -> bool:
        """Send answers. Returns False if they are lost with the connection."""
        try:
            if not self.conn.send(queue, waits=waits):
                self._context.run_in_background(self._flush_socket)
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

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None: ...

    def on_close_wait(self, conn: Connection) -> None:
        self.was_drained = True


class SubscriptionOwner(Protocol):
    """The interface that a Subscription reports to. Methods must not block."""

    def on_messages(self, sub: Subscription, messages: list[Message], size: int) -> None:
        """Messages have arrived; their bodies have ``size`` bytes. Called by the reader thread.

        Raises:
            RemoteProtocolError: the messages break the protocol; the connection is closed.
        """

    def on_result(self, outcome: Outcome) -> None:
        """A message is about to be answered. If RDY changes, it is sent first."""

    def flush_soon(self, sub: Subscription) -> None: ...

    def give_up(self, message: Message, reason: str) -> None: ...

    def on_lost(self, sub: Subscription, error: NSQError) -> None: ...


class Subscription(NsqdSubscription):
    """The messages and answers of one connection; the Responder of its messages.

    Threads: any. The connection's reader calls the ``on_...`` methods.
    """

    def __init__(
        self, address: str, context: ConsumerContext, owner: SubscriptionOwner,
        unhandled: DeliveryCounts | None = None,
    ) -> None:
        super().__init__(address, context, owner)
        self.in_flight: InFlightTable = InFlightTable()
        self.counters: ConnectionCounters = self.in_flight.counters
        self.finished: deque[Message] = deque()  # FINs that the next flush() sends
        self._owner = owner
        #: Shared by the consumer's subscriptions: a message may come again on another connection.
        self._unhandled = DeliveryCounts() if unhandled is None else unhandled
        self._has_warned_of_delay = False
        self._expired_lines = LineLimit(1)
        #: A message that nsqd has delivered, and counted, twice on this connection.
        self.delivered_twice: Message | None = None

    @property
    def is_lost(self) -> bool:
        return self.in_flight.is_lost

    def count_more(self, counter: str, number: int = 1) -> int:
        return self.in_flight.count_more(counter, number)

    def __len__(self) -> int:
        return len(self.in_flight)

    def count_in_flight(self, now: float) -> int:
        return self.in_flight.count(now)

    def forget_orphans(self, before: float) -> None:
        self.in_flight.forget(before)

    def stats(self, rdy: int) -> ConnectionStats:
        settings = self.conn.settings
        counters = dataclasses.replace(self.counters)
        return ConnectionStats(
            self.address, rdy, len(self), settings.version, counters, dict(settings.raw))

    # -- answers (the Responder of messages)

    def finish(self, message: Message) -> None:
        """Send FIN. The FINs of workers are collected for a few ms and sent together."""
        self.in_flight.mark_responded(message)
        try:
            self._owner.on_result(Outcome.SUCCESS)
            self.finished.append(message)
            self._owner.flush_soon(self)
        except ReentrantCallError:  # called by a finalizer or signal handler during another call
            self._context.run_in_background(lambda: self._finish_again(message))

    def _finish_again(self, message: Message) -> None:
        if self.in_flight.holds(message) and message not in copy_deque(self.finished):
            self.finished.append(message)
        self.flush(waits=False)

    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None:
        if delay is None:
            config = self._config
            delay = requeue_delay(
                message.attempts, config.default_requeue_delay, config.max_requeue_delay
            )
        limit = self._config.nsqd_max_req_timeout
        if delay > limit and not self._has_warned_of_delay:
            self._has_warned_of_delay = True
            self._log.warning(
                "a requeue delay of %.10g s is over nsqd's limit of %g s, which nsqd takes instead:"
                " if its --max-req-timeout is higher, set nsqd_max_req_timeout", delay, limit)
        delay_ms = round(delay * 1000)

        def queue(core: ClientProtocol) -> None:
            core.send_req(message.raw_id, delay_ms)

        def send(waits: bool) -> None:
            if self.in_flight.take([message]):  # otherwise it was sent already
                self.in_flight.count_more("requeued")
                self._send(queue, 1, waits=waits)
            elif self.is_lost:
                self._count_lost(1)

        self.in_flight.mark_responded(message)
        try:
            self._owner.on_result(Outcome.FAILURE if backoff else Outcome.NEUTRAL)
            send(True)
        except ReentrantCallError:  # called by a finalizer or signal handler during another call
            self._context.run_in_background(lambda: send(False))

    def give_up(self, message: Message, reason: str) -> None:
        self._owner.give_up(message, reason)

    def touch(self, message: Message) -> None:
        if message.has_responded:
            raise AlreadyRespondedError(f"{message!r} was answered; it cannot be touched")
        try:
            if self.in_flight.holds(message):
                self._extend(message)
                self._send(lambda core: core.send_touch(message.raw_id), 1)
            elif self.is_lost:
                self._count_lost(1)
        except ReentrantCallError:
            self._context.run_in_background(lambda: self._touch_unless_responded(message))

    def _touch_unless_responded(self, message: Message) -> None:
        if not message.has_responded:
            self.touch(message)

    def keep_alive(self, message: Message) -> None:
        """Send TOUCH now, and again whenever half of the timeout has passed."""
        message_id, received = message.raw_id, message.received
        if received + self._max_msg_timeout > message.deadline or message.has_responded:
            self.touch(message)  # otherwise TOUCH could only shorten the timeout
        try:
            self._touch_later(message_id, received)
        except ReentrantCallError:
            self._context.run_in_background(lambda: self._touch_later(message_id, received))

    def _touch_later(self, message_id: bytes, received: float) -> None:
        # Without a reference to the message, so that the body of an answered one is freed.
        self._context.timer.schedule(
            self.msg_timeout / 2, lambda: self._touch_again(message_id, received)
        )

    def _touch_again(self, message_id: bytes, received: float) -> None:
        # On the timer thread, so it must not wait.
        message = self.in_flight.get(message_id)
        if message is None or message.received != received or message.has_responded:
            return  # answered, or nsqd has delivered it again
        if (
            message.deadline >= received + self._max_msg_timeout
            or message.deadline < time.monotonic()
        ):
            self._log.warning(
                "%s: %r cannot be kept alive any longer: nsqd's max_msg_timeout is %g s",
                self.address, message, self._max_msg_timeout, extra=log_fields(message=message),
            )
            return
        self._extend(message)
        if self._send(lambda core: core.send_touch(message_id), 1, waits=False):
            self._touch_later(message_id, received)

    def _extend(self, message: Message) -> None:
        # Called before TOUCH is sent, because nsqd may refuse at once, which expires the message.
        self.in_flight.extend(message, min(
            time.monotonic() + self.msg_timeout, message.received + self._max_msg_timeout
        ))

    def requeue_unstarted(self, messages: list[Message]) -> int:
        """Requeue messages that no handler has seen, at once and without backoff. Never waits."""
        mine = self.in_flight.take_unanswered(messages)

        def queue(core: ClientProtocol) -> None:
            for message in mine:
                core.send_req(message.raw_id, 0)

        if not mine or not self._send(queue, len(mine), waits=False):
            return 0
        self.in_flight.count_more("requeued_unstarted", len(mine))
        return len(mine)

    def drop_expired(self, message: Message) -> None:
        self.in_flight.take_unanswered([message])
        self._unhandled.add(self.place, message.raw_id)
        count = self.in_flight.count_more("expired")
        if not self.is_lost:  # otherwise the loss of the connection is logged
            self._log.log(
                self._expired_lines.level(logging.WARNING),
                "%s from %s expired in the queue and will be delivered again: lower max_in_flight,"
                " or raise workers or msg_timeout", counted(count, "message"), self.place,
                extra=log_fields(nsqd=self.address),
            )

    def count_handled(self, message: Message) -> int:
        """Return the number of deliveries of the message that a handler may have seen.

        Includes deliveries to other consumers, but not deliveries that expired in this queue.
        """
        return message.attempts - self._unhandled.count(self.place, message.raw_id)

    def flush(self, *, waits: bool = True) -> None:
        """Send the collected FINs. Never raises.

        Blocks: at most ``write_timeout``, unless ``waits`` is False.
        """
        if not self.finished:
            return
        ids, lost = self.in_flight.take_finished(self.finished)
        if lost:
            self._count_lost(lost)
        if ids:
            queue = methodcaller("send_fin", ids)
            self._send(queue, len(ids), waits=waits)

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        now = time.monotonic()
        deadline = now + self.msg_timeout
        messages = [
            Message(body, message_id, attempts, timestamp, now, deadline, self)
            for timestamp, attempts, message_id, body in batch
        ]
        repeated = self.in_flight.add(messages)
        state = self.rdy_state
        if state is not None:
            state.last_message = now
        if repeated:
            self.delivered_twice = repeated[0]
            messages = [message for message in messages if message not in repeated]
        self._owner.on_messages(self, messages, sum(map(len, map(body_of, batch))))

    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        if error.code == "E_TOUCH_FAILED":
            # "TOUCH <id> failed ...": nsqd has not extended the deadline.
            words = error.text.encode().split()
            self.in_flight.expire(words[1] if len(words) > 1 else b"")
        self._log_late_answer(error, self.in_flight.count_more("late_answers") == 1)

    def _log_late_answer(self, error: ServerError, is_first: bool) -> None:
        self._log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "%s: %s (the message timed out and is delivered again; raise msg_timeout, touch it,"
            " or lower max_in_flight)", self.address, error, extra=log_fields(nsqd=self.address),
        )

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        self.fin_batch = 0  # answers from now on are counted as lost at once
        self.in_flight.mark_lost()
        self.flush()  # count the collected FINs as lost
        self._owner.on_lost(self, error)
