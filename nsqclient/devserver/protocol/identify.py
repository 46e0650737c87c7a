"""IDENTIFY on the server's side: the client's JSON, the ranges of its values, the response.

Source: TCP protocol spec, "IDENTIFY"; ranges and texts as nsqd 1.3.0 has them.
"""

from __future__ import annotations

import json
from typing import Any

from nsqclient.devserver.protocol.commands import (
    ClientSettings, CommandError, InvalidJSON, ServerLimits, decode_json,
)

#: key -> type in nsqd's own structure; keys that are not here are ignored.
_FIELDS: dict[str, type] = {
    "client_id": str, "hostname": str, "user_agent": str,
    "heartbeat_interval": int, "output_buffer_size": int, "output_buffer_timeout": int,
    "sample_rate": int, "msg_timeout": int, "deflate_level": int,
    "feature_negotiation": bool, "tls_v1": bool, "deflate": bool, "snappy": bool,
}


def decode(body: bytes) -> dict[str, Any]:
    try:
        return decode_json(body, _FIELDS)
    except InvalidJSON:
        raise CommandError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None


def negotiate(
    fields: dict[str, Any], current: ClientSettings, limits: ServerLimits
) -> ClientSettings:
    """Apply the payload to the client's settings; 0 keeps the current value, -1 turns it off.

    Raises CommandError: a value is out of range, or both compressions would be granted.
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
        raise CommandError(
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


def _out_of_range(name: str, asked: int) -> CommandError:
    return CommandError("E_BAD_BODY", f"IDENTIFY {name} ({asked}) is invalid")
