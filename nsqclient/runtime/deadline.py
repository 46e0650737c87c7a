"""One budget of time that many steps share."""

from __future__ import annotations

import math
import re
import threading
import time
from datetime import timedelta
from typing import Union

from nsqclient.errors import ConfigError

#: How durations are given in the API: seconds, or a timedelta.
Duration = Union[int, float, timedelta]


def to_seconds(value: object, name: str, *, minimum: float = 0.0) -> float:
    """Return a duration in seconds.

    Raises:
        ConfigError: ``value`` is no number or timedelta, is not finite, or is under ``minimum``.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    else:
        raise ConfigError(
            f"{name} must be a number of seconds or a timedelta, not {type(value).__name__}"
        )
    if not math.isfinite(seconds):
        raise ConfigError(f"{name} of {seconds:g} s must be a finite number")
    if seconds < minimum:
        raise ConfigError(f"{name} of {seconds:g} s must be at least {minimum:g} s")
    return seconds


# Both signs for micro: U+00B5 and the Greek letter U+03BC.
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3}
_GO_UNITS |= {"s": 1.0, "m": 60.0, "h": 3600.0}
# No digit can be matched in two ways: thousands of them would take hours.
_GO_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as ``300ms``, ``1.5s``, ``-1s`` or ``1h30m``.

    Raises:
        ConfigError: it is not one; a bare number has no unit and only ``0`` is accepted.
    """
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total, pos = 0.0, 0
    while part := _GO_PART.match(rest, pos):
        total += float(part[1]) * _GO_UNITS[part[2]]
        pos = part.end()
    if not rest or pos != len(rest):
        raise ConfigError(f"{text!r} is not a duration: write it as in 300ms, 1.5s, 2m or 1h30m")
    return sign * total


class Deadline:
    """A point in time made from a timeout; ``None`` means no limit. Immutable, any thread."""

    __slots__ = ("timeout", "began", "_at")

    def __init__(self, timeout: float | None) -> None:
        #: The seconds that were asked for; errors name this total, not what was left.
        self.timeout = timeout
        #: When it was made, on time.monotonic().
        self.began = began = time.monotonic()
        self._at = None
        if timeout is not None and timeout <= threading.TIMEOUT_MAX:
            self._at = began + timeout  # what no lock can wait for is no limit

    def remaining(self) -> float | None:
        """Seconds left, never negative; None without a limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def expired(self) -> bool:
        """Tell whether no time is left."""
        return self._at is not None and time.monotonic() >= self._at

    def at_most(self, timeout: float) -> float:
        """Seconds left, but not more than ``timeout``."""
        left = self.remaining()
        return timeout if left is None else min(left, timeout)

    def __repr__(self) -> str:
        return f"<Deadline {self.timeout} s, {self.remaining()} s left>"
