"""The opening of a dialogue: IDENTIFY, byte layers, AUTH, SUB. It fails closed.

What was asked for and not granted is an error, and so is what was granted and not asked for;
nothing is sent before it is clear that all layers are there. Knows no socket: bytes travel
while it waits for an event. Source: client guide, "Feature Negotiation".
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol, TypeVar

from nsqclient.config import Config
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.errors import NegotiationError, RemoteProtocolError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.deflate import DeflateLayer
from nsqclient.protocol.events import (
    Authenticated,
    Event,
    Identified,
    ServerSettings,
    Subscribed,
    Upgraded,
)
from nsqclient.protocol.layers import ByteLayer
from nsqclient.protocol.snappy_layer import SnappyLayer
from nsqclient.protocol.tls import TLSLayer
from nsqclient.runtime.tls import client_context
from nsqclient.runtime.transport import parse_address

logger = logging.getLogger("nsqclient.connection")

E = TypeVar("E", bound=Event)

_FEATURES = ("tls_v1", "deflate", "snappy")


class Subscribe(NamedTuple):
    """What to subscribe to; the last three are for a partitioned nsqd alone."""

    topic: str
    channel: str
    partition: int | None = None
    ordered: bool = False
    extended: bool = False  #: the topic's messages have headers; must be right


class WaitFor(Protocol):
    """Sends what the core has to send, receives, and returns the first event of a type."""

    def __call__(self, wanted: type[E]) -> E:
        """Block until it is there; raise when it cannot come any more."""
        ...


def negotiate(
    core: ClientProtocol,
    address: str,
    config: Config,
    subscribe: Subscribe | tuple[str, str] | None,
    wait_for: WaitFor,
) -> None:
    """Bring a new dialogue to the point where publishes, or RDY, may be sent.

    Raises:
        NegotiationError: something was not granted; TLSError: the handshake failed.
        ServerError: nsqd refused something, with its own words.
        RemoteProtocolError: nsqd turned on what nobody asked for.
        And whatever ``wait_for`` raises.
    """
    # Built first: with a file that cannot be read, nothing is sent.
    tls = _tls_layer(address, config) if config.tls_v1 else None
    wanted = None if subscribe is None else Subscribe(*subscribe)
    payload = config.identify_payload()
    if wanted is not None and wanted.extended:
        payload["extend_support"] = True
    core.send_identify(payload)
    settings = wait_for(Identified).settings
    _check_granted(address, config, settings)
    if tls is not None:
        core.push_layer(tls)
        wait_for(Upgraded)
        logger.debug("%s: %s, %s", address, tls.tls.version(), tls.tls.cipher())
    compression = _compression(address, config, settings)
    if compression is not None:
        core.push_layer(compression)
        wait_for(Upgraded)
    if settings.auth_required:
        _authenticate(core, address, config, wait_for)
    if wanted is not None:
        _subscribe(core, address, wanted)
        wait_for(Subscribed)


def _subscribe(core: ClientProtocol, address: str, wanted: Subscribe) -> None:
    if wanted.partition is None:
        core.send_sub(wanted.topic, wanted.channel)
        return
    if not core.is_partitioned:
        raise NegotiationError(
            f"{address}: nsqlookupd says that it leads partition {wanted.partition} of"
            f" {wanted.topic}, and nsqd {core.settings.version} has no partitions"
        )
    core.send_sub_partition(
        wanted.topic, wanted.channel, wanted.partition, ordered=wanted.ordered
    )


def _check_granted(address: str, config: Config, settings: ServerSettings) -> None:
    for name in _FEATURES:
        asked, granted = getattr(config, name), getattr(settings, name)
        if asked and not granted:
            raise NegotiationError(
                f"{address}: nsqd does not grant {name}, which was asked for; the connection was"
                " not used without it"
            )
        if granted and not asked:
            raise RemoteProtocolError(f"{address}: nsqd turned on {name}, which nobody asked for")


def _tls_layer(address: str, config: Config) -> TLSLayer:
    context = config.tls_config
    if context is None:
        context = client_context(
            ca_file=config.tls_root_ca_file,
            cert=config.tls_cert,
            key=config.tls_key,
            key_password=config.tls_key_password,
            min_version=config.tls_min_version,
            verify=not config.tls_insecure_skip_verify,
        )
    if config.tls_insecure_skip_verify:
        logger.warning(
            "%s: nsqd's certificate is not verified (tls_insecure_skip_verify)", address
        )
    return TLSLayer(context, server_name=config.tls_server_name or parse_address(address)[0])


def _compression(
    address: str, config: Config, settings: ServerSettings
) -> ByteLayer | None:
    if settings.snappy:
        return SnappyLayer()
    if not settings.deflate:
        return None
    level = min(config.deflate_level, max(1, settings.deflate_level))
    if level < config.deflate_level:
        logger.info(
            "%s: nsqd lowers the deflate level from %d to %d",
            address, config.deflate_level, level,
        )
    return DeflateLayer(level)


def _authenticate(
    core: ClientProtocol, address: str, config: Config, wait_for: WaitFor
) -> None:
    if not config.auth_secret:
        raise NegotiationError(f"{address}: nsqd requires authentication: set auth_secret")
    if not config.tls_v1:
        logger.warning("%s: auth_secret is sent without TLS: anybody on the way can read it",
                       address)
    core.send_auth(config.auth_secret)
    identity = wait_for(Authenticated).identity
    logger.info("%s: authenticated as %s", address,
                printable(str(identity.get("identity")), LONGEST_TEXT))
