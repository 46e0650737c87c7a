"""Whom a connection reports to, and how the events of its core get there."""

from __future__ import annotations

from typing import Any, Protocol, cast

from nsqclient.errors import NSQError, ServerError
from nsqclient.protocol.events import (
    AnswerFailed,
    CloseWait,
    DetailedMessages,
    Event,
    Messages,
    NotPublished,
    Published,
    Refused,
)
from nsqclient.protocol.extended import Extras, Stored
from nsqclient.protocol.wire import RawMessage


class ConnectionListener(Protocol):
    """Whom a Connection reports to. All calls come from its reader thread and must not block."""

    def on_messages(self, conn: Any, batch: list[RawMessage]) -> None:
        """Messages arrived, in this order."""
        ...

    def on_published(self, conn: Any, token: Any, error: ServerError | None) -> None:
        """nsqd gave its verdict on the publish sent with ``token``; None means stored."""
        ...

    def on_answer_failed(self, conn: Any, error: ServerError) -> None:
        """A FIN, REQ or TOUCH came too late."""
        ...

    def on_close_wait(self, conn: Any) -> None:
        """No more messages will come."""
        ...

    def on_closed(self, conn: Any, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended, once. ``unanswered`` are the tokens of publishes without verdict.

        When ``error`` is a ServerError, nsqd refused an earlier command and has not read those.
        """
        ...


class PartitionListener(ConnectionListener, Protocol):
    """Whom a connection reports to that asked for headers, positions or traces."""

    def on_detailed_messages(
        self, conn: Any, batch: list[RawMessage], extras: list[Extras]
    ) -> None:
        """Messages arrived, with what a partitioned nsqd says of them beside the stock fields."""
        ...

    def on_traced(self, conn: Any, token: Any, stored: Stored) -> None:
        """A traced publish was stored, and where."""
        ...


def dispatch(conn: Any, listener: ConnectionListener, events: list[Event]) -> None:
    """Tell the listener what happened, in order.

    Raises:
        ServerError: nsqd refused something, and closes.
    """
    for event in events:
        if isinstance(event, Messages):
            listener.on_messages(conn, event.batch)
        elif isinstance(event, Published):
            if event.stored is None:
                listener.on_published(conn, event.token, None)
            else:  # only who asked for it gets it
                cast(PartitionListener, listener).on_traced(conn, event.token, event.stored)
        elif isinstance(event, AnswerFailed):
            listener.on_answer_failed(conn, event.error)
        elif isinstance(event, CloseWait):
            listener.on_close_wait(conn)
        elif isinstance(event, DetailedMessages):
            partitioned = cast(PartitionListener, listener)
            partitioned.on_detailed_messages(conn, event.batch, event.extras)
        elif isinstance(event, NotPublished):
            listener.on_published(conn, event.token, event.error)
        elif isinstance(event, Refused):
            if event.token is not None:
                listener.on_published(conn, event.token, event.error)
            raise event.error
