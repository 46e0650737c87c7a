"""``StartPosition`` and ``HeaderFilter``: which messages a consumer of partitions reads.

A position is written ``kind:value``, as in SUB_ADVANCED and ``/channel/setoffset``. Filters are
checked here, because nsqd ignores an invalid one and delivers every message.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nsqclient.errors import ConfigError
from nsqclient.protocol.partitioned.extensions import is_whole_number

EQUAL, REGEXP, GLOB, MULTI = 1, 2, 3, 4
ANY, ALL = "any", "all"

#: nsqd reads a key as a GJSON path, in which other characters are special.
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_OFFSET, _TIMESTAMP, _COUNT, _SPECIAL = "virtual_queue", "timestamp", "msgcount", "special"
#: The only value of ``special``: after the last message.
_END = -1
_MAX_VALUE = 2**63 - 1
#: Seconds in the year 5138. A larger number is in milliseconds.
_TOO_MANY_SECONDS = 10**11


@dataclass(frozen=True)
class StartPosition:
    """Where reading a partition begins. Create it with one of the four class methods.

    Raises:
        ConfigError: the position is invalid.
    """

    kind: str  #: the word on the wire
    value: int

    def __post_init__(self) -> None:
        high = _END if self.kind == _SPECIAL else _MAX_VALUE
        if self.kind not in (_OFFSET, _TIMESTAMP, _COUNT, _SPECIAL):
            raise ConfigError(
                f"start position {self.kind!r}: use StartPosition.offset(), timestamp(), count()"
                " or end()"
            )
        if not (self.value == high == _END or is_whole_number(self.value, high)):
            raise ConfigError(
                f"start position {self.kind}: a whole number from 0, not {self.value!r}")

    @classmethod
    def offset(cls, offset: int) -> StartPosition:
        """The message at this offset: bytes from the start of the partition's queue.

        Use ``message.offset`` of a message, or ``message.offset + message.size`` for the
        next message; 0 is the oldest message.
        """
        return cls(_OFFSET, offset)

    @classmethod
    def timestamp(cls, timestamp: float | datetime) -> StartPosition:
        """The first message that was published at this time or later.

        Args:
            timestamp: seconds since the epoch, or a datetime with a time zone. nsqd uses whole
                seconds.
        """
        if isinstance(timestamp, datetime):
            if timestamp.tzinfo is None:
                raise ConfigError(f"start position {timestamp!r}: give a datetime with a time zone")
            timestamp = timestamp.timestamp()
        if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)) or not (
            math.isfinite(timestamp) and 0 <= timestamp
        ):
            raise ConfigError(
                f"start position: seconds since the epoch or a datetime, not {timestamp!r}")
        if timestamp >= _TOO_MANY_SECONDS:
            raise ConfigError(
                f"start position {timestamp!r}: give seconds since the epoch, not milliseconds")
        return cls(_TIMESTAMP, math.floor(timestamp))

    @classmethod
    def count(cls, count: int) -> StartPosition:
        """The message after the first ``count`` messages of the partition's queue."""
        cls(_COUNT, count)  # checks it
        return cls(_COUNT, count + 1)  # nsqd counts from 1, and takes 0 as 1

    @classmethod
    def end(cls) -> StartPosition:
        """After the last message: only messages published from now on."""
        return cls(_SPECIAL, _END)

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}"


@dataclass(frozen=True)
class HeaderFilter:
    """Selects the messages to deliver. nsqd finishes the others without sending them.

    Create it with one of the class methods. They compare only values that are strings: a value of
    another type counts as missing, and a message without headers does not match. ``inverse``
    delivers the messages that do not match, including those without headers.

    Raises:
        ConfigError: nsqd could not use the filter.
    """

    mode: int  #: ``type`` on the wire
    rules: tuple[tuple[str, str], ...]  #: (key, value or pattern); several only with MULTI
    relation: str = ""  #: "any" or "all" of the rules, only with MULTI
    inverse: bool = False

    def __post_init__(self) -> None:
        if not self.rules:
            raise ConfigError("a header filter needs at least one key")
        for key, value in self.rules:
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                raise ConfigError(
                    f"header filter for key {key!r}: letters, digits, _ and -; nsqd takes other"
                    " characters as a path"
                )
            if not isinstance(value, str) or not value:
                raise ConfigError(
                    f"header filter for key {key!r}: a text that is not empty, not {value!r}")
            try:
                value.encode()
            except UnicodeEncodeError as exc:
                raise ConfigError(
                    f"header filter for key {key!r}: {value!r} cannot be sent as UTF-8:"
                    f" {exc.reason}") from None
        if not isinstance(self.inverse, bool):
            raise ConfigError(f"inverse must be True or False, not {self.inverse!r}")
        checks = {REGEXP: (check_regexp, "regular expression"), GLOB: (check_glob, "glob")}
        if self.mode in checks:
            check, kind = checks[self.mode]
            key, pattern = self.rules[0]
            try:
                check(pattern)
            except ValueError as exc:
                raise ConfigError(
                    f"header filter for key {key!r}: {pattern!r} is no {kind} that nsqd surely"
                    f" supports: it has {exc}") from None

    @classmethod
    def equal(cls, key: str, value: str, *, inverse: bool = False) -> HeaderFilter:
        """Messages whose header ``key`` is ``value``."""
        return cls(EQUAL, ((key, value),), inverse=inverse)

    @classmethod
    def regexp(cls, key: str, pattern: str, *, inverse: bool = False) -> HeaderFilter:
        """Messages whose header ``key`` contains a match of a regular expression.

        Use the syntax that Go and Python share. A missing key counts as an empty text.
        """
        return cls(REGEXP, ((key, pattern),), inverse=inverse)

    @classmethod
    def glob(cls, key: str, pattern: str, *, inverse: bool = False) -> HeaderFilter:
        """Messages whose header ``key`` matches a pattern: ``*``, ``?``, ``[a-z]``, ``{a,b}``.

        A missing key counts as an empty text.
        """
        return cls(GLOB, ((key, pattern),), inverse=inverse)

    @classmethod
    def any_of(
        cls, rules: Mapping[str, str] | Iterable[tuple[str, str]], *, inverse: bool = False
    ) -> HeaderFilter:
        """Messages with at least one of these headers. In pairs, a key may occur several times."""
        return cls(MULTI, _pairs(rules), ANY, inverse)

    @classmethod
    def all_of(
        cls, rules: Mapping[str, str] | Iterable[tuple[str, str]], *, inverse: bool = False
    ) -> HeaderFilter:
        """Messages with all of these headers."""
        return cls(MULTI, _pairs(rules), ALL, inverse)

    def identify_field(self) -> dict[str, Any]:
        field: dict[str, Any] = {"type": self.mode, "inverse": self.inverse}
        if self.mode == MULTI:
            field["filter_ext_key"] = self.relation
            field["filter_data_list"] = [
                {"filter_ext_key": key, "filter_data": value} for key, value in self.rules]
        else:
            field["filter_ext_key"], field["filter_data"] = self.rules[0]
        return field


def _pairs(rules: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    pairs = rules.items() if isinstance(rules, Mapping) else rules
    try:
        return tuple((key, value) for key, value in pairs)
    except (TypeError, ValueError):
        raise ConfigError(
            f"header filter: a dict or pairs of key and value, not {rules!r}") from None


# -- patterns, which nsqd compiles with Go's ``regexp`` (RE2) and as globs


#: Python's syntax that Go refuses, or understands in another way, as flags that are not at the
#: start; applied without escapes and sets.
_NOT_IN_GO = re.compile(
    r"\\|\(\?(?!P<|:|[imsU-]+[:)])|(?<=.)\(\?[imsU-]+\)|[*+?}]\+|\{(?:\d*,)?\d{4,}", re.DOTALL)


def check_regexp(pattern: str) -> None:
    """Raise ValueError unless a regular expression has the syntax that Go and Python share."""
    bare = re.sub(r"\\[^0-9Z]", "x", pattern, flags=re.DOTALL)
    found = _NOT_IN_GO.search(re.sub(r"\[\^?[^\]]*\]", "x", bare))
    if found is not None:
        raise ValueError(f"{found[0]}, which Go does not have there")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python may change the meaning of "[[" and "&&"
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as exc:
        raise ValueError(str(exc)) from None


#: One character of a glob, or a set: [abc], or one range [a-z].
_IN_SET = r"[^\[\]{}!\\,*?-]"
_GLOB_PART = rf"(?:\\.|[^\[\]{{}}\\,]|\[!?(?:{_IN_SET}-{_IN_SET}|{_IN_SET}+)\])"
_GLOB = re.compile(
    rf"(?:{_GLOB_PART}|,|\{{{_GLOB_PART}+(?:,{_GLOB_PART}+)*\}})*", re.DOTALL)


def check_glob(pattern: str) -> None:
    """Raise ValueError for a glob that nsqd may not be able to compile.

    It has ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[!a-z]``, ``{a,b}``, ``\\*``.
    """
    found = _GLOB.match(pattern)
    end = 0 if found is None else found.end()
    if end < len(pattern):
        raise ValueError(f"{pattern[end:end + 8]}: brackets are [abc] or one range [a-z], braces"
                         " {a,b} are not nested or empty, and \\ is before a character")
    for first, last in re.findall(r"\[!?(.)-(.)\]", pattern):
        if first >= last:
            raise ValueError(f"the empty range {first}-{last}")
