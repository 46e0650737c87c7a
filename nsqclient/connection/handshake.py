"""``NsqdSocket``: dials an nsqd and negotiates: IDENTIFY, byte layers, AUTH, SUB. It fails closed.

A feature that was requested and not granted is an error, and so is a feature that was granted and
not requested. Source: client guide, "Feature Negotiation".
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqclient import hints
from nsqclient.config import Config, build_tls_context
from nsqclient.connection.writer import SocketWriter
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.errors import (
    ConnectError, ConnectionLostError, NegotiationError, NotNSQError, NSQError,
    RemoteProtocolError, ServerError, TLSError, other_nsqd_error,
)
from nsqclient.log_records import log_fields
from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import (
    Authenticated, Event, FatalError, Identified, ServerSettings, Subscribed, Upgraded,
)
from nsqclient.protocol.frames import DEFAULT_MAX_FRAME_SIZE
from nsqclient.protocol.layers import ByteLayer, DeflateLayer, SnappyLayer
from nsqclient.protocol.tls import TLSLayer
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.transport import SMALL_READ, Transport

logger: logging.Logger = logging.getLogger("nsqclient.connection")

_FEATURES = ("tls_v1", "deflate", "snappy")
#: Exchanges bytes until an event of the given type arrives; returns that event.
_WaitFor = Callable[[type[Event]], Any]


def need_real_sockets() -> None:
    """Raise NegotiationError if another library has replaced the sockets of Python."""
    if socket.socket.__module__ != "socket":
        raise NegotiationError(
            f"the module socket is patched by {socket.socket.__module__}: nsqclient needs"
            " threads and sockets that block; do not patch it, or use nsqclient in another process")


@dataclass(frozen=True)
class Subscribe:
    """A topic and channel to subscribe to. A subclass speaks another dialect than a stock nsqd."""

    topic: str
    channel: str

    def identify_fields(self) -> Mapping[str, Any]:
        """Return further fields of IDENTIFY."""
        return {}

    def command(self, address: str, settings: ServerSettings) -> bytes:
        """Return the command that subscribes at an nsqd with these settings.

        Raises:
            NSQError: this nsqd cannot serve the subscription.
        """
        if not settings.is_stock:
            raise other_nsqd_error(address, settings.version)
        return commands.sub(self.topic, self.channel)


class NsqdSocket:
    """A socket to one nsqd and its protocol state. A subclass closes the transport."""

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

    def __str__(self) -> str:
        return self.address

    @property
    def settings(self) -> ServerSettings:
        """The settings in nsqd's response to IDENTIFY."""
        return self._core.settings

    def _dial(
        self, subscribe: Subscribe | tuple[str, str] | None, deadline: Deadline
    ) -> None:
        """Dial, negotiate, authenticate and subscribe. The caller closes the socket if it fails."""
        need_real_sockets()
        config = self._config
        dial = Deadline(deadline.at_most(config.dial_timeout))
        transport = Transport.connect(
            self.address, dial, config.local_addr or None, self._note_dialed)
        with self._lock:
            self._transport = transport
            self._need_not_ended()
        self._writer.attach(transport)
        try:
            self._negotiate(subscribe, lambda wanted: self._await_event(wanted, deadline))
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

    def _await_event(self, wanted: type[Event], deadline: Deadline) -> Event:
        """Exchange bytes until the wanted event arrives; drop the events before it."""
        core, transport = self._core, self._transport
        assert transport is not None
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

    def _negotiate(
        self, subscribe: Subscribe | tuple[str, str] | None, wait_for: _WaitFor
    ) -> None:
        """Prepare a new connection for publishes or RDY."""
        core, config = self._core, self._config
        # First: if a file cannot be read, nothing is sent.
        tls = self._tls_layer() if config.tls_v1 else None
        wanted = Subscribe(*subscribe) if isinstance(subscribe, tuple) else subscribe
        payload = config.identify_payload()
        if wanted is not None:
            payload.update(wanted.identify_fields())
        core.send_identify(payload)
        settings: ServerSettings = wait_for(Identified).settings
        self._check_granted(payload.get("desired_tag"), settings)
        if tls is not None:
            core.push_layer(tls)
            wait_for(Upgraded)
            logger.debug("%s: %s, %s", self.address, tls.tls.version(), tls.tls.cipher(),
                         extra=log_fields(nsqd=self.address))
        compression = self._compression(settings)
        if compression is not None:
            core.push_layer(compression)
            wait_for(Upgraded)
        if settings.auth_required:
            self._authenticate(wait_for)
        if wanted is not None:
            core.send_sub_command(wanted.command(self.address, settings))
            wait_for(Subscribed)

    def _check_granted(self, tag: str | None, settings: ServerSettings) -> None:
        # Without its tag, a consumer would receive messages for other tags.
        if tag is not None and settings.raw.get("desired_tag") != tag:
            raise NegotiationError(
                f"{self.address}: nsqd {settings.version} does not confirm desired_tag {tag!r}")
        for name in _FEATURES:
            asked, granted = getattr(self._config, name), getattr(settings, name)
            if asked and not granted:
                raise NegotiationError(
                    f"{self.address}: nsqd does not grant {name}, which was requested; the"
                    " connection was not used without it", hint=hints.NOT_GRANTED[name])
            if granted and not asked:
                raise RemoteProtocolError(
                    f"{self.address}: nsqd enabled {name}, which was not requested")

    def _tls_layer(self) -> TLSLayer:
        config = self._config
        context = build_tls_context(config)
        if config.tls_insecure_skip_verify:
            logger.warning(
                "%s: nsqd's certificate is not verified (tls_insecure_skip_verify)", self.address,
                extra=log_fields(nsqd=self.address))
        return TLSLayer(
            context, server_name=config.tls_server_name or parse_address(self.address)[0])

    def _compression(self, settings: ServerSettings) -> ByteLayer | None:
        if settings.snappy:
            return SnappyLayer()
        if not settings.deflate:
            return None
        asked = self._config.deflate_level
        level = min(asked, max(1, settings.deflate_level))
        if level < asked:
            logger.info("%s: nsqd lowers the deflate level from %d to %d", self.address, asked,
                        level, extra=log_fields(nsqd=self.address))
        return DeflateLayer(level)

    def _authenticate(self, wait_for: _WaitFor) -> None:
        config, address = self._config, self.address
        if not config.auth_secret:
            raise NegotiationError(
                f"{address}: nsqd requires authentication: set auth_secret", hint=hints.AUTH_NEEDED)
        if not config.tls_v1:
            logger.warning("%s: auth_secret is sent without TLS: others on the network can read it,"
                           " or register an nsqd that gets it; set tls_v1", address,
                           extra=log_fields(nsqd=address))
        self._core.send_auth(config.auth_secret)
        try:
            identity = wait_for(Authenticated).identity
        except ServerError as exc:
            if config.auth_secret not in exc.text:
                raise
            # A server that echoes the command must not put the secret into the log.
            raise ServerError(exc.code, exc.text.replace(config.auth_secret, "***")) from None
        logger.info("%s: authenticated as %s", address,
                    printable(str(identity.get("identity")), LONGEST_TEXT),
                    extra=log_fields(nsqd=address))

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
