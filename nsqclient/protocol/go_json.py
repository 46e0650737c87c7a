"""JSON objects as Go's ``encoding/json`` reads them into a structure. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class NotDecodable(Exception):
    """Go would not decode it."""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, so that it is told from an array and keeps repeated keys."""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def decode(
    body: bytes, kinds: Mapping[str, type], limits: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Read an object: keys in any case, the last one counts, null and unknown keys set nothing.

    Args:
        kinds: key -> str, int or bool; no float is taken for an integer.
        limits: integers from which on a number does not fit, per key; else those of 64 bits.

    Raises:
        NotDecodable: not JSON, not an object, or a value of a wrong type.
    """
    try:
        parsed = json.loads(
            body.decode("utf-8", "replace"),
            object_pairs_hook=_Pairs,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise NotDecodable from None
    if parsed is None:
        return {}
    if not isinstance(parsed, _Pairs):
        raise NotDecodable
    fields: dict[str, Any] = {}
    for key, value in parsed:
        name = key.casefold()  # as Go does, which also finds an s in U+017F
        kind = kinds.get(name)
        if kind is None or value is None:
            continue
        if type(value) is not kind:  # exact: a bool is no int here
            raise NotDecodable
        limit = 2**63 if limits is None else limits.get(name, 2**63)
        if isinstance(value, int) and not -limit <= value < limit:
            raise NotDecodable
        fields[name] = _replace_surrogates(value) if isinstance(value, str) else value
    return fields


def _replace_surrogates(text: str) -> str:
    """Half of a surrogate pair becomes U+FFFD, as in Go: nobody could write it out again."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
