"""Compares a server's clock with ours, by the ``Date`` of an HTTP answer."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import requests

from nsqclient.cli.doctor.findings import Finding, ok, warning
from nsqclient.http.limits import limit

#: Seconds; the header itself is exact to one, and the answer takes its time.
_TOLERANCE = 5.0


def compare_clock(url: str, where: str, timeouts: tuple[float, float]) -> list[Finding]:
    """Ask ``url`` and compare; no finding where the server tells no time.

    Blocks: as long as ``timeouts`` (connect, answer) allow.
    """
    with requests.Session() as session:
        session.trust_env = False
        limit(session)
        try:
            # The head is enough, so the body is not read, however long it may be.
            answer = session.get(url, timeout=timeouts, allow_redirects=False, stream=True)
        except requests.RequestException:
            return []  # somebody else says why it cannot be reached
    try:
        theirs = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return []
    return [judge(theirs - time.time(), where)]


def judge(ahead: float, where: str) -> Finding:
    """Judge a server whose clock is so many seconds ahead of ours."""
    if abs(ahead) <= _TOLERANCE:
        return ok("clock", where, "agrees with ours")
    side = "ahead of" if ahead > 0 else "behind"
    return warning(
        "clock", where, f"{abs(ahead):.0f} s {side} ours",
        "run NTP on both machines: timestamps and ages of messages are wrong by as much, and"
        " certificates may seem invalid",
    )
