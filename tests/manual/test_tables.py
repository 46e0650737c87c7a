"""Tables of the manual: a row of the source is an entry, not a piece of one.

In a simple table, each line that has text in its first column begins a row. An entry whose first
column continues on the next line becomes two rows of the page.
"""

import re
from typing import NamedTuple

import pytest

from tests.support.docs.pages import PAGES, read

_BORDER = re.compile(r"=+(?: +=+)+")
#: Words that end no entry.
_DANGLING = re.compile(
    r"(?:,|(?:^|\s)(?:a|an|the|its|their|and|or|nor|but|of|in|at|by|to|from|for|with"
    r"|between|as|than|that|which|if|when|while|because|is|are|be|each))$")


class Row(NamedTuple):
    """A row of a simple table: its first line in the text, counted from 1, and its cells."""

    line: int
    cells: list[str]


def simple_tables(text: str) -> list[list[Row]]:
    """Return the rows of each simple table, without its head."""
    tables: list[list[Row]] = []
    spans: list[tuple[int, int]] = []  # of the table that is being read
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if _BORDER.fullmatch(line.strip()):
            if not spans:
                spans = [match.span() for match in re.finditer("=+", line)]
                tables.append([])
            elif number == len(lines) or not lines[number].strip():
                spans = []
            else:
                tables[-1].clear()  # what was read was the head
        elif spans and line.strip():
            starts = [start for start, _ in spans]
            cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None])]
            if cells[0] or not tables[-1]:
                tables[-1].append(Row(number, cells))
            else:
                old = tables[-1][-1]
                joined = [" ".join(filter(None, pair)) for pair in zip(old.cells, cells)]
                tables[-1][-1] = Row(old.line, joined)
    return tables


def pieces(text: str) -> list[int]:
    """Return the lines of rows that are, or are followed by, a piece of an entry."""
    return [row.line for table in simple_tables(text) for row in table
            if not any(row.cells[1:]) or any(_DANGLING.search(cell) for cell in row.cells)]


def test_pages_have_simple_tables() -> None:
    """Else the test below would look at nothing."""
    assert sum(len(simple_tables(read(page))) for page in PAGES) > 20


@pytest.mark.parametrize("page", PAGES)
def test_each_row_is_an_entry(page: str) -> None:
    """If the first column needs two lines, use a list-table."""
    assert pieces(read(page)) == []
