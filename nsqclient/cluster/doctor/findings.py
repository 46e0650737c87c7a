"""``Finding``: the outcome of one check."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from nsqclient.display import counted, masked_address, printable, without_password


class Severity(Enum):
    OK = "ok"
    WARNING = "warning"  #: may be intended
    ERROR = "ERROR"  #: messages do not flow, or not well, until it is fixed


class Finding(NamedTuple):
    severity: Severity
    check: str  #: its name: "nsqd", "topic", "clock", ...
    where: str  #: an address, or a topic and channel
    text: str
    hint: str = ""  #: what the user can do
    command: str = ""  #: a line for a shell that does it


def _finding(
    severity: Severity, check: str, where: str, text: str, hint: str = "", command: str = ""
) -> Finding:
    # The table is copied into tickets: an address shows no password.
    return Finding(severity, check, _shown(where), _shown(text), _shown(hint), printable(command))


#: Builders of findings: (check, where, text, hint, command).
ok = partial(_finding, Severity.OK)
warning = partial(_finding, Severity.WARNING)
error = partial(_finding, Severity.ERROR)


def curl(url: str, **parameters: str) -> str:
    """Return a shell command that sends a POST, without the password of the URL."""
    query = "&".join(f"{name}={value.replace('#', '%23')}" for name, value in parameters.items())
    return f"curl -X POST {shlex.quote(f'{masked_address(url)}?{query}')}"


def _shown(text: str) -> str:
    return without_password(printable(text))


def summary(findings: Sequence[Finding]) -> str:
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in findings)
    if not errors and not warnings:
        return "no problems found"
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))
