"""``Subscription``: one connection of a consumer, its messages in flight, their answers, its RDY.

What arrives becomes a Message and is noted in the InFlightTable. FINs are collected and sent
together: a system call for each would halve the speed.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import itemgetter, methodcaller
from typing import Any, Protocol

from nsqclient.connection.connection import Connection
from nsqclient.connection.handshake import Subscribe
from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.rdy import RdyState
from nsqclient.consumer.stats import ConnectionCounters, ConnectionStats
from nsqclient.display import counted
from nsqclient.errors import (
    AlreadyRespondedError,
    ClosedError,
    NSQConnectionError,
    NSQError,
    ReentrantCallError,
    ServerError,
)
from nsqclient.log_records import log_fields
from nsqclient.message import Message
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.extensions import Endpoint
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import requeue_delay
from nsqclient.runtime.lock import Lock

#: FINs that wait for others at most; they are also sent when the queue runs dry.
MAX_FIN_BATCH = 256
#: Seconds between reports of messages that expired unhandled.
_REPORT_INTERVAL = 60.0
#: Unhandled messages that are remembered: 11 MB, where that many have expired.
MAX_UNHANDLED_REMEMBERED = 50_000

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

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        """The connection ended."""
        ...


class UnhandledDeliveries:
    """How often a message of one consumer expired before a handler had it.

    nsqd counts each delivery as an attempt, also if it expired in the consumer's queue. Such
    deliveries must not lead to giving up: nothing has failed.

    Only the messages that expired last are remembered. A finished message stays until others
    take its place: nsqd may refuse a late FIN and deliver the message again, and a look at each FIN
    would cost every message something. Threads: any.
    """

    def __init__(self, most: int = MAX_UNHANDLED_REMEMBERED) -> None:
        self._most = most
        self._lock = Lock()
        # By where it came from as well: ids are unique there.
        self._counts: OrderedDict[tuple[Endpoint, bytes], int] = OrderedDict()  # guarded by _lock

    def add(self, place: Endpoint, message_id: bytes) -> None:
        """A delivery expired before a handler had it."""
        key = place, message_id
        with self._lock:
            self._counts[key] = self._counts.pop(key, 0) + 1
            if len(self._counts) > self._most:
                self._counts.popitem(last=False)

    def count(self, place: Endpoint, message_id: bytes) -> int:
        """Return how many deliveries of the message expired like that."""
        with self._lock:
            return self._counts.get((place, message_id), 0)


class InFlightTable:
    """The messages that are out on one connection, by id.

    Here it is decided that a message gets one answer. Nothing is sent from here.

    Threads: every method, any thread; no other lock is taken inside.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._messages: dict[bytes, Message] = {}  # guarded by _lock
        self.counters: ConnectionCounters = ConnectionCounters()  # written under _lock
        #: The connection has ended, and nsqd has taken its messages back. Written under _lock.
        self.is_lost: bool = False
        self._unreported = 0  # messages that expired since the last report; guarded by _lock
        self._next_report = -math.inf  # on time.monotonic(); guarded by _lock

    def __len__(self) -> int:
        """How many there are, expired ones included."""
        return len(self._messages)

    def count(self, now: float) -> int:
        """How many there are that nsqd still counts as ours."""
        with self._lock:
            return sum(message.deadline > now for message in self._messages.values())

    def messages(self) -> list[Message]:
        """Return all of them, expired ones included."""
        with self._lock:
            return list(self._messages.values())

    def unanswered(self, now: float) -> set[Message]:
        """Those that may still be answered in time."""
        with self._lock:
            return set(
                message for message in self._messages.values()
                if message.deadline > now and not message.has_responded
            )

    def forget(self, before: float) -> None:
        """Drop those whose deadline passed before ``before`` and that nobody answered."""
        with self._lock:
            old = list(m for m in self._messages.values() if m.deadline < before)
            for message in old:
                del self._messages[message._id]
            self.counters.orphaned += len(old)

    def add(self, messages: list[Message]) -> list[Message]:
        """Record received messages as in flight. A second delivery replaces the first.

        Returns: messages that are not recorded, because they are in flight with as many attempts.
            nsqd raises these when it delivers after a timeout, so it has delivered them by mistake.
        """
        repeated: list[Message] = []
        with self._lock:
            added = {message._id: message for message in messages}
            if len(added) < len(messages) or not added.keys().isdisjoint(self._messages):
                repeated = self._add_one_by_one(messages)
            else:
                self._messages.update(added)
            self.counters.received += len(messages)
        return repeated

    def put(self, messages: list[Message]) -> None:
        """Record received messages as in flight, second deliveries too, whatever their attempts."""
        with self._lock:
            self._messages.update({message._id: message for message in messages})
            self.counters.received += len(messages)

    def _add_one_by_one(self, messages: list[Message]) -> list[Message]:
        """Needs _lock."""
        repeated = []
        for message in messages:
            before = self._messages.get(message._id)
            # Both are 16 bits: after 65535 attempts nsqd counts from 0.
            if before is None or 0 < (message.attempts - before.attempts) % 65536 < 32768:
                self._messages[message._id] = message
            else:
                repeated.append(message)
        return repeated

    def get(self, message_id: bytes) -> Message | None:
        """Return the message with this id, if it is still out. Takes no lock."""
        return self._messages.get(message_id)

    def holds(self, message: Message) -> bool:
        """Return whether this delivery of the message is still out."""
        return self.get(message._id) is message

    def mark_responded(self, message: Message) -> None:
        """Give the caller the right to answer.

        Raises:
            AlreadyRespondedError: it was given to another caller.
        """
        try:
            with self._lock:
                self._mark_responded(message)
        except ReentrantCallError:  # of a finalizer, say: its thread has the lock all the same
            self._mark_responded(message)

    @staticmethod
    def _mark_responded(message: Message) -> None:
        """Needs _lock."""
        if message.has_responded:
            raise AlreadyRespondedError(f"{message!r} was answered before")
        message._responded = True

    def take_unanswered(self, messages: Iterable[Message]) -> list[Message]:
        """Mark what has no answer as answered, remove it, and return what is still in flight."""
        with self._lock:
            unanswered = list(message for message in messages if not message.has_responded)
            for message in unanswered:
                message._responded = True
            return self._take(unanswered)

    def take(self, messages: Iterable[Message]) -> list[Message]:
        """Remove messages; return those that were still there: only those may be answered."""
        with self._lock:
            return self._take(messages)

    def _take(self, messages: Iterable[Message]) -> list[Message]:
        """Needs _lock."""
        taken = []
        for message in messages:
            if self._messages.get(message._id) is message:
                del self._messages[message._id]
                taken.append(message)
        return taken

    def take_finished(self, finished: deque[Message]) -> tuple[list[bytes], int]:
        """Empty the queue of finished messages, and remove them.

        Returns: the ids to send FIN for, and how many answers the lost connection has cost.
        """
        messages, ids, missing = self._messages, [], 0
        with self._lock:
            for _ in range(len(finished)):  # messages are removed from it here alone
                message = finished.popleft()
                if messages.get(message._id) is message:
                    del messages[message._id]
                    ids.append(message._id)
                else:
                    missing += 1
            self.counters.finished += len(ids)
            if self.is_lost:
                return ids, missing
            self.counters.late_answers += missing  # it was delivered again, or forgotten
            return ids, 0

    def count_more(self, counter: str, number: int = 1) -> int:
        """Add to one of the counters, and return its new value."""
        with self._lock:
            total: int = getattr(self.counters, counter) + number
            setattr(self.counters, counter, total)
            return total

    def count_expired(self, now: float, number: int = 1) -> int:
        """Count messages that expired unhandled; return how many there are to report now.

        The first one at once, then every minute what has come together. Those that were lost with
        their connection are nothing to report: it is its loss that is.
        """
        with self._lock:
            self.counters.expired += number
            if self.is_lost:
                return 0
            self._unreported += number
            if now < self._next_report:
                return 0
            count, self._unreported = self._unreported, 0
            self._next_report = now + _REPORT_INTERVAL
            return count

    def extend(self, message: Message, deadline: float) -> None:
        """nsqd was asked for more time."""
        with self._lock:
            if not self.is_lost:
                message.deadline = deadline
            self.counters.touched += 1

    def expire(self, message_id: bytes) -> None:
        """nsqd says that the message is no longer ours."""
        with self._lock:
            message = self._messages.get(message_id)
            if message is not None:
                message.deadline = min(message.deadline, time.monotonic())

    def mark_lost(self) -> None:
        """The connection ended: the messages are nsqd's again."""
        now = time.monotonic()
        with self._lock:
            self.is_lost = True
            for message in self._messages.values():
                message.deadline = min(message.deadline, now)
            self.counters.orphaned += len(self._messages)
            self._messages.clear()


class Subscription:
    """The messages and answers of one connection; the Responder of its messages.

    Threads: any; ``on_...`` are called by the connection's reader.
    """

    def __init__(
        self, address: str, context: ConsumerContext, owner: SubscriptionOwner,
        unhandled: UnhandledDeliveries | None = None,
    ) -> None:
        config = context.config
        self._log = context.log
        self.topic: str = context.topic
        self.channel: str = context.channel
        self.address = address
        self.place: Endpoint = Endpoint(address)  # its place among the consumer's connections
        self.conn: Connection = Connection(address, config, self)
        self.in_flight: InFlightTable = InFlightTable()
        self.counters: ConnectionCounters = self.in_flight.counters
        self.rdy_state: RdyState | None = None  # guarded by FlowControl's lock
        self.finished: deque[Message] = deque()  # to be sent with the next flush
        self._wanted = Subscribe(self.topic, self.channel)
        #: The topic is all that nsqd may know of it: see ``Subscribe``.
        self.has_address_only = False
        self._config = config
        self._context = context
        self._owner = owner
        #: Of the consumer; a message that comes again by another connection is still the same.
        self._unhandled = UnhandledDeliveries() if unhandled is None else unhandled
        self._rdy_on_wire = 0  # guarded by the connection's lock
        self._has_warned_of_delay = False
        #: How many FINs may wait for others: few where RDY is small, else nsqd would idle.
        self.fin_batch: int = 1
        #: Seconds after which nsqd delivers a message again.
        self.msg_timeout: float = 60.0
        self._max_msg_timeout = 900.0
        #: The highest RDY ever sent. Written under the connection's lock.
        self.highest_rdy = 0
        #: CLOSE_WAIT came: nsqd sends no more messages.
        self.was_drained: bool = False
        #: Whether it is replaced when nsqd delivers nothing although RDY allows it.
        #: An ephemeral channel would be deleted with its messages.
        self.is_watched: bool = not (
            config.sample_rate or self.channel.endswith("#ephemeral"))
        #: It is being replaced: it gets no more RDY, and ends with its last message.
        self.is_retired: bool = False
        #: A message that nsqd has delivered, and counted, twice on this connection.
        self.delivered_twice: Message | None = None

    def reports_to(self, owner: object) -> bool:
        """Return whether it reports to this owner."""
        return self._owner is owner

    def open(self, deadline: Deadline) -> None:
        """Connect and subscribe, without RDY yet. Blocks and raises as ``Connection.open``."""
        wanted = self._wanted._replace(has_address_only=self.has_address_only)
        self.conn.open(deadline, subscribe=wanted)
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

    @property
    def is_lost(self) -> bool:
        """Return whether the connection has ended, and nsqd has taken its messages back."""
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

    def stats(self, rdy: int) -> ConnectionStats:
        """Take a snapshot; ``rdy`` was sent last."""
        settings = self.conn.settings
        counters = dataclasses.replace(self.counters)
        return ConnectionStats(
            self.address, rdy, len(self), settings.version, counters, dict(settings.raw))

    # -- RDY

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
                self.highest_rdy = max(self.highest_rdy, wanted)
                self.fin_batch = max(1, min(MAX_FIN_BATCH, wanted // 8))

        try:
            return self.conn.send(queue, waits=False)
        except NSQError as exc:
            self._log.debug("%s: RDY not sent: %s", self.address, exc,
                            extra=log_fields(nsqd=self.address))
            return True

    # -- answers (the Responder of messages)

    def finish(self, message: Message) -> None:
        """Send FIN; a worker's FIN is collected for a few ms and sent together with others."""
        try:
            self.in_flight.mark_responded(message)
            self._owner.on_result(Outcome.SUCCESS)
            self.finished.append(message)
            self._owner.flush_soon(self)
        except BaseException as exc:
            if not self._is_queued_later(exc, message, self._finish_later):
                raise

    def _finish_later(self, message: Message) -> None:
        if self.in_flight.holds(message) and message not in self.finished.copy():
            self.finished.append(message)
        self.flush(waits=False)

    def _is_queued_later(
        self, error: BaseException, message: Message, respond: Callable[[Message], None]
    ) -> bool:
        """Return whether a response that could not be completed is sent in the background.

        It is where a finalizer or a signal handler called in the middle of another call. Where an
        exception of a signal handler has ended the call, the connection ends: nsqd delivers again.
        """
        if isinstance(error, ReentrantCallError):
            if message._responded:
                self._context.run_in_background(lambda: respond(message))
            return True
        if not isinstance(error, AlreadyRespondedError):
            self.conn.interrupt()
        return False

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

        def requeue_later(message: Message) -> None:
            if self.in_flight.take([message]):  # else it was queued already
                self.in_flight.count_more("requeued")
                self._send(queue, 1, waits=False)

        try:
            self.in_flight.mark_responded(message)
            self._owner.on_result(Outcome.FAILURE if backoff else Outcome.NEUTRAL)
            if self.in_flight.take([message]):
                self.in_flight.count_more("requeued")
                self._send(queue, 1)
            elif self.is_lost:
                self._count_lost(1)
        except BaseException as exc:
            if not self._is_queued_later(exc, message, requeue_later):
                raise

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
        self.touch(message)
        message_id, received = message._id, message.received
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

    def requeue_excess(self, messages: list[Message]) -> None:
        """As ``requeue_unstarted``, for messages that may not be queued: no handler had them."""
        self._note_unhandled(messages)
        self.requeue_unstarted(messages)

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

    def flush_rest(self) -> None:
        """Write what did not fit into the socket. Blocks as ``flush``; never raises."""
        try:
            self.conn.flush()
        except NSQError as exc:
            self._log.debug("%s: not all was written: %s", self.address, exc,
                            extra=log_fields(nsqd=self.address))

    def _send(
        self, queue: Callable[[ClientProtocol], None], answers: int, *, waits: bool = True
    ) -> bool:
        """Send answers; return whether they may reach nsqd. ``waits`` as in ``flush``."""
        try:
            if not self.conn.send(queue, waits=waits):
                self._context.run_in_background(self.flush_rest)
        except ReentrantCallError:  # nothing was queued
            self._context.run_in_background(lambda: self._send_later(queue, answers))
        except (ClosedError, NSQConnectionError) as exc:
            self._count_lost(answers, exc)
            return False
        return True

    def _send_later(self, queue: Callable[[ClientProtocol], None], answers: int) -> None:
        self._send(queue, answers, waits=False)

    def _count_lost(self, answers: int, error: NSQError | None = None) -> None:
        is_first = self.in_flight.count_more("lost_answers", answers) == answers
        self._log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "%s: %s lost with the connection; nsqd delivers again%s",
            self.address, counted(answers, "response"), "" if error is None else f": {error}",
            extra=log_fields(nsqd=self.address),
        )

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

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """Consumers publish nothing."""

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

    def on_close_wait(self, conn: Connection) -> None:
        """CLS was answered: so were all FINs before it."""
        self.was_drained = True

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended: its messages are nsqd's again."""
        self.fin_batch = 0  # what is finished from now on is counted at once
        self.in_flight.mark_lost()
        self.flush()  # FINs that waited for others are lost answers
        self._owner.on_lost(self, error)
