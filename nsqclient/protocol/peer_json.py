"""Reads JSON of a server, in bounded time and memory, and its fields.

``json.loads`` alone accepts integers of thousands of digits, which overflow floats; NaN, which is
not JSON; halves of surrogate pairs, which cannot be printed; and any depth up to a
``RecursionError``.

A missing field has a default, because older servers have fewer fields. A field of the wrong type is
an error.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from nsqclient.display import LONGEST_TEXT, printable

T = TypeVar("T")

#: Default limit on the size in bytes.
MAX_SIZE = 64 * 1024 * 1024
#: Digits before the decimal point, as many as 2^64 has.
MAX_DIGITS = 20
#: ``/stats`` nests six levels.
MAX_DEPTH = 32
#: Objects and lists together: an empty one takes 3 bytes of JSON and 64 bytes of memory. ``/stats``
#: has three for each client.
MAX_CONTAINERS = 1_000_000

_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")


class InvalidJson(ValueError):
    """The data is not JSON."""


class JsonLimitError(InvalidJson):
    """The data exceeds a limit."""


def read_json(data: bytes, max_size: int = MAX_SIZE) -> Any:
    """Return the decoded value.

    Raises:
        JsonLimitError: more than ``max_size`` bytes, a million objects and lists, 32 levels of
            them, or 20 digits of a number.
        InvalidJson: not JSON in UTF-8.
    """
    if len(data) > max_size:
        raise JsonLimitError(f"more than {max_size} bytes of JSON")
    containers = data.count(b"{") + data.count(b"[")
    if containers > MAX_CONTAINERS:
        raise JsonLimitError(f"more than {MAX_CONTAINERS} objects and lists")
    # A call for each integer would make reading 1.5 times as slow, and long numbers are rare.
    check_int = _read_int if _LONG_NUMBER in data.translate(_DIGITS_TO_ZEROS) else None
    try:
        value = json.loads(
            data.decode(), parse_int=check_int, parse_float=_read_float,
            parse_constant=_refuse_constant,
        )
    except InvalidJson:
        raise
    except RecursionError:
        raise JsonLimitError("too many levels of objects and lists") from None
    except ValueError as exc:
        raise InvalidJson(str(exc)) from exc
    if containers > MAX_DEPTH and isinstance(value, (dict, list)):
        _check_depth(value)
    if rb"\ud" in data or rb"\uD" in data:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidJson("half of a surrogate pair") from None
    return value


def _read_int(text: str) -> int:
    if len(text.removeprefix("-")) > MAX_DIGITS:
        raise JsonLimitError(f"a number of {len(text.removeprefix('-'))} digits")
    return int(text)


def _read_float(text: str) -> float:
    value = float(text)
    if abs(value) >= 10.0**MAX_DIGITS:
        raise JsonLimitError(f"a number of more than {MAX_DIGITS} digits")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not JSON")


def _check_depth(value: dict[str, Any] | list[Any]) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            # Runs for every value: type() is faster than isinstance().
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise JsonLimitError(f"more than {MAX_DEPTH} levels of objects and lists")


class InvalidField(Exception):
    ...


@functools.cache  # a response may have thousands of the same class
def _fields_of(kind: Callable[..., Any]) -> list[tuple[str, Any]]:
    return [(each.name, each.type)
            for each in dataclasses.fields(kind)]  # type: ignore[arg-type] # a class


class JsonReader:
    """Reads the fields of a JSON object, which errors call ``what``. Raises InvalidField."""

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, dict):
            raise InvalidField(f"{what} is no JSON object: {data!r:.200}")
        self._data: dict[str, Any] = data
        self._what = what

    def text(self, name: str) -> str:
        """A string, without control characters and of bounded length; missing: empty."""
        value: str = self._get(name, str, "")
        return printable(value, LONGEST_TEXT)

    def number(self, name: str) -> int:
        value: int = self._get(name, int, 0)
        return value

    def flag(self, name: str) -> bool:
        value: bool = self._get(name, bool, False)
        return value

    def objects(self, name: str) -> list[JsonReader]:
        """A list of objects; missing: empty."""
        return [JsonReader(item, f"{self._what}.{name}[{n}]")
                for n, item in enumerate(self.items(name))]

    def items(self, name: str) -> list[Any]:
        """A list of anything; missing: empty."""
        found: list[Any] = self._get(name, list, [])
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, each as by :meth:`text`; missing: empty."""
        return tuple(printable(each, LONGEST_TEXT) for each in self._items(name, str))

    def flags(self, name: str) -> tuple[bool, ...]:
        return self._items(name, bool)

    def object(self, name: str) -> JsonReader:
        return JsonReader(self._get(name, dict, {}), f"{self._what}.{name}")

    def mapping(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._get(name, dict, {})
        return found

    def build(self, kind: Callable[..., T], **given: Any) -> T:
        """Build a dataclass from the fields of the same names; ``given`` overrides them."""
        read: dict[Any, Callable[[str], object]] = {
            "str": self.text, "int": self.number, "bool": self.flag}
        for name, of_type in _fields_of(kind):
            if name not in given:
                given[name] = read[of_type](name)
        return kind(**given)

    def has(self, name: str) -> bool:
        """True if the field is present and not null."""
        return self._data.get(name) is not None

    def _items(self, name: str, kind: type) -> tuple[Any, ...]:
        found = self.items(name)
        if not all(isinstance(item, kind) for item in found):
            raise InvalidField(f"{self._what}.{name} is {found!r:.200}")
        return tuple(found)

    def _get(self, name: str, kind: type, default: Any) -> Any:
        value = self._data.get(name)
        if value is None:
            return default
        # JSON's true is an int in Python.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidField(f"{self._what}.{name} is {value!r:.200}")
        return value
