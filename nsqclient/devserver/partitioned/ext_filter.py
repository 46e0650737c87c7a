"""``ext_filter`` of IDENTIFY, as nsqd applies it: to the JSON headers of a message. Pure."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable
from typing import Any

#: headers of a message -> whether it is delivered; None: a message without headers
ExtFilter = Callable[[dict[str, Any] | None], bool]


def read_ext_filter(field: object) -> ExtFilter | None:
    """Return the filter of an IDENTIFY; None where nsqd would apply none, an invalid one too."""
    if not isinstance(field, dict):
        return None
    matches = _read(field)
    if matches is None:
        return None
    inverse = field.get("inverse") is True
    return lambda headers: (headers is not None and matches(headers)) is not inverse


def _read(field: dict[str, Any]) -> Callable[[dict[str, Any]], bool] | None:
    kind, key, data = (field.get(name) for name in ("type", "filter_ext_key", "filter_data"))
    if isinstance(kind, bool) or not isinstance(key, str) or not key:
        return None
    if kind == 4:
        return _read_multi(key, field.get("filter_data_list"))
    if not isinstance(data, str) or not data:
        return None
    if kind == 1:
        return lambda headers: headers.get(key) == data
    if kind not in (2, 3):
        return None
    try:
        compiled = re.compile(data if kind == 2 else _glob(data))
    except re.error:
        return None
    return lambda headers: compiled.search(_text(headers, key)) is not None


def _read_multi(relation: str, rules: object) -> Callable[[dict[str, Any]], bool] | None:
    if not isinstance(rules, list) or not rules:
        return None
    pairs = []
    for rule in rules:
        if not isinstance(rule, dict):
            return None
        key, data = rule.get("filter_ext_key"), rule.get("filter_data")
        if not isinstance(key, str) or not key or not isinstance(data, str) or not data:
            return None
        pairs.append((key, data))

    def matches(headers: dict[str, Any]) -> bool:
        found = [headers.get(key) == data for key, data in pairs]
        return any(found) if relation == "any" else relation == "all" and all(found)

    return matches


def _text(headers: dict[str, Any], key: str) -> str:
    """Return a header; empty if it is missing or not a text, as in nsqd."""
    value = headers.get(key)
    return value if isinstance(value, str) else ""


def _glob(pattern: str) -> str:
    """Translate ``*``, ``?``, ``[...]`` and ``{a,b}`` into a regular expression."""
    return "^(?:" + "|".join(fnmatch.translate(each) for each in _alternatives(pattern)) + ")"


def _alternatives(pattern: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    return [each for choice in found[1].split(",")
            for each in _alternatives(pattern[:found.start()] + choice + pattern[found.end():])]


def read_headers(ext: bytes) -> dict[str, Any] | None:
    """Return the headers of a stored message, from its mark and header; None without a header."""
    if len(ext) < 3:
        return None
    fields = json.loads(ext[3:])
    return fields if isinstance(fields, dict) else {}
