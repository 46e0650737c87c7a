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


class InvalidJSON(ValueError):
    """nsqd does not accept it."""


def decode_json(body: bytes, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Read an object as :func:`read_fields` does; null is an empty one.

    Raises:
        InvalidJSON: also if it is not JSON.
    """
    try:
        parsed = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise InvalidJSON("no JSON") from None
    return {} if parsed is None else read_fields(parsed, kinds)


def read_fields(value: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the fields of a JSON object; null and unknown keys set nothing.

    Args:
        kinds: key -> str, int, bool or list; no float is taken for an integer.

    Raises:
        InvalidJSON: not an object, or a value of a wrong type.
    """
    if not isinstance(value, dict):
        raise InvalidJSON("not a JSON object")
    fields = {key: each for key, each in value.items() if key in kinds and each is not None}
    for key, each in fields.items():
        if type(each) is not kinds[key]:  # exact: a bool does not count as int
            raise InvalidJSON(f"{key} is not of type {kinds[key].__name__}")
    return fields


def encode_json(value: object) -> bytes:
    """Return compact JSON."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")
