"""How nsqd, which is written in Go, reads JSON and numbers, and quotes names. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nsqclient.runtime.addresses import parse_uint

#: Digits of the largest number of 64 bits.
_DIGITS = 20


def parse_number(digits: bytes) -> int | None:
    """Read ASCII digits; None when there is anything else, or too many of them."""
    return parse_uint(digits.decode("ascii", "replace"), _DIGITS)


def quote(name: bytes) -> bytes:
    """Write ``name`` in double quotes, with what cannot be printed escaped."""
    text = name.decode("utf-8", "backslashreplace")
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")


class InvalidJSON(Exception):
    """nsqd does not accept it."""


def decode_json(body: bytes, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Read an object; null and unknown keys set nothing.

    Args:
        kinds: key -> str, int or bool; no float is taken for an integer.

    Raises:
        InvalidJSON: not JSON, not an object, or a value of a wrong type.
    """
    try:
        parsed = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise InvalidJSON from None
    if not isinstance(parsed, (dict, type(None))):
        raise InvalidJSON
    fields = {
        key: value for key, value in (parsed or {}).items() if key in kinds and value is not None
    }
    if any(type(value) is not kinds[key] for key, value in fields.items()):
        raise InvalidJSON  # exact: a bool is no int here
    return fields


def encode_json(value: object) -> bytes:
    """Return compact JSON."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")
