"""The names of files, and when one ends and the next begins. Pure: ``now`` is an argument.

The names come from the tokens of ``--filename-format`` and ``--datetime-format``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import NamedTuple

from nsqclient.cli.flags import CommandLineError
from nsqclient.display import counted

#: The codes that the original knows; all others are literal text.
_CODES = re.compile("%[BbmAadHIMSYypZz%]")


def format_datetime(text: str, at: time.struct_time) -> str:
    """Fill the ``%`` codes of ``--datetime-format`` in; in English, as Python sets no locale."""
    return _CODES.sub(lambda code: time.strftime(code[0], at), text)


class FileNames:
    """The names of one topic's files, each with its ``<REV>`` left open.

    Args:
        text: the ``--filename-format``.
        datetime_format: the ``--datetime-format``.
        needs_rev: whether several files may want one name; else every ``<REV>`` is removed.
        suffix: what the name must end with, such as ``.gz``; may be empty.

    Raises:
        CommandLineError: ``<REV>`` is needed and missing.
    """

    def __init__(
        self, text: str, datetime_format: str, *, topic: str, hostname: str, host_identifier: str,
        pid: int, needs_rev: bool, suffix: str,
    ) -> None:
        if needs_rev and "<REV>" not in text:
            raise CommandLineError(
                "missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
        short = hostname.split(".")[0]
        host = host_identifier or short
        host = host.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname)
        if not needs_rev:
            text = text.replace("<REV>", "")
        text = text.replace("<TOPIC>", topic).replace("<HOST>", host).replace("<PID>", str(pid))
        self._template = text if text.endswith(suffix) else text + suffix
        self._format = datetime_format
        self._second = -1
        self._name = self._template

    def at(self, moment: float) -> str:
        """The name for a moment, in seconds since the epoch, in local time."""
        second = int(moment)
        if second != self._second and "<DATETIME>" in self._template:
            text = format_datetime(self._format, time.localtime(second))
            self._name, self._second = self._template.replace("<DATETIME>", text), second
        return self._name


class RotationRules(NamedTuple):
    """The limits of a file; 0 turns a rule off."""

    size: int = 0  #: bytes; a file that has more is full
    interval: float = 0.0  #: seconds; a file that is open for longer is old


def rotation_reason(
    former: str, opened: float, size: int, name: str, now: float, rules: RotationRules
) -> str | None:
    """Return why the next record may not go into the open file; None when it may.

    Args:
        former: its name, with ``<REV>`` left open.
        opened: when, on the clock of ``now``.
        size: bytes found at its opening and written since, before compression.
        name: the name that a file opened now would have.
    """
    if name != former:
        return f"new filename {name}"
    if 0 < rules.interval < now - opened:
        return f"{now - opened:.3f}s since last open"
    if 0 < rules.size < size:
        return f"currently {counted(size, 'byte')} (> {rules.size})"
    return None


def count_that_fit(sizes: Iterable[int], size: int, rules: RotationRules) -> int:
    """How many records go into a file of ``size`` bytes before it is full.

    A file is full when it has more than the limit, so the last record may pass it, and a file
    of exactly the limit takes one more.
    """
    count = 0
    for record in sizes:
        if 0 < rules.size < size:
            break
        size += record
        count += 1
    return count
