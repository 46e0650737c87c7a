"""How findings are printed: as a table or as JSON."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence

from nsqclient.cli.colors import GREEN, RED, YELLOW, paint
from nsqclient.doctor.findings import Finding, Severity, in_order, summary

#: Columns of a line where the width of the terminal is not known, and at least.
_WIDE, _NARROW = 120, 60
_HEADER = ("", "CHECK", "WHERE", "FINDING")
_COLORS = {Severity.OK: GREEN, Severity.WARNING: YELLOW, Severity.ERROR: RED}


def as_table(findings: Sequence[Finding], colored: bool = False) -> str:
    """Make a table; errors come last, where a terminal shows them, each with its hint."""
    width = max(_NARROW, shutil.get_terminal_size((_WIDE, 24)).columns)
    rows = in_order(findings)
    cells = [_HEADER, *((row.severity.value, row.check, row.where, row.text) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    widths[2] = min(widths[2], width // 3)
    margin = sum(widths) + 6
    lines = _row(cells[0], widths, width)
    for finding, cell in zip(rows, cells[1:]):
        row = _row(cell, widths, width)
        if colored:
            word = finding.severity.value
            row[0] = row[0].replace(word, paint(word, _COLORS[finding.severity]), 1)
        lines += row
        if finding.hint:
            lines += textwrap.wrap(
                finding.hint, width, initial_indent=" " * margin + "-> ",
                subsequent_indent=" " * (margin + 3), break_long_words=False,
                break_on_hyphens=False)
        if finding.command:  # never wrapped: it is copied into a shell
            lines.append(f"{' ' * margin}$ {finding.command}")
    return "\n".join(line.rstrip() for line in [*lines, "", summary(findings)]) + "\n"


def _row(cells: Sequence[str], widths: list[int], width: int) -> list[str]:
    margin = sum(widths) + 6
    head = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths)) + "  "
    text = textwrap.wrap(cells[3], max(20, width - margin), break_long_words=False,
                         break_on_hyphens=False) or [""]
    if len(head) > margin:  # a long address has a line of its own
        return [head.rstrip(), *(" " * margin + line for line in text)]
    return [head + text[0], *(" " * margin + line for line in text[1:])]


def as_json(findings: Sequence[Finding]) -> str:
    """Make a JSON object."""
    return json.dumps({
        "summary": summary(findings),
        "findings": [
            {**finding._asdict(), "severity": finding.severity.value.lower()}
            for finding in findings
        ],
    }) + "\n"
