"""The handshake: IDENTIFY, byte layers, AUTH, SUB. It fails closed.

A feature that was requested and not granted is an error, and so is a feature that was granted and
not requested. Source: client guide, "Feature Negotiation".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqclient.config import Config, build_tls_context
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient import hints
from nsqclient.errors import (
    NegotiationError, RemoteProtocolError, ServerError, other_nsqd_error,
)
from nsqclient.log_records import log_fields
from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import (
    Authenticated,
    Event,
    Identified,
    ServerSettings,
    Subscribed,
    Upgraded,
)
from nsqclient.protocol.layers.deflate import DeflateLayer
from nsqclient.protocol.layers.stack import ByteLayer
from nsqclient.protocol.layers.tls import TLSLayer
from nsqclient.runtime.addresses import parse_address

logger: logging.Logger = logging.getLogger("nsqclient.connection")

_FEATURES = ("tls_v1", "deflate", "snappy")


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


#: Sends the core's commands and receives until an event of the given type; returns that event.
WaitFor = Callable[[type[Event]], Any]


def negotiate(
    core: ClientProtocol,
    address: str,
    config: Config,
    subscribe: Subscribe | tuple[str, str] | None,
    wait_for: WaitFor,
) -> None:
    """Prepare a new connection for publishes or RDY.

    Raises:
        NegotiationError: nsqd did not grant a feature.
        TLSError: the TLS handshake failed.
        ServerError: nsqd rejected a command.
        RemoteProtocolError: nsqd enabled a feature that was not requested.
        And any exception of ``wait_for``.
    """
    # First: if a file cannot be read, nothing is sent.
    tls = _tls_layer(address, config) if config.tls_v1 else None
    wanted = Subscribe(*subscribe) if isinstance(subscribe, tuple) else subscribe
    payload = config.identify_payload()
    if wanted is not None:
        payload.update(wanted.identify_fields())
    core.send_identify(payload)
    settings: ServerSettings = wait_for(Identified).settings
    _check_tag(address, payload.get("desired_tag"), settings)
    _check_granted(address, config, settings)
    if tls is not None:
        core.push_layer(tls)
        wait_for(Upgraded)
        logger.debug("%s: %s, %s", address, tls.tls.version(), tls.tls.cipher(),
                     extra=log_fields(nsqd=address))
    compression = _compression(address, config, settings)
    if compression is not None:
        core.push_layer(compression)
        wait_for(Upgraded)
    if settings.auth_required:
        _authenticate(core, address, config, wait_for)
    if wanted is not None:
        core.send_sub_command(wanted.command(address, settings))
        wait_for(Subscribed)


def _check_granted(address: str, config: Config, settings: ServerSettings) -> None:
    for name in _FEATURES:
        asked, granted = getattr(config, name), getattr(settings, name)
        if asked and not granted:
            raise NegotiationError(
                f"{address}: nsqd does not grant {name}, which was asked for; the connection was"
                " not used without it", hint=hints.NOT_GRANTED[name])
        if granted and not asked:
            raise RemoteProtocolError(f"{address}: nsqd enabled {name}, which was not requested")


def _check_tag(address: str, tag: str | None, settings: ServerSettings) -> None:
    """Without its tag, a consumer would receive messages for other tags."""
    if tag is not None and settings.raw.get("desired_tag") != tag:
        raise NegotiationError(
            f"{address}: nsqd {settings.version} does not confirm desired_tag {tag!r}")


def _tls_layer(address: str, config: Config) -> TLSLayer:
    context = build_tls_context(config)
    if config.tls_insecure_skip_verify:
        logger.warning(
            "%s: nsqd's certificate is not verified (tls_insecure_skip_verify)", address,
            extra=log_fields(nsqd=address),
        )
    return TLSLayer(context, server_name=config.tls_server_name or parse_address(address)[0])


def _compression(
    address: str, config: Config, settings: ServerSettings
) -> ByteLayer | None:
    if settings.snappy:
        # Imported here, because its compiled library cannot be loaded twice in one process.
        from nsqclient.protocol.layers.snappy import SnappyLayer

        return SnappyLayer()
    if not settings.deflate:
        return None
    level = min(config.deflate_level, max(1, settings.deflate_level))
    if level < config.deflate_level:
        logger.info(
            "%s: nsqd lowers the deflate level from %d to %d",
            address, config.deflate_level, level, extra=log_fields(nsqd=address),
        )
    return DeflateLayer(level)


def _authenticate(
    core: ClientProtocol, address: str, config: Config, wait_for: WaitFor
) -> None:
    if not config.auth_secret:
        raise NegotiationError(
            f"{address}: nsqd requires authentication: set auth_secret", hint=hints.AUTH_SECRET)
    if not config.tls_v1:
        logger.warning("%s: auth_secret is sent without TLS: others on the network can read it, or"
                       " register an nsqd that gets it; set tls_v1", address,
                       extra=log_fields(nsqd=address))
    core.send_auth(config.auth_secret)
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
