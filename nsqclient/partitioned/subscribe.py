"""``PartitionSubscribe``: how a connection subscribes to a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nsqclient.connection.handshake import Subscribe
from nsqclient.errors import NegotiationError, PartitionError
from nsqclient.protocol import commands, extensions
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.extensions import MessageExtension, MessageFormat
from nsqclient.protocol.frames import RawMessage

_NO_EXTENSION = MessageExtension()


class TopicSubscribe(Subscribe):
    """Subscription to a whole topic at an nsqd that was listed by an nsqlookupd."""

    def command(self, address: str, settings: ServerSettings) -> bytes:
        """Return SUB."""
        return commands.sub(self.topic, self.channel)


class AddressSubscribe(Subscribe):
    """Subscription to a whole topic at an nsqd of which only the address is known."""

    def command(self, address: str, settings: ServerSettings) -> bytes:
        """Return SUB, at a stock nsqd."""
        if not settings.is_stock:
            raise PartitionError(
                f"{address}: nsqd {settings.version} is a partitioned one; by its address alone"
                " only a part of the messages would come: give lookupd_http_addresses instead of"
                " nsqd_tcp_addresses")
        return commands.sub(self.topic, self.channel)


@dataclass(frozen=True)
class PartitionSubscribe(Subscribe):
    """Subscription to one partition of a topic."""

    partition: int
    ordered: bool = False
    extended: bool = False  #: the topic's messages have headers; must be right
    with_offsets: bool = False  #: messages have their position in the queue
    identify: Mapping[str, Any] = field(default_factory=dict)  #: more fields of IDENTIFY

    def identify_fields(self) -> Mapping[str, Any]:
        """Return the consumer's fields, and the request for headers if the topic has them."""
        return {"extend_support": True, **self.identify} if self.extended else self.identify

    def command(self, address: str, settings: ServerSettings) -> bytes:
        """Return SUB, SUB_ORDERED or SUB_ADVANCED."""
        if settings.is_stock:
            raise NegotiationError(
                f"{address}: nsqlookupd says that it leads partition {self.partition} of"
                f" {self.topic}, and nsqd {settings.version} has no partitions")
        return extensions.sub(
            self.topic, self.channel, self.partition, ordered=self.ordered,
            with_offsets=self.with_offsets)

    def read(self, batch: list[RawMessage]) -> tuple[list[RawMessage], list[MessageExtension]]:
        """Split headers and positions from the bodies of received messages.

        Raises:
            RemoteProtocolError: a message is too short for them.
        """
        has_detail = self.ordered or self.with_offsets
        if not (has_detail or self.extended):
            return batch, [_NO_EXTENSION] * len(batch)
        form = MessageFormat(self.extended, has_detail)
        messages, found = [], []
        for timestamp, attempts, message_id, data in batch:
            body, extension = form.read(data)
            messages.append((timestamp, attempts, message_id, body))
            found.append(extension)
        return messages, found
