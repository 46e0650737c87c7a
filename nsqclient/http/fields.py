"""Reads fields out of JSON that a server sent, and says which one is not what it should be.

A field that is missing has a default, because older servers have fewer; one of the wrong type is
an error.
"""

from __future__ import annotations

from typing import Any

from nsqclient.display import LONGEST_TEXT, printable


class Malformed(Exception):
    """The JSON is not what it should be; the text says where."""


class Fields:
    """A JSON object.

    Args:
        data: what should be one.
        what: how an error calls it.

    Raises:
        Malformed: it is none.
    """

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, dict):
            raise Malformed(f"{what} is no JSON object: {data!r:.200}")
        self._data: dict[str, Any] = data
        self._what = what

    def text(self, name: str) -> str:
        """A string, without control characters and of bounded length; missing: empty."""
        value: str = self._get(name, str, "")
        return printable(value, LONGEST_TEXT)

    def number(self, name: str) -> int:
        """A whole number; missing: 0."""
        value: int = self._get(name, int, 0)
        return value

    def flag(self, name: str) -> bool:
        """A truth value; missing: false."""
        value: bool = self._get(name, bool, False)
        return value

    def fraction(self, name: str) -> float:
        """Any number; missing: 0."""
        return float(self._get(name, (int, float), 0))

    def seconds(self, name: str) -> float:
        """A duration, which is sent in nanoseconds; missing: 0."""
        return self.fraction(name) / 1e9

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; missing: empty."""
        return [Fields(item, f"{self._what}.{name}[{n}]")
                for n, item in enumerate(self.items(name))]

    def items(self, name: str) -> list[Any]:
        """A list of anything; missing: empty."""
        found: list[Any] = self._get(name, list, [])
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, each as of :meth:`text`; missing: empty."""
        return tuple(printable(each, LONGEST_TEXT) for each in self._items(name, str))

    def flags(self, name: str) -> tuple[bool, ...]:
        """A list of truth values; missing: empty."""
        return self._items(name, bool)

    def object(self, name: str) -> Fields:
        """An object; missing: one without fields."""
        return Fields(self._get(name, dict, {}), f"{self._what}.{name}")

    def mapping(self, name: str) -> dict[str, Any]:
        """An object by its keys; missing: empty."""
        found: dict[str, Any] = self._get(name, dict, {})
        return found

    def has(self, name: str) -> bool:
        """Tell whether the field is there and not null."""
        return self._data.get(name) is not None

    def _items(self, name: str, kind: type) -> tuple[Any, ...]:
        found = self.items(name)
        if not all(isinstance(item, kind) for item in found):
            raise Malformed(f"{self._what}.{name} is {found!r:.200}")
        return tuple(found)

    def _get(self, name: str, kind: type | tuple[type, ...], default: Any) -> Any:
        value = self._data.get(name)
        if value is None:
            return default
        # JSON's true is an int to Python, and no number to anybody else.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Malformed(f"{self._what}.{name} is {value!r:.200}")
        return value
