"""``BulkSubscription``: a consumer's subscription without a ``Message`` for each message.

The messages of one read of the socket are passed on together; of messages in flight only the number
is known here. The writer, not a handler, finishes them, in bulk.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from nsqclient.connection.connection import Connection
from nsqclient.connection.handshake import Subscribe
from nsqclient.partitioned.consumer.leaders import PartitionTarget
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.subscription import Subscription, SubscriptionOwner
from nsqclient.errors import NSQError, ServerError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.extensions import Endpoint, MessageExtension
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline


class BulkDelegate(SubscriptionOwner, Protocol):
    """What a BulkSubscription needs of its ingest. Called by readers; nothing may block."""

    def on_batch(self, sub: BulkSubscription, batch: list[RawMessage]) -> None:
        """Messages came, in this order."""
        ...

    def on_fin_refused(self, sub: BulkSubscription, message_id: bytes) -> None:
        """nsqd took a message back before FIN came."""
        ...


class BulkSubscription(Subscription):
    """One connection of an ingest. ``key`` is unique, also among processes.

    Threads: ``take_answered`` and the sending: the writer, or the stop after it. ``on_...``: the
    connection's reader.
    """

    def __init__(
        self, key: str, address: str, context: ConsumerContext, owner: BulkDelegate
    ) -> None:
        super().__init__(address, context, owner)
        self.key = key
        #: Where its messages are from: an id is unique there. Rows have it as ``nsqd``.
        self.source = address
        self.window: int = 1
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
        """Return whether nsqd has surely read every FIN that was sent."""
        return self.was_drained and not self._is_late

    def send_cls(self) -> None:
        """Ask for CLOSE_WAIT, which comes when every FIN before it was read.

        Raises: as ``finish_ids``.
        """
        self._is_ending = True
        self.conn.send(lambda core: core.send_cls())

    def finish_ids(self, ids: Sequence[bytes]) -> None:
        """Send FIN for durable messages. Blocks at most ``write_timeout``.

        Raises:
            ClosedError, NSQConnectionError: the connection is gone; copies will come.
        """
        self._answered += len(ids)
        self._is_late = self._is_late or self._is_ending
        self.conn.send(lambda core: core.send_fin(ids))

    def requeue_ids(self, ids: list[bytes]) -> None:
        """Send REQ 0 for messages that will not be stored. Never waits, never raises."""
        self._answered += len(ids)

        def queue(core: ClientProtocol) -> None:
            for message_id in ids:
                core.send_req(message_id, 0)

        self._send(queue, len(ids), waits=False)

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Count, and hand on."""
        self._received += len(batch)
        if self.rdy_state is not None:
            self.rdy_state.last_message = time.monotonic()
        self._bulk_owner.on_batch(self, batch)

    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        """A FIN came after the message's timeout; REQ may, too, and does not matter."""
        words = error.text.encode().split()
        if error.code == "E_FIN_FAILED" and len(words) > 1:
            self._bulk_owner.on_fin_refused(self, words[1])
        else:
            super().on_command_failed(conn, error)

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[object]) -> None:
        """The connection ended; what was out and is not durable will come again."""
        self._answered = self._received
        super().on_closed(conn, error, unanswered)


def partition_source(partition: int) -> str:
    """Return what rows of a partition have as ``nsqd``: the nsqd that leads it may change."""
    return f"partition-{partition}"


def partition_of_source(source: str) -> int | None:
    """Return the partition of a source; None for the address of an nsqd."""
    head, _, number = source.partition("-")
    return int(number) if head == "partition" and ":" not in number else None


def text_id(message_id: bytes) -> bytes:
    """Return the id of a message of a partition as 16 hexadecimal digits.

    They are the internal id, which grows with the offset in the partition and survives reconnects
    and moves of the leader. The trace id, the other half of the 16 bytes, is left out.
    """
    return message_id[:8].hex().encode()


class BulkPartitionSubscription(BulkSubscription):
    """One connection to one partition. Ids are texts everywhere but on the wire."""

    def __init__(
        self, key: str, target: PartitionTarget, context: ConsumerContext, owner: BulkDelegate
    ) -> None:
        super().__init__(key, target.place.address, context, owner)
        assert target.place.partition is not None
        self.place: Endpoint = target.place
        self.source: str = partition_source(target.place.partition)
        self.is_ordered: bool = target.ordered
        self._is_refused = False  # whether a FIN was
        self._wanted = Subscribe(
            self.topic, self.channel, target.place.partition, target.ordered, target.extended)

    def open(self, deadline: Deadline) -> None:
        """Connect and subscribe; see Subscription."""
        super().open(deadline)
        if self.is_ordered:
            self.window = 1

    @property
    def is_proven(self) -> bool:
        """Return whether nsqd has surely taken every FIN that was sent."""
        return super().is_proven and not self._is_refused

    @property
    def max_rdy(self) -> int:
        """Of an ordered partition the server sends one message at a time, whatever RDY is."""
        return 1 if self.is_ordered else super().max_rdy

    def finish_ids(self, ids: Sequence[bytes]) -> None:
        """As ``BulkSubscription.finish_ids``."""
        super().finish_ids(list(map(_wire_id, ids)))

    def requeue_ids(self, ids: list[bytes]) -> None:
        """As ``BulkSubscription.requeue_ids``."""
        super().requeue_ids(list(map(_wire_id, ids)))

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """Count, and hand on."""
        super().on_messages(conn, [
            (timestamp, attempts, text_id(message_id), body)
            for timestamp, attempts, message_id, body in batch
        ])

    def on_extended_messages(
        self, conn: Connection, batch: list[RawMessage], extensions: list[MessageExtension]
    ) -> None:
        """Count, and hand on without headers and offsets."""
        self.on_messages(conn, batch)

    def on_traced(self, conn: Connection, token: object, stored: object) -> None:
        """Nothing is published here."""

    def on_command_failed(self, conn: Connection, error: ServerError) -> None:
        """A FIN was refused, of which id is not said: none on this connection is proven."""
        self._is_refused = self._is_refused or error.code == "E_FIN_FAILED"
        Subscription.on_command_failed(self, conn, error)


def _wire_id(text: bytes) -> bytes:
    """Return 16 bytes for FIN and REQ, of which nsqd reads the first eight."""
    return bytes.fromhex(text.decode()) + bytes(8)
