"""``open_dialogue``: the handshake over a socket that was dialed, before there is a reader."""

from __future__ import annotations

import contextlib
from typing import TypeVar, cast

from nsqclient.config import Config
from nsqclient.connection.handshake import Subscribe, negotiate
from nsqclient.connection.writer import SocketWriter
from nsqclient.errors import (
    ConnectError, ConnectionLostError, NotNSQError, NSQError, TLSError,
)
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import Event, FatalError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import Transport

E = TypeVar("E", bound=Event)


def open_dialogue(
    core: ClientProtocol, writer: SocketWriter, transport: Transport, config: Config,
    subscribe: Subscribe | tuple[str, str] | None, deadline: Deadline,
) -> list[Event]:
    """Negotiate, authenticate if requested, and subscribe if ``subscribe`` is given.

    Returns: the events behind the last response.

    Blocks: until the deadline.

    Raises:
        ConnectError: nsqd did not answer in time, or closed the connection.
        ServerError: nsqd rejected a command.
        NegotiationError: a feature was not granted. TLSError: the TLS handshake failed.
        RemoteProtocolError: the server at this address is not an nsqd.
    """
    address = transport.address
    late: list[Event] = []

    def wait_for(wanted: type[E]) -> E:
        event, events = _await_event(core, writer, transport, wanted, deadline)
        late.extend(events)
        return event

    try:
        negotiate(core, address, config, subscribe, wait_for)
    except TLSError as exc:
        with contextlib.suppress(NSQError):  # let nsqd know why, if it reads
            writer.send_all(wait=False)
        raise TLSError(exc.reason, address) from exc
    except ConnectionLostError as exc:
        raise ConnectError(address, f"during the handshake: {exc.reason}") from exc
    return late


def _await_event(
    core: ClientProtocol, writer: SocketWriter, transport: Transport, wanted: type[E],
    deadline: Deadline,
) -> tuple[E, list[Event]]:
    """Exchange bytes with nsqd until the wanted event is there; return it, and those behind it."""
    while True:
        writer.send_all(wait=True)
        events = core.take_events()
        for index, event in enumerate(events):
            if isinstance(event, FatalError):
                raise event.error
            if isinstance(event, wanted):
                # narrowed by isinstance; mypy loses the TypeVar over a Union of tuples
                return cast(E, event), events[index + 1:]
        has_buffered_input = core.has_buffered_input
        data = b"" if has_buffered_input else transport.recv()
        while data is None or deadline.expired():  # heartbeats without end are no answer
            if deadline.expired() or not transport.wait(deadline.remaining()):
                raise ConnectError(
                    transport.address,
                    f"connected, but no answer within {deadline.timeout:g} s: is this nsqd's TCP"
                    " port?",
                )
            data = transport.recv()
        if not data and not has_buffered_input:
            raise ConnectionLostError(transport.address, "closed by the peer")
        try:
            core.receive_data(data)
        except NotNSQError as exc:
            raise NotNSQError(f"{transport.address}: {exc}") from None
