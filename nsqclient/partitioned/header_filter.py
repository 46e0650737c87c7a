"""``HeaderFilter``: which messages of an extended topic nsqd sends, by their JSON headers.

nsqd accepts a filter that it cannot use without an error, and applies none. So everything is
checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqclient.errors import ConfigError
from nsqclient.partitioned.filter_patterns import PatternError, check_glob, check_regexp

EQUAL, REGEXP, GLOB, MULTI = 1, 2, 3, 4
ANY, ALL = "any", "all"

#: nsqd takes a key as a path (GJSON), in which other characters have a meaning.
_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class HeaderFilter:
    """Selects the messages to deliver. nsqd finishes the others without sending them.

    Create it with one of the class methods. Each compares header values that are strings; a value
    of another type counts as missing, and a message without headers matches none. ``inverse``
    delivers the messages that do not match, including those without headers.

    Raises:
        ConfigError: nsqd could not use the filter.
    """

    mode: int  #: ``type`` on the wire
    rules: tuple[tuple[str, str], ...]  #: (key, what its value must be); several only with MULTI
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
            except PatternError as exc:
                raise ConfigError(
                    f"header filter for key {key!r}: {pattern!r} is no {kind} that nsqd surely"
                    f" supports: it has {exc}") from None

    @classmethod
    def equal(cls, key: str, value: str, *, inverse: bool = False) -> HeaderFilter:
        """Messages whose header ``key`` is ``value``."""
        return cls(EQUAL, ((key, value),), inverse=inverse)

    @classmethod
    def regexp(cls, key: str, pattern: str, *, inverse: bool = False) -> HeaderFilter:
        """Messages whose header ``key`` contains a match of a regular expression of Go (RE2).

        A missing key counts as an empty text.
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
        """Return ``ext_filter`` of IDENTIFY."""
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
