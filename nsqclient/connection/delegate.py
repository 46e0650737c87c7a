"""What a connection reports, the methods that it calls on its delegate."""

from __future__ import annotations

from typing import Any, Protocol

from nsqclient.errors import NSQError, ServerError
from nsqclient.protocol.extensions import MessageExtension, StoredPosition
from nsqclient.protocol.frames import RawMessage


class ConnectionDelegate(Protocol):
    """Receives the events of a Connection. All calls come from its reader thread; do not block."""

    def on_messages(self, conn: Any, batch: list[RawMessage]) -> None:
        """Messages arrived, in this order."""
        ...

    def on_published(self, conn: Any, token: Any, error: ServerError | None) -> None:
        """nsqd responded to the publish with ``token``; None means that it is stored."""
        ...

    def on_command_failed(self, conn: Any, error: ServerError) -> None:
        """nsqd rejected a FIN, REQ or TOUCH, because the message had timed out."""
        ...

    def on_close_wait(self, conn: Any) -> None:
        """No more messages will come."""
        ...

    def on_closed(self, conn: Any, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended; called once. ``unanswered``: tokens of publishes without response.

        If ``error`` is a ServerError, nsqd rejected an earlier command and did not read these.
        """
        ...


class PartitionDelegate(ConnectionDelegate, Protocol):
    """Also receives the events of a connection that requested headers, positions or traces."""

    def on_extended_messages(
        self, conn: Any, batch: list[RawMessage], extensions: list[MessageExtension]
    ) -> None:
        """Messages arrived, with the additional fields of a partitioned nsqd."""
        ...

    def on_traced(self, conn: Any, token: Any, stored: StoredPosition) -> None:
        """A traced publish was stored, at this position."""
        ...
