"""What a connection reports, the methods that it calls on its delegate."""

from __future__ import annotations

from typing import Any, Protocol

from nsqclient.errors import NSQError, ServerError
from nsqclient.protocol.extensions import MessageExtension, StoredPosition
from nsqclient.protocol.frames import RawMessage


class ConnectionDelegate(Protocol):
    """Receives the events of a Connection. All calls come from its reader thread; do not block.

    A publish with the type of token that ``receive_until`` is called with is reported from the
    thread that called it.
    """

    def on_messages(self, conn: Any, batch: list[RawMessage]) -> None:
        """Messages arrived, in this order."""
        ...

    def on_published(self, conn: Any, token: Any, error: ServerError | None) -> None:
        """nsqd answered the publish that was sent with ``token``; None means stored."""
        ...

    def on_command_failed(self, conn: Any, error: ServerError) -> None:
        """A FIN, REQ or TOUCH came too late."""
        ...

    def on_close_wait(self, conn: Any) -> None:
        """No more messages will come."""
        ...

    def on_closed(self, conn: Any, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended, once. ``unanswered`` are the tokens of publishes without response.

        When ``error`` is a ServerError, nsqd rejected an earlier command and has not read those.
        """
        ...


class PartitionDelegate(ConnectionDelegate, Protocol):
    """Also receives the events of a connection that asked for headers, positions or traces."""

    def on_extended_messages(
        self, conn: Any, batch: list[RawMessage], extensions: list[MessageExtension]
    ) -> None:
        """Messages arrived, with what a partitioned nsqd adds to the stock fields."""
        ...

    def on_traced(self, conn: Any, token: Any, stored: StoredPosition) -> None:
        """A traced publish was stored, at this position."""
        ...
