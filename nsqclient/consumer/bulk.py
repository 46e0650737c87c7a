"""``BulkConsumer``: consumes a channel without a ``Message`` for each message.

For work that takes and answers thousands of messages at once. The messages of one read of the
socket are passed on together. For messages in flight only their number is kept.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from nsqclient.config import Config
from nsqclient.connection.connection import Connection
from nsqclient.consumer.connections import ConnectionManager, NsqdSources
from nsqclient.consumer.context import ConsumerContext, consumer_log
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.shutdown import close_all, post_cls
from nsqclient.consumer.subscription import NsqdSubscription
from nsqclient.errors import NSQError, ServerError, with_hint
from nsqclient.log_records import log_fields
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import Endpoint
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import MAX_DIALS
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool

#: Seconds of a stop's timeout that are kept for closing connections.
_GRACE = 1.0


class BulkHandler(ABC):
    """The interface that a BulkConsumer calls, on its reader threads. Methods must not block."""

    @abstractmethod
    def on_batch(self, sub: BulkSubscription, batch: list[RawMessage]) -> None:
        """Messages have arrived, as (timestamp, attempts, id, body).

        Each must be answered once, by ``sub.finish_ids()`` or ``sub.requeue_ids()``.
        """

    def on_fin_refused(self, sub: BulkSubscription, message_id: bytes) -> None:
        """nsqd had taken a message back before its FIN arrived, and will deliver it again."""

    def on_connected(self, sub: BulkSubscription) -> None:
        """A connection is open. It gets RDY after this call."""

    def on_lost(self, sub: BulkSubscription, error: NSQError) -> None:
        """nsqd delivers its unanswered messages again."""

    def on_error(self, error: NSQError) -> None:
        """A dial or a lookup failed and will be retried."""


class BulkSubscription(NsqdSubscription):
    """One connection of a BulkConsumer.

    Threads: ``finish_ids``, ``requeue_ids`` and ``post_cls`` one at a time. The reader calls the
    ``on_...`` methods.
    """

    def __init__(self, address: str, context: ConsumerContext, owner: BulkConsumer) -> None:
        super().__init__(address, context, owner)
        self._owner = owner
        #: The source of its messages. Ids are unique within a source.
        self.source: str = address
        #: Maximum number of messages that nsqd sends before some are answered.
        self.window: int = 1
        self._is_ending = False  # CLS was sent
        self._is_late = False  # FINs were sent after CLS; CLOSE_WAIT proves nothing about them
        self._is_lost = False
        self._received = 0  # written only by the reader
        self._answered = 0  # written only by the caller of finish_ids and requeue_ids
        self._lost_answers = 0

    def open(self, deadline: Deadline) -> None:
        super().open(deadline)
        self.window = min(self.max_rdy, self.conn.settings.max_rdy_count)

    def __len__(self) -> int:
        return 0 if self._is_lost else self._received - self._answered

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    @property
    def is_proven(self) -> bool:
        """True if nsqd has certainly read every FIN that was sent."""
        return self.was_drained and not self._is_late

    def count_in_flight(self, now: float) -> int:
        return len(self)

    def forget_orphans(self, before: float) -> None:
        pass  # every message is answered, however late

    def count_more(self, counter: str, number: int = 1) -> int:
        self._lost_answers += number
        return self._lost_answers

    def post_cls(self) -> bool:
        self._is_ending = True
        return super().post_cls()

    def finish_ids(self, ids: Sequence[bytes]) -> None:
        """Send FIN for messages. Blocks at most ``write_timeout``.

        Raises:
            ClosedError, NSQConnectionError: the connection is lost; nsqd delivers them again.
        """
        self._answered += len(ids)
        self._is_late = self._is_late or self._is_ending
        self.conn.send(lambda core: core.send_fin(ids))

    def requeue_ids(self, ids: Sequence[bytes]) -> None:
        """Send REQ 0 for messages. Never blocks or raises."""
        self._answered += len(ids)

        def queue(core: ClientProtocol) -> None:
            for message_id in ids:
                core.send_req(message_id, 0)

        self._send(queue, len(ids), waits=False)

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        self._received += len(batch)
        if self.rdy_state is not None:
            self.rdy_state.last_message = time.monotonic()
        self._owner.handler.on_batch(self, batch)

    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        words = error.text.encode().split()
        if error.code == "E_FIN_FAILED" and len(words) > 1:
            self._owner.handler.on_fin_refused(self, words[1])
        else:  # nsqd has refused a REQ, because it has requeued the message itself
            self._log.debug("%s: %s", self.address, error, extra=log_fields(nsqd=self.address))

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        self._is_lost = True
        self._owner.on_lost(self, error)


class BulkConsumer:
    """Consumes one channel in bulk. The low-level counterpart of Consumer.

    Args:
        nsqds, lookupds: TCP addresses of nsqds, and HTTP addresses of nsqlookupds.
        lanes: connections to each nsqd. ``config.max_in_flight`` limits all together.

    Lifecycle: ``start()``, ``stop()``; it cannot be started again. Threads: any.
    """

    def __init__(
        self, topic: str, channel: str, handler: BulkHandler, config: Config, *,
        nsqds: Sequence[str] = (), lookupds: Sequence[str] = (), lanes: int = 1,
    ) -> None:
        self.handler = handler
        self.log = consumer_log(topic, channel)
        self._lock = Lock()
        self._subs: tuple[BulkSubscription, ...] = ()  # open; replaced under _lock
        self._stopping = False
        self._timer = Timer()
        self._background: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-background", 2 + len(lookupds), lambda task: task())
        self.context: ConsumerContext = ConsumerContext(
            topic, channel, config, self._timer, self._background.put, self.log)
        self.flow: FlowControl[BulkSubscription] = FlowControl(
            self.context, lambda phase, wait: None)
        sources, max_dials = NsqdSources(nsqds, lookupds), max(1, MAX_DIALS // lanes)
        self._lanes = [self.make_lane(sources, max_dials) for _ in range(lanes)]

    def make_lane(
        self, sources: NsqdSources, max_dials: int
    ) -> ConnectionManager[BulkSubscription]:
        return ConnectionManager(self.context, sources, self, max_dials=max_dials)

    @property
    def connections(self) -> tuple[BulkSubscription, ...]:
        return self._subs

    def start(self) -> None:
        """Start the threads and begin to connect. Returns at once.

        Raises:
            RuntimeError: no thread can be started.
        """
        self._timer.start()
        self._background.start()
        self.flow.start()
        for lane in self._lanes:
            lane.start()

    def set_paused(self, paused: bool) -> None:
        """Stop the flow (RDY 0) or resume it. Messages in flight still arrive."""
        self.flow.set_paused(paused or self._stopping)

    def stop(
        self, timeout: float = 5.0, settle: Callable[[Deadline], object] = lambda deadline: None
    ) -> list[str]:
        """Stop within ``timeout`` seconds, and about two more. A second call returns at once.

        ``settle(deadline)`` answers the received messages. Messages that arrive after it should be
        requeued. CLOSE_WAIT then proves that nsqd has read every FIN.

        Returns: the names of threads that have not ended.
        """
        with self._lock:
            if self._stopping:
                return []
            self._stopping = True
        deadline = Deadline(timeout)
        subs = [sub for lane in self._lanes for sub in lane.stop()]
        self.flow.set_paused(True)
        self.flow.stop()
        settle(Deadline(max(0.5, deadline.at_most(timeout) - _GRACE)))
        waiting = post_cls(subs)
        Deadline(_GRACE).wait_until(
            lambda: all(sub.was_drained or sub.is_lost for sub in waiting))
        return close_all(
            subs, self._timer, self._background, [lane.dials for lane in self._lanes])

    def make_subscription(self, place: Endpoint) -> BulkSubscription:
        return BulkSubscription(place.address, self.context, self)

    def on_connected(self, sub: BulkSubscription) -> None:
        with self._lock:
            self._subs = (*self._subs, sub)
        self.handler.on_connected(sub)
        self.flow.attach(sub)
        sub.conn.start()

    def on_error(self, error: NSQError) -> None:
        self.handler.on_error(error)

    def on_lost(self, sub: BulkSubscription, error: NSQError) -> None:
        with self._lock:
            self._subs = tuple(other for other in self._subs if other is not sub)
        self.flow.detach(sub)
        if not self._stopping:
            self.log.warning("lost %s, connecting again: %s", sub.place,
                             with_hint(error, str(sub.place)),
                             extra=log_fields(nsqd=str(sub.place)))
        self.handler.on_lost(sub, error)
        for lane in self._lanes:
            lane.lost(sub, error)
