"""``NsqdSocket``: dials an nsqd and negotiates."""

from __future__ import annotations

import contextlib
import logging
import socket

from nsqclient.config import Config
from nsqclient.connection.handshake import Subscribe, negotiate
from nsqclient.connection.writer import SocketWriter
from nsqclient import hints
from nsqclient.errors import (
    ConnectError, ConnectionLostError, NotNSQError, NSQError, TLSError,
)
from nsqclient.log_records import log_fields
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import Event, FatalError, ServerSettings
from nsqclient.protocol.frames import DEFAULT_MAX_FRAME_SIZE
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.transport import SMALL_READ, Transport

logger: logging.Logger = logging.getLogger("nsqclient.connection")


class NsqdSocket:
    """A socket to one nsqd and its protocol state.

    Args:
        address: ``host:port`` of nsqd.
        config: the options for dialing, IDENTIFY and TLS.

    Life: created; ``_dial()``; ``_shut_down()``. A subclass closes the transport.
    """

    def __init__(self, address: str, config: Config) -> None:
        self.address: str = address
        self._config = config
        self._lock = Lock()
        self._core = ClientProtocol(config.max_msg_size or DEFAULT_MAX_FRAME_SIZE)
        self._writer = SocketWriter(self._core, self._lock, config.write_timeout)
        self._transport: Transport | None = None  # written under _lock, as all below
        self._dialed: socket.socket | None = None  # the socket until the transport exists
        #: True if it accepts no further commands.
        self.is_ended: bool = False

    @property
    def settings(self) -> ServerSettings:
        """The settings in nsqd's response to IDENTIFY."""
        return self._core.settings

    def _dial(
        self, subscribe: Subscribe | tuple[str, str] | None, deadline: Deadline
    ) -> None:
        """Dial, negotiate, authenticate if requested, and subscribe if ``subscribe`` is given.

        Blocks: until the deadline. Raises: as ``Connection.open``; the caller closes the socket.
        """
        config = self._config
        dial = Deadline(deadline.at_most(config.dial_timeout))
        transport = Transport.connect(
            self.address, dial, config.local_addr or None, self._note_dialed)
        with self._lock:
            self._transport = transport
            self._need_not_ended()
        self._writer.attach(transport)

        try:
            negotiate(self._core, self.address, config, subscribe,
                      lambda wanted: self._await_event(transport, wanted, deadline))
        except TLSError as exc:
            with contextlib.suppress(NSQError):  # send nsqd the TLS alert
                self._writer.send_all(wait=False)
            raise TLSError(exc.reason, self.address, exc.hint) from exc
        except ConnectionLostError as exc:
            raise ConnectError(
                self.address, f"during the handshake: {exc.reason}", hints.NOT_NSQD) from exc
        with self._lock:
            self._need_not_ended()
        logger.info("%s: connected to nsqd %s", self.address, self.settings.version,
                    extra=log_fields(nsqd=self.address))

    def _await_event(
        self, transport: Transport, wanted: type[Event], deadline: Deadline
    ) -> Event:
        """Exchange bytes until the wanted event arrives; drop the events before it."""
        core = self._core
        while True:
            self._writer.send_all(wait=True)
            while core.events:
                event = core.events.popleft()
                if isinstance(event, FatalError):
                    raise event.error
                if isinstance(event, wanted):
                    return event
            data = transport.recv(SMALL_READ)
            while data is None or deadline.expired():  # nsqd may send heartbeats only
                if deadline.expired() or not transport.wait(deadline.remaining()):
                    raise ConnectError(
                        self.address,
                        f"connected, but no answer within {deadline.timeout:g} s: is this nsqd's"
                        " TCP port?", hints.NOT_NSQD,
                    )
                data = transport.recv(SMALL_READ)
            if not data:
                raise ConnectionLostError(self.address, "closed by the peer")
            try:
                core.receive_data(data)
            except NotNSQError as exc:
                raise NotNSQError(f"{self.address}: {exc}", hint=exc.hint) from None

    def _note_dialed(self, sock: socket.socket) -> None:
        """Let ``close()`` end this dial."""
        with self._lock:
            self._need_not_ended()
            self._dialed = sock

    def _need_not_ended(self) -> None:
        if self.is_ended:
            raise ConnectError(self.address, "closed while it was being opened")

    def _shut_down(self) -> None:
        """End the stream, or the dial, and wake the thread that waits for it."""
        if self._transport is not None:
            self._transport.shutdown()
        elif self._dialed is not None:
            with contextlib.suppress(OSError):  # the dial has failed
                self._dialed.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """In a forked child: close the inherited socket. The parent's connection stays open."""
        self.is_ended = True
        sock = self._transport or self._dialed
        if sock is not None:
            sock.close()
