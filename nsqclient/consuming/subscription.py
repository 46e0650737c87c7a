"""``Subscription``: one connection's share of a consumer.

It keeps the messages in flight, sends their answers, and remembers the RDY that is on the wire.
FINs are collected and leave together: a FIN of its own system call each would halve the speed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from nsqclient.config import Config
from nsqclient.connection import Connection
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
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.wire import RawMessage
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.consumer")

#: FINs that wait for company at most; they also leave when the queue runs dry.
MAX_FIN_BATCH = 256


class SubscriptionOwner(Protocol):
    """What a Subscription needs of its Consumer. Nothing here may block."""

    def on_delivered(self, sub: Subscription, messages: list[Message]) -> None:
        """Messages came; called by the reader thread."""
        ...

    def on_result(self, outcome: Outcome) -> None:
        """A message is about to be answered; RDY that changes by it is written first."""
        ...

    def flushes_soon(self) -> bool:
        """Tell whether the calling thread is a worker, which flushes by itself."""
        ...

    def run_later(self, delay: float, task: Callable[[], None]) -> None:
        """Run a short task on the timer thread."""
        ...

    def on_drained(self, sub: Subscription) -> None:
        """nsqd confirmed that no more messages will come."""
        ...

    def on_lost(self, sub: Subscription, error: NSQError) -> None:
        """The connection ended."""
        ...


@dataclass
class Counts:
    """What happened on one connection. Guarded by its subscription's lock."""

    received: int = 0
    finished: int = 0
    requeued: int = 0
    touched: int = 0
    handed_back: int = 0  #: requeued unstarted, at stop
    expired: int = 0  #: dropped unhandled, because nsqd had given them to somebody else
    lost_answers: int = 0  #: answers that could not be sent any more
    late_answers: int = 0  #: answers that nsqd refused: the message had timed out
    orphaned: int = 0  #: in flight when the connection was lost


class Subscription:
    """The messages and answers of one connection; the Responder of its messages.

    Threads: any; ``on_...`` are called by the connection's reader.
    """

    def __init__(
        self, address: str, topic: str, channel: str, config: Config, owner: SubscriptionOwner
    ) -> None:
        self.address = address
        self.conn = Connection(address, config, self)
        self.counts = Counts()
        self.link: Link | None = None  # its place in the RDY sharing; guarded by the consumer
        self.finished: deque[Message] = deque()  # to be sent with the next flush
        self._names = (topic, channel)
        self._config = config
        self._owner = owner
        self._lock = threading.Lock()
        self._in_flight: dict[bytes, Message] = {}  # guarded by _lock
        self._rdy_on_wire = 0  # guarded by the connection's lock
        self._lost = False  # guarded by _lock
        #: How many FINs may wait for company: few where RDY is small, else nsqd would idle.
        self.fin_batch = 1
        self._msg_timeout = 60.0
        self._max_msg_timeout = 900.0

    def open(self, deadline: Deadline) -> None:
        """Connect and subscribe, without RDY yet. Blocks and raises as ``Connection.open``."""
        self.conn.open(deadline, subscribe=self._names)
        settings = self.conn.settings
        self._msg_timeout = settings.msg_timeout_ms / 1000
        self._max_msg_timeout = settings.max_msg_timeout_ms / 1000
        if not settings.raw and self._config.msg_timeout:
            self._msg_timeout = self._config.msg_timeout

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection has ended, and nsqd has taken its messages back."""
        return self._lost

    # -- numbers

    def __len__(self) -> int:
        """How many messages are in flight, expired ones included."""
        return len(self._in_flight)

    def count_in_flight(self, now: float) -> int:
        """How many messages are in flight that nsqd still counts as ours."""
        with self._lock:
            return sum(message.deadline > now for message in self._in_flight.values())

    def forget_orphans(self, before: float) -> None:
        """Drop messages whose deadline passed before ``before`` and that nobody answered."""
        with self._lock:
            old = [m for m in self._in_flight.values() if m.deadline < before]
            for message in old:
                del self._in_flight[message.id]
            self.counts.orphaned += len(old)

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
                self.fin_batch = max(1, min(MAX_FIN_BATCH, wanted // 8))

        try:
            return self.conn.post(queue)
        except NSQError as exc:
            logger.debug("%s: RDY not sent: %s", self.address, exc)
            return True

    # -- answers (the Responder of messages)

    def finish(self, message: Message) -> None:
        """Send FIN, with the next flush when a worker calls, else at once."""
        self._claim(message)
        self._owner.on_result(Outcome.SUCCESS)
        self.finished.append(message)
        if not self._owner.flushes_soon():
            self.flush()
        if self._lost:
            self._raise_lost(message)

    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None:
        """Send REQ, after what backoff has to say."""
        self._claim(message)
        self._owner.on_result(Outcome.FAILURE if backoff else Outcome.NEUTRAL)
        if delay is None:
            config = self._config
            delay = requeue_delay(
                message.attempts, config.default_requeue_delay, config.max_requeue_delay
            )
        delay_ms = round(delay * 1000)
        if self._take([message]):
            with self._lock:
                self.counts.requeued += 1
            self._send(lambda core: core.send_req(message.id, delay_ms), 1)
        if self._lost:
            self._raise_lost(message)

    def touch(self, message: Message) -> None:
        """Send TOUCH and move the message's deadline as nsqd does."""
        with self._lock:
            if message.has_responded:
                raise AlreadyRespondedError(f"{message!r} was answered; it cannot be touched")
        if self._holds(message) and self._send(lambda core: core.send_touch(message.id), 1):
            self._after_touch(message)
        elif self._lost:
            self._raise_lost(message)

    def keep_alive(self, message: Message) -> None:
        """Touch now, and again whenever half of the timeout has passed."""
        self.touch(message)
        self._owner.run_later(self._msg_timeout / 2, lambda: self._touch_again(message))

    def _touch_again(self, message: Message) -> None:
        # On the timer thread: posts, never waits.
        now = time.monotonic()
        if message.has_responded or self._lost or not self._holds(message):
            return
        if message.deadline >= message.received + self._max_msg_timeout or message.deadline < now:
            logger.warning(
                "%s: %r cannot be kept alive any longer: nsqd's max_msg_timeout is %g s",
                self.address, message, self._max_msg_timeout,
            )
            return
        try:
            self.conn.post(lambda core: core.send_touch(message.id))
        except NSQError as exc:
            logger.debug("%s: TOUCH not sent: %s", self.address, exc)
            return
        self._after_touch(message)
        self._owner.run_later(self._msg_timeout / 2, lambda: self._touch_again(message))

    def _after_touch(self, message: Message) -> None:
        with self._lock:
            self.counts.touched += 1
            message.deadline = min(
                time.monotonic() + self._msg_timeout, message.received + self._max_msg_timeout
            )

    def _holds(self, message: Message) -> bool:
        with self._lock:
            return self._in_flight.get(message.id) is message

    def hand_back(self, messages: list[Message]) -> int:
        """Requeue messages that no handler has seen, at once and without backoff."""
        with self._lock:
            unstarted = [m for m in messages if not m.has_responded]
            for message in unstarted:
                message._responded = True
        mine = self._take(unstarted)

        def queue(core: ClientProtocol) -> None:
            for message in mine:
                core.send_req(message.id, 0)

        if not mine or not self._send(queue, len(mine)):
            return 0
        with self._lock:
            self.counts.handed_back += len(mine)
        return len(mine)

    def drop_expired(self, message: Message) -> None:
        """Forget a message that nsqd has given to somebody else while it was queued."""
        message._responded = True
        self._take([message])
        with self._lock:
            self.counts.expired += 1

    def flush(self) -> None:
        """Send the FINs that wait. Blocks at most ``write_timeout``; never raises."""
        ids = self._take_finished()
        if ids:
            self._send(lambda core: core.send_fin(ids), len(ids))

    def post_finished(self) -> bool:
        """Like ``flush``, but never waits; False when bytes were left: call ``conn.flush()``."""
        ids = self._take_finished()
        if not ids:
            return True
        try:
            return self.conn.post(lambda core: core.send_fin(ids))
        except NSQError as exc:
            self._count_lost(len(ids), exc)
            return True

    def _take_finished(self) -> list[bytes]:
        """Remove the finished messages from those in flight; return the ids to send FIN for."""
        finished, in_flight = self.finished, self._in_flight
        ids: list[bytes] = []
        if not finished:
            return ids
        with self._lock:
            try:
                while True:
                    message = finished.popleft()
                    if in_flight.get(message.id) is message:
                        del in_flight[message.id]
                        ids.append(message.id)
                    else:
                        self.counts.late_answers += 1
            except IndexError:
                pass
            self.counts.finished += len(ids)
        return ids

    def _claim(self, message: Message) -> None:
        with self._lock:
            if message.has_responded:
                raise AlreadyRespondedError(f"{message!r} was answered before")
            message._responded = True

    def _raise_lost(self, message: Message) -> None:
        """The connection of the message is gone: raise, where that was asked for."""
        if self._config.raise_lost_answers:
            raise ConnectionLostError(
                self.address, f"{message!r} could not be answered; nsqd will deliver it again"
            )

    def _take(self, messages: list[Message]) -> list[Message]:
        """Remove messages from those in flight; return those that were still there.

        This is what decides that a message gets one answer on the wire.
        """
        taken = []
        with self._lock:
            for message in messages:
                if self._in_flight.get(message.id) is message:
                    del self._in_flight[message.id]
                    taken.append(message)
        return taken

    def _send(self, queue: Callable[[ClientProtocol], None], answers: int) -> bool:
        try:
            self.conn.send(queue)
        except (ClosedError, NSQConnectionError) as exc:
            self._count_lost(answers, exc)
            return False
        return True

    def _count_lost(self, answers: int, error: NSQError) -> None:
        with self._lock:
            first = self.counts.lost_answers == 0
            self.counts.lost_answers += answers
        logger.log(
            logging.WARNING if first else logging.DEBUG,
            "%s: %d answers lost with the connection, nsqd will deliver again: %s",
            self.address, answers, error,
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
        with self._lock:
            self._in_flight.update({message.id: message for message in messages})
            self.counts.received += len(messages)
        link = self.link
        if link is not None:
            link.last_message = now
        self._owner.on_delivered(self, messages)

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """Consumers publish nothing."""

    def on_answer_failed(self, conn: Connection, error: ServerError) -> None:
        """An answer came after the message's timeout."""
        with self._lock:
            first = self.counts.late_answers == 0
            self.counts.late_answers += 1
        logger.log(
            logging.WARNING if first else logging.DEBUG,
            "%s: %s (the message timed out and is delivered again; raise msg_timeout, touch it,"
            " or lower max_in_flight)", self.address, error,
        )

    def on_close_wait(self, conn: Connection) -> None:
        """CLS was answered."""
        self._owner.on_drained(self)

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended: its messages are nsqd's again."""
        with self._lock:
            self._lost = True
            self.counts.orphaned += len(self._in_flight)
            self._in_flight.clear()
        self._owner.on_lost(self, error)
