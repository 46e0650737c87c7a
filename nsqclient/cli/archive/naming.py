"""The names of files. Pure: ``now`` is an argument.

The names come from the tokens of ``--filename-format`` and ``--datetime-format``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from nsqclient.cli.flags import CommandLineError

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

#: The codes that the original knows, in English whatever the locale; all others are literal text.
_CODES: dict[str, Callable[[time.struct_time], str]] = {
    "B": lambda t: _MONTHS[t.tm_mon - 1],
    "b": lambda t: _MONTHS[t.tm_mon - 1][:3],
    "m": lambda t: f"{t.tm_mon:02d}",
    "A": lambda t: _DAYS[t.tm_wday],
    "a": lambda t: _DAYS[t.tm_wday][:3],
    "d": lambda t: f"{t.tm_mday:02d}",
    "H": lambda t: f"{t.tm_hour:02d}",
    "I": lambda t: f"{(t.tm_hour + 11) % 12 + 1:02d}",
    "M": lambda t: f"{t.tm_min:02d}",
    "S": lambda t: f"{t.tm_sec:02d}",
    "Y": lambda t: f"{t.tm_year:04d}",
    "y": lambda t: f"{t.tm_year % 100:02d}",
    "p": lambda t: "AM" if t.tm_hour < 12 else "PM",
    "Z": lambda t: t.tm_zone,
    "z": lambda t: _offset(t.tm_gmtoff),
    "%": lambda t: "%",
}


def _offset(seconds: int) -> str:
    minutes = abs(seconds) // 60
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}{minutes % 60:02d}"


def format_datetime(text: str, at: time.struct_time) -> str:
    """Fill the ``%`` codes of ``--datetime-format`` in."""
    parts = []
    position = 0
    while position < len(text):
        code = text[position + 1:position + 2]
        if text[position] == "%" and code in _CODES:
            parts.append(_CODES[code](at))
            position += 2
        else:
            parts.append(text[position])
            position += 1
    return "".join(parts)


def make_template(
    text: str, *, topic: str, hostname: str, host_identifier: str, pid: int, needs_rev: bool,
    suffix: str,
) -> str:
    """Fill in the constant tokens: all but ``<DATETIME>`` and ``<REV>``.

    Args:
        text: the ``--filename-format``.
        needs_rev: whether several files may want one name; else every ``<REV>`` is removed.
        suffix: what the name must end with, such as ``.gz``; may be empty.

    Raises:
        CommandLineError: ``<REV>`` is needed and missing.
    """
    if needs_rev and "<REV>" not in text:
        raise CommandLineError(
            "missing <REV> in --filename-format when gzip, rotation, or work dir enabled"
        )
    short = hostname.split(".")[0]
    host = host_identifier or short
    host = host.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname)
    if not needs_rev:
        text = text.replace("<REV>", "")
    text = text.replace("<TOPIC>", topic).replace("<HOST>", host).replace("<PID>", str(pid))
    return text if text.endswith(suffix) else text + suffix


def fill_rev(name: str, rev: int) -> str:
    """Fill ``<REV>`` in."""
    return name.replace("<REV>", f"-{rev:06d}")


class FileNames:
    """The names of one topic's files, each with its ``<REV>`` left open.

    Args:
        template: from :func:`make_template`.
        datetime_format: the ``--datetime-format``.
    """

    def __init__(self, template: str, datetime_format: str) -> None:
        self._template = template
        self._format = datetime_format
        self._changes = "<DATETIME>" in template
        self._second = -1
        self._name = template

    def at(self, moment: float) -> str:
        """The name for a moment, in seconds since the epoch, in local time."""
        second = int(moment)
        if self._changes and second != self._second:
            text = format_datetime(self._format, time.localtime(second))
            self._name, self._second = self._template.replace("<DATETIME>", text), second
        return self._name


def next_rev(previous: tuple[str, int] | None, name: str) -> int:
    """The first revision to try: one more than the last for the same name, else 0."""
    return previous[1] + 1 if previous is not None and previous[0] == name else 0
