"""Reads the pages of the manual: blocks of code and the rows of tables."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
#: Every page, as a path from the root of the checkout.
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.rst"), *ROOT.glob("docs/**/*.rst"), *ROOT.glob("benchmarks/*.rst")]
    if "_build" not in path.parts
)

_DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. code-block:: (?P<language>\w+)\n"
    r"(?P<options>(?:(?P=indent)   :.*\n)*)\n"
    r"(?P<text>(?:(?P=indent)   .*\n|[ ]*\n)+)",
    re.MULTILINE,
)
_LITERAL = re.compile(
    r"^(?P<indent> *)(?!\.\. )[^\s].*::\n\n(?P<text>(?:(?P=indent) +.*\n|[ ]*\n)+)", re.MULTILINE
)


class Block(NamedTuple):
    """A block of code: where it stands, its language ("" for a plain one), its mark, its text."""

    page: str
    line: int
    language: str
    mark: str
    text: str

    @property
    def where(self) -> str:
        """Return page and line, for messages and ids of tests."""
        return f"{self.page}:{self.line}"


def read(page: str) -> str:
    """Return the source of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str | None = None) -> list[Block]:
    """Return the blocks of a page in order, plain ones too; or those of one language."""
    source = read(page)
    found = []
    for match in [*_DIRECTIVE.finditer(source), *_LITERAL.finditer(source)]:
        values = match.groupdict()
        mark = re.search(r":class: (.+)", values.get("options") or "")
        found.append(Block(
            page, source.count("\n", 0, match.start()) + 1, values.get("language") or "",
            mark[1] if mark else "", textwrap.dedent(values["text"]),
        ))
    found.sort(key=lambda block: block.line)
    return [block for block in found if language is None or block.language == language]


def commands(block: Block) -> list[str]:
    """Return the commands of a console block, continued lines joined, without the prompt."""
    text = block.text.replace("\\\n", " ")
    return [" ".join(line[2:].split()) for line in text.splitlines() if line.startswith("$ ")]


def list_tables(page: str) -> list[list[list[str]]]:
    """Return the rows of each list-table of a page, each a list of cells, the head first."""
    tables = []
    for match in re.finditer(r"^\.\. list-table::\n((?: .*\n|\n)+)", read(page), re.MULTILINE):
        rows = []
        for row in re.split(r"^   \* - ?", match[1], flags=re.MULTILINE)[1:]:
            cells = re.split(r"^     - ?", row, flags=re.MULTILINE)
            rows.append([" ".join(cell.split()) for cell in cells])
        tables.append(rows)
    return tables
