"""The page on architecture: the tree is the real one, and the classes that it names exist."""

import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from tests.support.docs.pages import ROOT, blocks, list_tables

PAGE = "docs/topics/architecture.rst"
PACKAGE = ROOT / "nsqclient"
TABLES = {table[0][0]: table for table in list_tables(PAGE)}
#: Folders without a line of their own.
_UNLISTED = {"management", "migrations", "static", "templates", "__pycache__"}


def shown_tree() -> set[str]:
    """The paths of the tree on the page; folders end with a slash."""
    [tree] = [block for block in blocks(PAGE, "text") if block.text.startswith("nsqclient/")]
    found, parents = set(), [""]
    for line in tree.text.splitlines()[1:]:
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        parents[depth:] = [name]
        found.add("".join(parents[1:depth]) + name)
    return found


def real_tree() -> set[str]:
    found = set()
    for path in PACKAGE.rglob("*"):
        inside = path.relative_to(PACKAGE)
        if path.is_dir() and not _UNLISTED & set(inside.parts) and any(path.glob("*.py")):
            found.add(f"{inside}/")
    return found


def test_the_tree_on_the_page_is_the_real_one() -> None:
    assert shown_tree() == real_tree()


def find(name: str) -> Any:
    return pkgutil.resolve_name(f"nsqclient.{name}")


def names_of(cells: Iterator[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"``([\w.]+)``", cell)]


def test_each_class_of_the_table_of_patterns_exists() -> None:
    names = names_of(row[1] for row in TABLES["pattern"][1:])
    assert len(names) > 15
    assert [name for name in names if not isinstance(find(name), type)] == []


def test_each_function_of_the_tables_of_steps_exists() -> None:
    steps = [table[1:] for table in list_tables(PAGE) if table[0] == ["step", "what happens"]]
    names = names_of(row[0] for table in steps for row in table)
    assert len(names) > 10
    assert [name for name in names if not callable(find(name))] == []
