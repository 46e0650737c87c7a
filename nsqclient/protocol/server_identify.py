"""IDENTIFY on the server's side: reading the client's JSON, its ranges, and the answer.

Source: TCP protocol spec, "IDENTIFY"; ranges and texts as nsqd 1.3.0 has them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from nsqclient.protocol import go_json

#: What the embedded server calls itself: the nsqd whose behaviour it copies.
NSQD_VERSION = "1.3.0"


class ServerLimits(NamedTuple):
    """What a server allows; nsqd's defaults. Durations in milliseconds, as on the wire."""

    max_msg_size: int = 1024 * 1024
    max_body_size: int = 5 * 1024 * 1024
    max_rdy_count: int = 2500
    max_req_timeout: int = 3_600_000
    msg_timeout: int = 60_000
    max_msg_timeout: int = 900_000
    heartbeat_interval: int = 30_000
    max_heartbeat_interval: int = 60_000
    output_buffer_size: int = 16 * 1024
    max_output_buffer_size: int = 64 * 1024
    output_buffer_timeout: int = 250
    min_output_buffer_timeout: int = 25
    max_output_buffer_timeout: int = 30_000
    max_deflate_level: int = 6
    tls: bool = False
    tls_required: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_required: bool = False
    version: str = NSQD_VERSION


class ClientSettings(NamedTuple):
    """What a client is after its last IDENTIFY. Durations in milliseconds; 0 heartbeat is off."""

    heartbeat_interval: int
    msg_timeout: int
    output_buffer_size: int
    output_buffer_timeout: int
    sample_rate: int = 0
    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    feature_negotiation: bool = False
    tls: bool = False
    deflate: bool = False
    deflate_level: int = 6
    snappy: bool = False


class InvalidIdentify(Exception):
    """The payload is refused: ``code`` and ``text`` of nsqd's error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


#: key -> type in nsqd's own structure; keys that are not here are ignored.
_FIELDS: dict[str, type] = {
    "client_id": str, "hostname": str, "user_agent": str,
    "heartbeat_interval": int, "output_buffer_size": int, "output_buffer_timeout": int,
    "sample_rate": int, "msg_timeout": int, "deflate_level": int,
    "feature_negotiation": bool, "tls_v1": bool, "deflate": bool, "snappy": bool,
}


#: The integer types of that structure that have fewer than 64 bits.
_LIMITS = {"sample_rate": 2**31}


def decode(body: bytes) -> dict[str, Any]:
    """Read the payload.

    Raises:
        InvalidIdentify: not JSON, not an object, or a value of a wrong type.
    """
    try:
        return go_json.decode(body, _FIELDS, _LIMITS)
    except go_json.NotDecodable:
        raise InvalidIdentify(
            "E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None


def negotiate(
    fields: dict[str, Any], current: ClientSettings, limits: ServerLimits
) -> ClientSettings:
    """Apply the payload to the client's settings; 0 keeps what was there, -1 turns off.

    Raises:
        InvalidIdentify: a value out of range, or both compressions granted.
    """
    heartbeat = fields.get("heartbeat_interval", 0)
    interval = _choose(
        "heartbeat interval", heartbeat, current.heartbeat_interval,
        1000, limits.max_heartbeat_interval, off=0,
    )
    timeout = fields.get("output_buffer_timeout", 0)
    buffer_timeout = _choose(
        "output buffer timeout", timeout, current.output_buffer_timeout,
        limits.min_output_buffer_timeout, limits.max_output_buffer_timeout, off=0,
    )
    size = fields.get("output_buffer_size", 0)
    buffer_size = _choose(
        "output buffer size", size, current.output_buffer_size,
        64, limits.max_output_buffer_size, off=1,
    )
    if size == -1:
        buffer_timeout = 0
    sample_rate = fields.get("sample_rate", 0)
    if not 0 <= sample_rate <= 99:
        raise _out_of_range("sample rate", sample_rate)
    msg_timeout = _choose(
        "msg timeout", fields.get("msg_timeout", 0), current.msg_timeout,
        1000, limits.max_msg_timeout, off=None,
    )
    asked = fields.get("feature_negotiation", False)
    deflate = asked and limits.deflate and fields.get("deflate", False)
    snappy = asked and limits.snappy and fields.get("snappy", False)
    if deflate and snappy:
        raise InvalidIdentify(
            "E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression"
        )
    level = fields.get("deflate_level", 0)
    return ClientSettings(
        interval, msg_timeout, buffer_size, buffer_timeout, sample_rate,
        client_id=fields.get("client_id", ""),
        hostname=fields.get("hostname", ""),
        user_agent=fields.get("user_agent", ""),
        feature_negotiation=asked,
        tls=asked and limits.tls and fields.get("tls_v1", False),
        deflate=deflate,
        deflate_level=min(level if deflate and level > 0 else 6, limits.max_deflate_level),
        snappy=snappy,
    )


def response(settings: ClientSettings, limits: ServerLimits) -> bytes:
    """Build the answer to IDENTIFY: OK, or JSON with nsqd's keys in nsqd's order."""
    if not settings.feature_negotiation:
        return b"OK"
    answer = {
        "max_rdy_count": limits.max_rdy_count,
        "version": limits.version,
        "max_msg_timeout": limits.max_msg_timeout,
        "msg_timeout": settings.msg_timeout,
        "tls_v1": settings.tls,
        "deflate": settings.deflate,
        "deflate_level": settings.deflate_level,
        "max_deflate_level": limits.max_deflate_level,
        "snappy": settings.snappy,
        "sample_rate": settings.sample_rate,
        "auth_required": limits.auth_required,
        "output_buffer_size": settings.output_buffer_size,
        "output_buffer_timeout": settings.output_buffer_timeout,
    }
    return json.dumps(answer, separators=(",", ":")).encode()


def _choose(
    name: str, asked: int, current: int, lowest: int, highest: int, *, off: int | None
) -> int:
    """Return the value in force; ``off`` is what -1 means, None when -1 is not allowed."""
    if asked == 0:
        return current
    if asked == -1 and off is not None:
        return off
    if lowest <= asked <= highest:
        return asked
    raise _out_of_range(name, asked)


def _out_of_range(name: str, asked: int) -> InvalidIdentify:
    return InvalidIdentify("E_BAD_BODY", f"IDENTIFY {name} ({asked}) is invalid")
