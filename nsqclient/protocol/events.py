"""The events of ``ClientProtocol``, and the settings of its nsqd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Union

from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.errors import RemoteProtocolError, ServerError
from nsqclient.protocol import peer_json
from nsqclient.protocol.frames import OK, RawMessage

#: Limit in bytes on an answer to IDENTIFY or AUTH; nsqd 1.3.0 sends some 500.
MAX_JSON_SIZE = 1024 * 1024
#: Go's longest duration, 292 years, in milliseconds.
_LONGEST_MS = 2**63 // 1_000_000
#: Part of the ``version`` of a partitioned nsqd.
_VERSION_MARK = "-HA."


def is_partitioned_version(version: str) -> bool:
    return _VERSION_MARK in version


class Endpoint(NamedTuple):
    """The nsqd of a connection; ``partition`` is None for a stock nsqd."""

    address: str
    partition: int | None = None

    def __str__(self) -> str:
        return self.address if self.partition is None else f"{self.address}/{self.partition}"


class ServerSettings(NamedTuple):
    """nsqd's answer to IDENTIFY; the defaults apply if nsqd answered ``OK``."""

    raw: Mapping[str, Any] = {}
    version: str = ""
    max_rdy_count: int = 2500
    msg_timeout_ms: int = 60_000
    max_msg_timeout_ms: int = 900_000
    output_buffer_timeout_ms: int = 250
    auth_required: bool = False
    tls_v1: bool = False
    deflate: bool = False
    snappy: bool = False
    deflate_level: int = 6  #: in force; may be lower than requested

    @property
    def is_stock(self) -> bool:
        return not is_partitioned_version(self.version)


# -- events


class Identified(NamedTuple):
    """Push the granted layers before sending anything else."""

    settings: ServerSettings


class Upgraded(NamedTuple):
    """A pushed byte layer was answered with OK."""


class Authenticated(NamedTuple):
    identity: Mapping[str, Any]


class Subscribed(NamedTuple):
    """RDY may be sent now."""


class Messages(NamedTuple):
    batch: list[RawMessage]


class Published(NamedTuple):
    """nsqd stored the publish with this token; ``answer`` is the result of ``read_answer``."""

    token: Any
    answer: Any = None


class PublishFailed(NamedTuple):
    """A partitioned nsqd refused a publish; the connection stays open."""

    error: ServerError
    token: Any


class CommandFailed(NamedTuple):
    """A FIN, REQ or TOUCH was too late. The connection stays open."""

    error: ServerError


class Heartbeat(NamedTuple):
    """nsqd sent a heartbeat; the NOP is already in ``data_to_send()``."""


class CloseWait(NamedTuple):
    """CLS was answered: no more messages arrive; messages in flight can still be finished."""


class FatalError(NamedTuple):
    """A fatal error: nsqd closes. ``token``: the publish that the error answers, or None."""

    error: ServerError
    token: Any


Event = Union[
    Identified, Upgraded, Authenticated, Subscribed, Messages, Published,
    PublishFailed, CommandFailed, Heartbeat, CloseWait, FatalError,
]


def read_json(data: bytes) -> Mapping[str, Any]:
    """Read a JSON object. Raises RemoteProtocolError."""
    try:
        value = peer_json.read_json(data, MAX_JSON_SIZE)
    except peer_json.InvalidJson as exc:
        raise RemoteProtocolError(
            f"expected a JSON object, nsqd sent {data[:64]!r}: {exc}") from exc
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"expected a JSON object, nsqd sent {data[:64]!r}")
    return value


def read_settings(data: bytes) -> ServerSettings:
    """Read the answer to IDENTIFY: JSON, or the plain ``OK`` of an nsqd without negotiation."""
    if data == OK:
        return ServerSettings()
    raw = read_json(data)
    known = ServerSettings()

    def number(key: str, default: int, lowest: int = 0, highest: int = 2**63 - 1) -> int:
        value = raw.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise RemoteProtocolError(
                f"IDENTIFY answer: {key} is {value!r:.100}, not a whole number")
        if not lowest <= value <= highest:
            raise RemoteProtocolError(
                f"IDENTIFY answer: {key} is {value}, not from {lowest} to {highest}")
        return value

    return ServerSettings(
        raw=raw,
        version=printable(str(raw.get("version", "")), LONGEST_TEXT),
        max_rdy_count=number("max_rdy_count", known.max_rdy_count, 1),
        msg_timeout_ms=number("msg_timeout", known.msg_timeout_ms, 0, _LONGEST_MS),
        max_msg_timeout_ms=number(
            "max_msg_timeout", known.max_msg_timeout_ms, 0, _LONGEST_MS),
        output_buffer_timeout_ms=number(
            "output_buffer_timeout", known.output_buffer_timeout_ms, -1, _LONGEST_MS),
        auth_required=raw.get("auth_required") is True,
        tls_v1=raw.get("tls_v1") is True,
        deflate=raw.get("deflate") is True,
        snappy=raw.get("snappy") is True,
        deflate_level=number("deflate_level", known.deflate_level),
    )
