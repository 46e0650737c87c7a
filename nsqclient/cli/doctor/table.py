"""Shows findings: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence

from nsqclient.cli.doctor.findings import Finding, Verdict

#: Columns that a line has where the width of the terminal is not known, and at least.
_WIDE, _NARROW = 120, 60
_HEADER = ("", "CHECK", "WHERE", "FINDING")


def as_table(findings: Sequence[Finding]) -> str:
    """Make a table: what is wrong stands last, where a terminal shows it, with what to do."""
    width = max(_NARROW, shutil.get_terminal_size((_WIDE, 24)).columns)
    order = [Verdict.OK, Verdict.WARNING, Verdict.WRONG]
    rows = sorted(findings, key=lambda finding: order.index(finding.verdict))
    cells = [_HEADER, *((row.verdict.value, row.check, row.where, row.text) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    widths[2] = min(widths[2], width // 3)
    margin = sum(widths) + 6
    lines = _row(cells[0], widths, width)
    for finding, cell in zip(rows, cells[1:]):
        lines += _row(cell, widths, width)
        if finding.advice:
            lines += textwrap.wrap(
                finding.advice, width, initial_indent=" " * margin + "-> ",
                subsequent_indent=" " * (margin + 3), break_long_words=False,
                break_on_hyphens=False)
    return "\n".join(line.rstrip() for line in [*lines, "", summary(findings)]) + "\n"


def _row(cells: Sequence[str], widths: list[int], width: int) -> list[str]:
    margin = sum(widths) + 6
    head = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths)) + "  "
    text = textwrap.wrap(cells[3], max(20, width - margin), break_long_words=False,
                         break_on_hyphens=False) or [""]
    if len(head) > margin:  # a long address has a line of its own
        return [head.rstrip(), *(" " * margin + line for line in text)]
    return [head + text[0], *(" " * margin + line for line in text[1:])]


def summary(findings: Sequence[Finding]) -> str:
    """Say in one line how it is."""
    wrong = sum(finding.verdict is Verdict.WRONG for finding in findings)
    warnings = sum(finding.verdict is Verdict.WARNING for finding in findings)
    if not wrong and not warnings:
        return "all is well"
    return f"{wrong} to mend, {warnings} to look at"


def as_json(findings: Sequence[Finding]) -> str:
    """Make a JSON object."""
    return json.dumps({
        "summary": summary(findings),
        "findings": [
            {**finding._asdict(), "verdict": finding.verdict.value.lower()}
            for finding in findings
        ],
    }) + "\n"
