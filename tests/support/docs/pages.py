"""Reads the pages of the manual, their blocks and tables, and imports files of the checkout."""

import functools
import importlib.util
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
#: Every page, as a path from the root of the checkout.
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.rst"), *ROOT.glob("docs/**/*.rst"), *ROOT.glob("benchmarks/*.rst")]
    if "_build" not in path.parts
)

_CODE_BLOCK = re.compile(r"\.\. code-block:: (\w+)$")
_MARK = re.compile(r"\.\. (runs|not run): (.+)$")


class Block(NamedTuple):
    """A block of code: its page and line, its language ("" for a plain one), its mark, its text.

    The mark is a comment before the block, or before the paragraph that ends with ``::``.
    ``.. runs: NAME``: a test takes it by this name. ``.. not run: REASON``: no test can run it.
    """

    page: str
    line: int
    language: str
    name: str
    reason: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        text = re.sub(r"\\\n\s*", "", self.text)
        return [line[2:].strip() for line in text.splitlines() if line.startswith("$ ")]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def load(path: str | Path) -> ModuleType:
    """Import a file that is in no package, such as ``tools/floors.py``."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def blocks(page: str, language: str | None = None) -> tuple[Block, ...]:
    """Return the blocks of a page in order, plain ones too; or only one language."""
    lines = read(page).splitlines()
    found, number = [], 0
    while number < len(lines):
        line = lines[number].rstrip()
        code = _CODE_BLOCK.match(line.lstrip())
        if not code and (not line.endswith("::") or line.lstrip().startswith(".. ")):
            number += 1
            continue
        end = number + 1
        while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > _indent(line)):
            end += 1
        body = lines[number + 1:end]
        while code and body and body[0].strip().startswith(":"):  # options of the directive
            body = body[1:]
        kind, value = _mark_before(lines, number)
        found.append(Block(
            page, number + 1, code[1] if code else "", value if kind == "runs" else "",
            value if kind == "not run" else "",
            textwrap.dedent("\n".join(body)).strip("\n") + "\n",
        ))
        number = end
    return tuple(block for block in found if language is None or block.language == language)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _mark_before(lines: list[str], number: int) -> tuple[str, str]:
    """Return the kind and the value of the mark above the paragraph in which a block begins."""
    while number >= 0 and lines[number].strip():
        number -= 1
    while number >= 0 and not lines[number].strip():
        number -= 1
    mark = _MARK.match(lines[number].strip()) if number >= 0 else None
    return (mark[1], mark[2]) if mark else ("", "")


def named(name: str) -> list[Block]:
    """Return the blocks that are marked ``.. runs: NAME``, in the order of the pages.

    ``tests/manual/test_blocks.py`` looks for calls of this to see that a test takes each block.
    """
    found = [block for page in PAGES for block in blocks(page) if block.name == name]
    if not found:
        raise LookupError(f"no block is marked '.. runs: {name}'")
    return found


def text_of(blocks: list[Block]) -> str:
    [block] = blocks
    return block.text


def commands_of(blocks: list[Block]) -> list[str]:
    [block] = blocks
    return block.commands


def here(text: str, addresses: Mapping[str, str]) -> str:
    """Replace the usual addresses in a text, in one pass.

    A replaced address may contain a usual one: 127.0.0.1:41615 begins with 127.0.0.1:4161.
    """
    return re.sub("|".join(map(re.escape, addresses)), lambda found: addresses[found[0]], text)


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
