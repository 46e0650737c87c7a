"""``Finding``: one thing that was looked at, how it is, and what to do."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from nsqclient.display import printable, without_password


class Verdict(Enum):
    """How it is."""

    OK = "ok"
    WARNING = "warning"  #: may be meant so
    WRONG = "WRONG"  #: messages will not flow, or not well, until it is mended


class Finding(NamedTuple):
    """One row of the table."""

    verdict: Verdict
    check: str  #: what was looked at: "nsqd", "topic", "clock", ...
    where: str  #: an address, or a topic and channel
    text: str
    advice: str = ""


def ok(check: str, where: str, text: str) -> Finding:
    """It is as it should be."""
    return _finding(Verdict.OK, check, where, text)


def warning(check: str, where: str, text: str, advice: str) -> Finding:
    """It may be meant so."""
    return _finding(Verdict.WARNING, check, where, text, advice)


def wrong(check: str, where: str, text: str, advice: str) -> Finding:
    """It has to be mended."""
    return _finding(Verdict.WRONG, check, where, text, advice)


def _finding(verdict: Verdict, check: str, where: str, text: str, advice: str = "") -> Finding:
    # The table is copied into tickets: an address shows no password.
    return Finding(verdict, check, _shown(where), _shown(text), _shown(advice))


def _shown(text: str) -> str:
    return without_password(printable(text))
