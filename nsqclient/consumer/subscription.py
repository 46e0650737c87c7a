"""``Subscription``: one connection of a consumer, its messages in flight, and their answers.

What arrives becomes a Message and is noted in the InFlightTable. FINs are collected and sent
together: a system call for each would halve the speed.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from operator import itemgetter, methodcaller
from typing import Any, Protocol

from nsqclient.connection.connection import Connection
from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.in_flight import InFlightTable, DeliveryCounts
from nsqclient.consumer.nsqd_subscription import NsqdSubscription
from nsqclient.consumer.stats import ConnectionCounters, ConnectionStats
from nsqclient.display import counted
from nsqclient.errors import (
    AlreadyRespondedError,
    NSQError,
    ReentrantCallError,
    ServerError,
)
from nsqclient.log_records import log_fields
from nsqclient.message import Message
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.delays import requeue_delay

#: The body of a RawMessage.
body_of: itemgetter[int] = itemgetter(3)


class SubscriptionOwner(Protocol):
    """What a Subscription reports to. Nothing here may block."""

    def on_messages(self, sub: Subscription, messages: list[Message], size: int) -> None:
        """Messages came whose bodies have ``size`` bytes; called by the reader thread.

        Raises:
            RemoteProtocolError: they should not have been sent; the connection ends.
        """
        ...

    def on_result(self, outcome: Outcome) -> None:
        """A message is about to be answered; RDY that changes by it is written first."""
        ...

    def flush_soon(self, sub: Subscription) -> None:
        """See to it that ``sub.finished`` leaves: at once, or with others in a moment."""
        ...

    def give_up(self, message: Message, reason: str) -> None:
        """Call ``on_giving_up`` with a message and finish it."""
        ...

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        """The connection ended."""
        ...


class Subscription(NsqdSubscription):
    """The messages and answers of one connection; the Responder of its messages.

    Threads: any; ``on_...`` are called by the connection's reader.
    """

    def __init__(
        self, address: str, context: ConsumerContext, owner: SubscriptionOwner,
        unhandled: DeliveryCounts | None = None,
    ) -> None:
        super().__init__(address, context, owner)
        self.in_flight: InFlightTable = InFlightTable()
        self.counters: ConnectionCounters = self.in_flight.counters
        self.finished: deque[Message] = deque()  # to be sent with the next flush
        self._owner = owner
        #: Of the consumer; a message that comes again by another connection is still the same.
        self._unhandled = DeliveryCounts() if unhandled is None else unhandled
        self._has_warned_of_delay = False
        #: A message that nsqd has delivered, and counted, twice on this connection.
        self.delivered_twice: Message | None = None

    # -- numbers

    @property
    def is_lost(self) -> bool:
        return self.in_flight.is_lost

    @property
    def received(self) -> int:
        return self.counters.received

    def count_more(self, counter: str, number: int = 1) -> int:
        return self.in_flight.count_more(counter, number)

    def __len__(self) -> int:
        """How many messages are in flight, expired ones included."""
        return len(self.in_flight)

    def count_in_flight(self, now: float) -> int:
        return self.in_flight.count(now)

    def forget_orphans(self, before: float) -> None:
        self.in_flight.forget(before)

    def stats(self, rdy: int) -> ConnectionStats:
        """Take a snapshot; ``rdy`` was sent last."""
        settings = self.conn.settings
        counters = dataclasses.replace(self.counters)
        return ConnectionStats(
            self.address, rdy, len(self), settings.version, counters, dict(settings.raw))

    # -- answers (the Responder of messages)

    def finish(self, message: Message) -> None:
        """Send FIN; a worker's FIN is collected for a few ms and sent together with others."""
        self.in_flight.mark_responded(message)
        try:
            self._owner.on_result(Outcome.SUCCESS)
            self.finished.append(message)
            self._owner.flush_soon(self)
        except ReentrantCallError:  # a finalizer or signal handler, in the middle of another call
            self._context.run_in_background(lambda: self._finish_again(message))

    def _finish_again(self, message: Message) -> None:
        if self.in_flight.holds(message) and message not in self.finished.copy():
            self.finished.append(message)
        self.flush(waits=False)

    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None:
        """Send REQ, after what backoff has to say."""
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
            core.send_req(message._id, delay_ms)

        def send(waits: bool) -> None:
            if self.in_flight.take([message]):  # else it was sent already
                self.in_flight.count_more("requeued")
                self._send(queue, 1, waits=waits)
            elif self.is_lost:
                self._count_lost(1)

        self.in_flight.mark_responded(message)
        try:
            self._owner.on_result(Outcome.FAILURE if backoff else Outcome.NEUTRAL)
            send(True)
        except ReentrantCallError:  # a finalizer or signal handler, in the middle of another call
            self._context.run_in_background(lambda: send(False))

    def give_up(self, message: Message, reason: str) -> None:
        """Call ``on_giving_up`` with a message and finish it."""
        self._owner.give_up(message, reason)

    def touch(self, message: Message) -> None:
        """Send TOUCH and move the message's deadline as nsqd does."""
        if message.has_responded:
            raise AlreadyRespondedError(f"{message!r} was answered; it cannot be touched")
        try:
            if self.in_flight.holds(message):
                self._extend(message)
                self._send(lambda core: core.send_touch(message._id), 1)
            elif self.is_lost:
                self._count_lost(1)
        except ReentrantCallError:
            self._context.run_in_background(lambda: self._touch_unless_responded(message))

    def _touch_unless_responded(self, message: Message) -> None:
        if not message.has_responded:
            self.touch(message)

    def keep_alive(self, message: Message) -> None:
        """Touch now, and again whenever half of the timeout has passed."""
        message_id, received = message._id, message.received
        if received + self._max_msg_timeout > message.deadline or message.has_responded:
            self.touch(message)  # else nsqd would shorten its time
        try:
            self._touch_later(message_id, received)
        except ReentrantCallError:
            self._context.run_in_background(lambda: self._touch_later(message_id, received))

    def _touch_later(self, message_id: bytes, received: float) -> None:
        # Not the message itself: its body need not stay in memory when it was answered.
        self._context.timer.schedule(
            self.msg_timeout / 2, lambda: self._touch_again(message_id, received)
        )

    def _touch_again(self, message_id: bytes, received: float) -> None:
        # On the timer thread: posts, never waits.
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
        # Before TOUCH is sent, since nsqd's refusal may come at once and must have the last word.
        self.in_flight.extend(message, min(
            time.monotonic() + self.msg_timeout, message.received + self._max_msg_timeout
        ))

    def requeue_unstarted(self, messages: list[Message]) -> int:
        """Requeue messages that no handler has seen, at once and without backoff.

        Never waits: the reader comes here with what still arrives during a stop.
        """
        mine = self.in_flight.take_unanswered(messages)

        def queue(core: ClientProtocol) -> None:
            for message in mine:
                core.send_req(message._id, 0)

        if not mine or not self._send(queue, len(mine), waits=False):
            return 0
        self.in_flight.count_more("requeued_unstarted", len(mine))
        return len(mine)

    def drop_expired(self, message: Message) -> None:
        """Forget a message that nsqd has given to another consumer while it was queued."""
        self.drop_all_expired([message])

    def drop_all_expired(self, messages: list[Message]) -> None:
        """Forget messages that nsqd has taken back while they were queued."""
        self.in_flight.take_unanswered(messages)
        self._note_unhandled(messages)
        count = self.in_flight.count_expired(time.monotonic(), len(messages))
        if count:
            self._log.warning(
                "%s from %s expired in the queue and will be delivered again: lower max_in_flight,"
                " or raise workers or msg_timeout", counted(count, "message"), self.place,
                extra=log_fields(nsqd=self.address),
            )

    def _note_unhandled(self, messages: list[Message]) -> None:
        for message in messages:
            self._unhandled.add(self.place, message._id)

    def count_handled(self, message: Message) -> int:
        """Return how many deliveries of the message a handler had, or may have had.

        This delivery counts, and so do those to other consumers: only what expired in this one's
        queue, or was not queued at all, does not.
        """
        return message.attempts - self._unhandled.count(self.place, message._id)

    def flush(self, *, waits: bool = True) -> None:
        """Send the FINs that wait. Blocks at most ``write_timeout``; never raises.

        Args:
            waits: False: what does not fit into the socket is left to a background task.
        """
        if not self.finished:
            return
        ids, lost = self.in_flight.take_finished(self.finished)
        if lost:
            self._count_lost(lost)
        if ids:
            queue = methodcaller("send_fin", ids)
            self._send(queue, len(ids), waits=waits)

    # -- from the connection's reader

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Make Messages of what came, and hand them on."""
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
        """An answer came after the message's timeout."""
        if error.code == "E_TOUCH_FAILED":
            # "TOUCH <id> failed ...": the time that touch() gave the message is not nsqd's.
            words = error.text.encode().split()
            self.in_flight.expire(words[1] if len(words) > 1 else b"")
        self._log_late_answer(error, self.in_flight.count_more("late_answers") == 1)

    def _log_late_answer(self, error: ServerError, is_first: bool) -> None:
        """Say why nsqd refused an answer, and what to do."""
        self._log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "%s: %s (the message timed out and is delivered again; raise msg_timeout, touch it,"
            " or lower max_in_flight)", self.address, error, extra=log_fields(nsqd=self.address),
        )

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended: its messages are nsqd's again."""
        self.fin_batch = 0  # what is finished from now on is counted at once
        self.in_flight.mark_lost()
        self.flush()  # FINs that waited for others are lost answers
        self._owner.on_lost(self, error)
