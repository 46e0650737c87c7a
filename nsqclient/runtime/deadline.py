"""Durations, and deadlines that several steps share."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Union

from nsqclient.errors import ConfigError

#: A duration in the API: seconds, or a timedelta.
Duration = Union[int, float, timedelta]


#: The longest duration in seconds, 30 million years. It can be converted to nanoseconds and added
#: to other times.
LONGEST = 1e15


def to_seconds(value: object, name: str, *, minimum: float = 0.0) -> float:
    """Return a finite duration from ``minimum`` to ``LONGEST``, in seconds. Raises ConfigError."""
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
    if abs(seconds) > LONGEST:
        raise ConfigError(f"{name} of {seconds:g} s must be at most {LONGEST:g} s")
    if seconds < minimum:
        raise ConfigError(f"{name} of {seconds:g} s must be at least {minimum:g} s")
    return seconds


# Both signs for micro: U+00B5 and the Greek letter U+03BC.
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3}
_GO_UNITS |= {"s": 1.0, "m": 60.0, "h": 3600.0}
# Each digit can be matched in one way only; otherwise thousands of digits would take hours.
_GO_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as ``-1.5s`` or ``1h30m``. Raises ConfigError."""
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


_SMALL_UNITS = (("ms", 1e3), ("\u00b5s", 1e6), ("ns", 1e9))


def format_duration(seconds: float) -> str:
    """Format a duration as Go does: ``1h30m0s``, ``2.5s``, ``250ms``, ``0s``."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if 0 < seconds < 1:
        for unit, factor in _SMALL_UNITS:
            if seconds * factor >= 1 or unit == "ns":
                return _decimal(seconds * factor, 6) + unit
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    text = _decimal(whole % 60 + (seconds - whole), 9) + "s"
    if whole >= 60:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


class Deadline:
    """A point in time, computed from a timeout. None: no limit. Immutable. Threads: any."""

    __slots__ = ("timeout", "until")

    def __init__(self, timeout: float | None) -> None:
        #: The whole timeout, for errors.
        self.timeout: float | None = timeout
        #: On time.monotonic(); ``inf`` if there is no timeout or it exceeds TIMEOUT_MAX.
        self.until: float = math.inf
        if timeout is not None and timeout <= threading.TIMEOUT_MAX:
            self.until = time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds left, 0 or more; None without a limit."""
        return None if self.until == math.inf else max(0.0, self.until - time.monotonic())

    def expired(self) -> bool:
        return time.monotonic() >= self.until

    def at_most(self, timeout: float) -> float:
        """Seconds left, but not more than ``timeout``."""
        left = self.remaining()
        return timeout if left is None else min(left, timeout)

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Check every 0.01 s until ``is_true()`` or the deadline."""
        while not (is_true() or self.expired()):
            time.sleep(self.at_most(0.01))

    def __repr__(self) -> str:
        return f"<Deadline {self.timeout} s, {self.remaining()} s left>"
