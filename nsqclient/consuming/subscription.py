"""``Subscription``: one connection's share of a consumer.

It keeps the messages in flight, sends their answers, and remembers the RDY that is on the wire.
FINs are collected and leave together: a FIN of its own system call each would halve the speed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Protocol

from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.consuming.in_flight import InFlight
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.unhandled_deliveries import UnhandledDeliveries
from nsqclient.errors import (
    AlreadyRespondedError,
    ClosedError,
    ConnectionLostError,
    NSQConnectionError,
    NSQError,
    ServerError,
)
from nsqclient.flow.backoff import Outcome
from nsqclient.flow.delays import requeue_delay
from nsqclient.flow.rdy import Link
from nsqclient.message import Message
from nsqclient.negotiation import Subscribe
from nsqclient.partitions.routes import Place
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.wire import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.plurals import counted

#: FINs that wait for company at most; they also leave when the queue runs dry.
MAX_FIN_BATCH = 256

#: The body of a RawMessage.
body_of = itemgetter(3)


class SubscriptionOwner(Protocol):
    """What a Subscription needs of its Consumer. Nothing here may block."""

    def on_delivered(self, sub: Subscription, messages: list[Message], size: int) -> None:
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

    def on_answered(self) -> None:
        """A message was answered by other means than its handler's return."""
        ...

    def run_later(self, delay: float, task: Callable[[], None]) -> None:
        """Run a short task on the timer thread."""
        ...

    def run_chore(self, chore: Callable[[], None]) -> None:
        """Run a task that may block on a chore thread."""
        ...

    def on_drained(self, sub: Subscription) -> None:
        """nsqd confirmed that no more messages will come."""
        ...

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        """The connection ended."""
        ...


class Subscription:
    """The messages and answers of one connection; the Responder of its messages.

    Threads: any; ``on_...`` are called by the connection's reader.
    """

    def __init__(
        self, address: str, topic: str, channel: str, config: Config, owner: SubscriptionOwner,
        unhandled: UnhandledDeliveries | None = None,
    ) -> None:
        self._log = LifeLog(topic, channel)
        self.address = address
        self.place = Place(address)  # its place among the consumer's connections
        self.conn = Connection(address, config, self)
        self.in_flight = InFlight()
        self.counts = self.in_flight.counts
        self.link: Link | None = None  # its place in the RDY sharing; guarded by the consumer
        self.finished: deque[Message] = deque()  # to be sent with the next flush
        self._wanted = Subscribe(topic, channel)
        self._config = config
        self._owner = owner
        #: Of the consumer; a message that comes again by another connection is still the same.
        self._unhandled = UnhandledDeliveries() if unhandled is None else unhandled
        self._rdy_on_wire = 0  # guarded by the connection's lock
        #: How many FINs may wait for company: few where RDY is small, else nsqd would idle.
        self.fin_batch = 1
        self._msg_timeout = 60.0
        self._max_msg_timeout = 900.0
        #: The highest RDY ever sent. Written under the connection's lock.
        self.highest_rdy = 0

    def belongs_to(self, owner: object) -> bool:
        """Tell whether this is the consumer whose subscription it is."""
        return self._owner is owner

    def open(self, deadline: Deadline) -> None:
        """Connect and subscribe, without RDY yet. Blocks and raises as ``Connection.open``."""
        self.conn.open(deadline, subscribe=self._wanted)
        settings = self.conn.settings
        self._msg_timeout = settings.msg_timeout_ms / 1000
        self._max_msg_timeout = settings.max_msg_timeout_ms / 1000
        if not settings.raw and self._config.msg_timeout:
            self._msg_timeout = self._config.msg_timeout

    @property
    def max_rdy(self) -> int:
        """The highest RDY that makes sense."""
        return self.conn.settings.max_rdy_count

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection has ended, and nsqd has taken its messages back."""
        return self.in_flight.is_lost

    # -- numbers

    def __len__(self) -> int:
        """How many messages are in flight, expired ones included."""
        return len(self.in_flight)

    def count_in_flight(self, now: float) -> int:
        """How many messages are in flight that nsqd still counts as ours."""
        return self.in_flight.count(now)

    def forget_orphans(self, before: float) -> None:
        """Drop messages whose deadline passed before ``before`` and that nobody answered."""
        self.in_flight.forget(before)

    # -- RDY

    def post_rdy(self) -> bool:
        """Write the RDY that ``link`` says, if it is not on the wire already; never waits.

        Returns False when bytes were left: call ``conn.flush()`` where waiting is allowed.
        """

        def queue(core: ClientProtocol) -> None:
            # Read here, under the connection's lock: of two threads that race to send, both
            # write the newest decision.
            wanted = 0 if self.link is None else self.link.rdy
            if wanted != self._rdy_on_wire:
                core.send_rdy(wanted)
                self._rdy_on_wire = wanted
                self.highest_rdy = max(self.highest_rdy, wanted)
                self.fin_batch = max(1, min(MAX_FIN_BATCH, wanted // 8))

        try:
            return self.conn.post(queue)
        except NSQError as exc:
            self._log.debug("%s: RDY not sent: %s", self.address, exc)
            return True

    # -- answers (the Responder of messages)

    def finish(self, message: Message) -> None:
        """Send FIN; when a worker calls, it waits a little for company."""
        try:
            self.in_flight.claim(message)
            self._owner.on_result(Outcome.SUCCESS)
            self.finished.append(message)
            self._owner.flush_soon(self)
            self._owner.on_answered()
        except AlreadyRespondedError:
            raise
        except BaseException:  # of a signal handler, or of on_backoff
            if message._responded:
                self._owner.run_later(0.0, lambda: self._finish_interrupted(message))
            raise
        self._raise_lost(message)

    def _finish_interrupted(self, message: Message) -> None:
        """Send the FIN of a claimed message whose ``finish()`` was interrupted."""
        if self.in_flight.holds(message) and message not in list(self.finished):
            self.finished.append(message)
        self.post_finished()

    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None:
        """Send REQ, after what backoff has to say."""
        if delay is None:
            config = self._config
            delay = requeue_delay(
                message.attempts, config.default_requeue_delay, config.max_requeue_delay
            )
        delay_ms = round(delay * 1000)
        sent: list[None] = []

        def queue(core: ClientProtocol) -> None:
            core.send_req(message.id, delay_ms)
            sent.append(None)

        try:
            self.in_flight.claim(message)
            self._owner.on_result(Outcome.FAILURE if backoff else Outcome.NEUTRAL)
            if self.in_flight.take([message]):
                self.in_flight.tally("requeued")
                self._send(queue, 1)
            elif self.is_lost:
                self._count_lost(1)
            self._owner.on_answered()
        except AlreadyRespondedError:
            raise
        except BaseException:  # of a signal handler, or of on_backoff
            if message._responded:
                self._owner.run_later(
                    0.0, lambda: self._requeue_interrupted(message, queue, bool(sent))
                )
            raise
        self._raise_lost(message)

    def _requeue_interrupted(
        self, message: Message, queue: Callable[[ClientProtocol], None], is_queued: bool
    ) -> None:
        """Send the REQ of a claimed message whose ``requeue()`` was interrupted."""
        if is_queued:
            self._owner.run_chore(self.flush_rest)  # it may not have left
            return
        # Not in flight: it was taken already. Another in its place: nsqd has delivered it again.
        if not self.is_lost and self.in_flight.get(message.id) in (None, message):
            self.in_flight.take([message])
            self._post(queue, 1)
            self._owner.on_answered()

    def touch(self, message: Message) -> None:
        """Send TOUCH and move the message's deadline as nsqd does."""
        if message.has_responded:
            raise AlreadyRespondedError(f"{message!r} was answered; it cannot be touched")
        if self.in_flight.holds(message):
            self._extend(message)
            self._send(lambda core: core.send_touch(message.id), 1)
        elif self.is_lost:
            self._count_lost(1)
        self._raise_lost(message)

    def keep_alive(self, message: Message) -> None:
        """Touch now, and again whenever half of the timeout has passed."""
        self.touch(message)
        self._touch_later(message.id, message.received)

    def _touch_later(self, message_id: bytes, received: float) -> None:
        # Not the message itself: its body need not stay in memory when it was answered.
        self._owner.run_later(
            self._msg_timeout / 2, lambda: self._touch_again(message_id, received)
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
                self.address, message, self._max_msg_timeout,
            )
            return
        self._extend(message)
        if self._post(lambda core: core.send_touch(message_id), 1):
            self._touch_later(message_id, received)

    def _extend(self, message: Message) -> None:
        # Before TOUCH is sent, since nsqd's refusal may come at once and must have the last word.
        self.in_flight.extend(message, min(
            time.monotonic() + self._msg_timeout, message.received + self._max_msg_timeout
        ))

    def hand_back(self, messages: list[Message]) -> int:
        """Requeue messages that no handler has seen, at once and without backoff.

        Never waits: the reader comes here with what still arrives during a stop.
        """
        mine = self.in_flight.claim_all(messages)

        def queue(core: ClientProtocol) -> None:
            for message in mine:
                core.send_req(message.id, 0)

        if not mine or not self._post(queue, len(mine)):
            return 0
        self.in_flight.tally("handed_back", len(mine))
        return len(mine)

    def drop_expired(self, message: Message) -> None:
        """Forget a message that nsqd has given to somebody else while it was queued."""
        self.drop_all_expired([message])

    def drop_all_expired(self, messages: list[Message]) -> None:
        """Forget messages that nsqd has taken back while they were queued."""
        self.in_flight.claim_all(messages)
        self._note_unhandled(messages)
        count = self.in_flight.count_expired(time.monotonic(), len(messages))
        if count:
            self._log.warning(
                "%s from %s expired before handling, and nsqd delivers again: lower max_in_flight,"
                " or raise workers or msg_timeout", counted(count, "message"), self.place,
            )

    def hand_back_excess(self, messages: list[Message]) -> None:
        """Requeue messages that may not be queued; as ``hand_back``, and no handler had them."""
        self._note_unhandled(messages)
        self.hand_back(messages)

    def _note_unhandled(self, messages: list[Message]) -> None:
        for message in messages:
            self._unhandled.add(self.place, message.id)

    def count_handled(self, message: Message) -> int:
        """Return how many deliveries of the message a handler had, or may have had.

        This delivery counts, and so do those to other consumers: only what expired in this one's
        queue, or was not queued at all, does not.
        """
        return message.attempts - self._unhandled.count(self.place, message.id)

    def flush(self) -> None:
        """Send the FINs that wait. Blocks at most ``write_timeout``; never raises."""
        ids = self._take_finished()
        if ids:
            self._send(lambda core: core.send_fin(ids), len(ids))

    def post_finished(self) -> None:
        """Like ``flush``, but never waits."""
        ids = self._take_finished()
        if ids:
            self._post(lambda core: core.send_fin(ids), len(ids))

    def flush_rest(self) -> None:
        """Write what did not fit into the socket. Blocks as ``flush``; never raises."""
        try:
            self.conn.flush()
        except NSQError as exc:
            self._log.debug("%s: not all was written: %s", self.address, exc)

    def _take_finished(self) -> list[bytes]:
        if not self.finished:
            return []
        ids, lost = self.in_flight.take_finished(self.finished)
        if lost:
            self._count_lost(lost)
        return ids

    def _raise_lost(self, message: Message) -> None:
        """Raise when the connection of the message is gone, where that was asked for."""
        if self._config.raise_lost_answers and (self.is_lost or self.conn.is_closed):
            raise ConnectionLostError(
                self.address, f"{message!r} could not be answered; nsqd will deliver it again"
            )

    def _send(self, queue: Callable[[ClientProtocol], None], answers: int) -> bool:
        try:
            self.conn.send(queue)
        except (ClosedError, NSQConnectionError) as exc:
            self._count_lost(answers, exc)
            return False
        return True

    def _post(self, queue: Callable[[ClientProtocol], None], answers: int) -> bool:
        """Like ``_send``, but never waits: what does not fit is left to a chore."""
        try:
            is_written = self.conn.post(queue)
        except (ClosedError, NSQConnectionError) as exc:
            self._count_lost(answers, exc)
            return False
        if not is_written:
            self._owner.run_chore(self.flush_rest)
        return True

    def _count_lost(self, answers: int, error: NSQError | None = None) -> None:
        before = self.in_flight.tally("lost_answers", answers)
        self._log.log(
            logging.WARNING if not before else logging.DEBUG,
            "%s: %s lost with the connection, nsqd will deliver again%s",
            self.address, counted(answers, "answer"), "" if error is None else f": {error}",
        )

    # -- from the connection's reader

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Make Messages of what came, and hand them on."""
        now = time.monotonic()
        deadline = now + self._msg_timeout
        messages = [
            Message(body, message_id, attempts, timestamp, now, deadline, self)
            for timestamp, attempts, message_id, body in batch
        ]
        self.in_flight.add(messages)
        link = self.link
        if link is not None:
            link.last_message = now
        self._owner.on_delivered(self, messages, sum(map(len, map(body_of, batch))))

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """Consumers publish nothing."""

    def on_answer_failed(self, conn: Connection, error: ServerError) -> None:
        """An answer came after the message's timeout."""
        if error.code == "E_TOUCH_FAILED":
            # "TOUCH <id> failed ...": the time that touch() gave the message is not nsqd's.
            words = error.text.encode().split()
            self.in_flight.expire(words[1] if len(words) > 1 else b"")
        before = self.in_flight.tally("late_answers")
        self._log.log(
            logging.WARNING if not before else logging.DEBUG,
            "%s: %s (the message timed out and is delivered again; raise msg_timeout, touch it,"
            " or lower max_in_flight)", self.address, error,
        )

    def on_close_wait(self, conn: Connection) -> None:
        """CLS was answered."""
        self._owner.on_drained(self)

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended: its messages are nsqd's again."""
        self.fin_batch = 0  # what is finished from now on is counted at once
        self.in_flight.lose()
        self._take_finished()  # FINs that waited for company are lost answers
        self._owner.on_lost(self, error)
