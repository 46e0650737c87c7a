"""``BulkSubscription``: a consumer's subscription without a ``Message`` for each message.

What one read of the socket brought is handed on as it is; of the messages that are out only the
number is known here. The writer, not a handler, answers them, in bulk.
"""

from __future__ import annotations

import time
from typing import Protocol

from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.consuming.subscription import Subscription, SubscriptionOwner
from nsqclient.errors import NSQError, ServerError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.wire import RawMessage
from nsqclient.runtime.deadline import Deadline


class BulkOwner(SubscriptionOwner, Protocol):
    """What a BulkSubscription needs of its ingest. Called by readers; nothing may block."""

    def on_batch(self, sub: BulkSubscription, batch: list[RawMessage]) -> None:
        """Messages came, in this order."""
        ...

    def on_fin_refused(self, sub: BulkSubscription, message_id: bytes) -> None:
        """nsqd took a message back before FIN came."""
        ...


class BulkSubscription(Subscription):
    """One connection of an ingest. ``key`` names it for good, also among processes.

    Threads: ``take_answered`` and the sending: the writer, or the stop after it. ``on_...``: the
    connection's reader.
    """

    def __init__(
        self, key: str, address: str, topic: str, channel: str, config: Config, owner: BulkOwner
    ) -> None:
        super().__init__(address, topic, channel, config, owner)
        self.key = key
        self.window = 1
        self.was_drained = False  #: CLOSE_WAIT came
        self._is_ending = False  # CLS was sent
        self._is_late = False  # FINs were sent after it, so CLOSE_WAIT does not prove them
        self._bulk_owner = owner
        self._received = 0  # by the reader alone
        self._answered = 0  # by the writer alone

    def open(self, deadline: Deadline) -> None:
        """Connect and subscribe; see Subscription."""
        super().open(deadline)
        self.window = self.conn.settings.max_rdy_count

    def __len__(self) -> int:
        return self._received - self._answered

    def count_in_flight(self, now: float) -> int:
        """How many messages are out. Those past their deadline count until they are answered."""
        return self._received - self._answered

    def forget_orphans(self, before: float) -> None:
        """There are none: every message is answered by the writer."""

    @property
    def is_proven(self) -> bool:
        """Tell whether nsqd has surely read every FIN that was sent."""
        return self.was_drained and not self._is_late

    def send_cls(self) -> None:
        """Ask for CLOSE_WAIT, which comes when every FIN before it was read.

        Raises: as ``finish_ids``.
        """
        self._is_ending = True
        self.conn.send(lambda core: core.send_cls())

    def finish_ids(self, ids: list[bytes]) -> None:
        """Send FIN for durable messages. Blocks at most ``write_timeout``.

        Raises:
            ClosedError, NSQConnectionError: the connection is gone; copies will come.
        """
        self._answered += len(ids)
        self._is_late = self._is_late or self._is_ending
        self.conn.send(lambda core: core.send_fin(ids))

    def hand_back_ids(self, ids: list[bytes]) -> None:
        """Send REQ 0 for messages that will not be stored. Never waits, never raises."""
        self._answered += len(ids)

        def queue(core: ClientProtocol) -> None:
            for message_id in ids:
                core.send_req(message_id, 0)

        self._post(queue, len(ids))

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Count, and hand on."""
        self._received += len(batch)
        if self.link is not None:
            self.link.last_message = time.monotonic()
        self._bulk_owner.on_batch(self, batch)

    def on_answer_failed(self, conn: Connection, error: ServerError) -> None:
        """A FIN came after the message's timeout; REQ may, too, and does not matter."""
        words = error.text.encode().split()
        if error.code == "E_FIN_FAILED" and len(words) > 1:
            self._bulk_owner.on_fin_refused(self, words[1])
        else:
            super().on_answer_failed(conn, error)

    def on_close_wait(self, conn: Connection) -> None:
        """CLS was answered: so were all FINs before it."""
        self.was_drained = True
        super().on_close_wait(conn)

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[object]) -> None:
        """The connection ended; what was out and is not durable will come again."""
        self._answered = self._received
        super().on_closed(conn, error, unanswered)
