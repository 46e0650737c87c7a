"""Fields of JSON messages: which messages pass nsq_to_nsq's filter, and what is a key. Pure.

The text of a value is never written anew: fields keep their digits and escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from json.decoder import WHITESPACE  # type: ignore[attr-defined] # in no stub
from typing import Any, NamedTuple

from nsqclient import InvalidMessageError, PartitionError


class NotAnObject(ValueError):
    """The body is no JSON object."""


class Field(NamedTuple):
    """The value of a field and the text that it had."""

    value: Any
    text: str


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)


def parse_object(body: bytes) -> dict[str, Field]:
    """Read a JSON object; of fields with one name the last counts.

    Raises:
        NotAnObject: it is something else.
    """
    try:
        # Bytes that are not UTF-8 are kept.
        return _parse(body.decode("utf-8", "surrogateescape"))
    except (ValueError, IndexError, RecursionError) as exc:
        raise NotAnObject(f"no JSON object: {exc}") from None


def _parse(text: str) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    at = _expect(text, _skip(text, 0), "{")
    if text[at] != "}":
        while True:
            if text[at] != '"':
                raise ValueError(f"no name at {at}")
            name, at = _decoder.raw_decode(text, at)
            at = _expect(text, _skip(text, at), ":")
            value, end = _decoder.raw_decode(text, at)
            fields[name] = Field(value, text[at:end])
            at = _skip(text, end)
            if text[at] == "}":
                break
            at = _expect(text, at, ",")
    if _skip(text, at + 1) != len(text):
        raise ValueError(f"more behind it, at {at + 1}")
    return fields


def _skip(text: str, at: int) -> int:
    end: int = WHITESPACE.match(text, at).end()
    return end


def _expect(text: str, at: int, char: str) -> int:
    """Pass over a character and the space behind it."""
    if text[at] != char:
        raise ValueError(f"no {char} at {at}")
    return _skip(text, at + 1)


class JsonFilter:
    """Decides about one body at a time. Immutable.

    Args:
        field: only objects that have it pass; "" for all.
        value: of these, only those where it has this value; None for any.
        whitelist: the fields that pass; empty for the body as it is.
    """

    def __init__(self, field: str, value: str | None, whitelist: Collection[str]) -> None:
        self._field = field
        self._value = value
        self._whitelist = sorted(set(whitelist))
        self._parses = bool(field or whitelist)

    def __call__(self, body: bytes) -> bytes | None:
        """Return what to pass on, None for nothing.

        Raises:
            NotAnObject: it must be a JSON object and is none.
        """
        if not self._parses:
            return body
        fields = parse_object(body)
        if self._field:
            if self._field not in fields:
                return None
            if self._value is not None and not matches(fields[self._field], self._value):
                return None
        if not self._whitelist:
            return body
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}:{fields[name].text}"
            for name in self._whitelist if name in fields
        ]
        return ("{" + ",".join(parts) + "}").encode("utf-8", "surrogateescape")


def matches(field: Field, wanted: str) -> bool:
    """Return whether a field has a value that was given as text.

    Strings must be the same, numbers of equal value; nothing else ever matches, as with the
    original. Whole numbers are compared exactly, however many digits they have.
    """
    value = field.value
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        if isinstance(value, int) and wanted.lstrip("+-").isdecimal():
            return value == int(wanted)
        return float(value) == float(wanted)
    except (ValueError, OverflowError):
        return False


def key_of(body: bytes, field: str) -> str:
    """Return the key of a record or message for a partitioned NSQ: the value of a field.

    Raises:
        InvalidMessageError: the body is no JSON object, or the field is no text or whole number.
    """
    try:
        found = parse_object(body).get(field)
    except NotAnObject as exc:
        raise InvalidMessageError(f"no key: {exc}: {body[:100]!r}") from exc
    value = None if found is None else found.value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidMessageError(
            f"no key: the field {field!r} must be a text or a whole number: {body[:100]!r}")
    return str(value)


def in_flags(error: Exception, key_flags: str) -> str:
    """Say an error; where it asks for arguments of a publish, with the flags of a tool.

    Args:
        key_flags: those that decide on the partition.
    """
    text = str(error)
    if isinstance(error, PartitionError):
        text = re.sub("give key=.*", f"give {key_flags}", text)
        text = text.replace("key= needs", f"{key_flags} needs")
        text = text.replace("defer= needs", "--defer needs")
    return text
