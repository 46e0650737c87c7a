"""The page on architecture: the tree is the real one, and the two paths are those of the code."""

import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import pytest

from nsqclient import Consumer, Producer
from nsqclient.devserver import Nsqd
from tests.support.docs.pages import ROOT, blocks, list_tables
from tests.support.profiling import calls_passed_to

PAGE = "docs/topics/architecture.rst"
PACKAGE = ROOT / "nsqclient"
TABLES = {table[0][0]: table for table in list_tables(PAGE)}
#: The tables of steps, in the order of the page.
PATHS = [table[1:] for table in list_tables(PAGE) if table[0] == ["step", "what happens"]]
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
    found = {path.name for path in PACKAGE.glob("*.py")}
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


@contextmanager
def recorded() -> Iterator[set[CodeType]]:
    called: set[CodeType] = set()

    with calls_passed_to(lambda frame: called.add(frame.f_code)):
        yield called


def consume(nsqd: Nsqd) -> None:
    """Handle a message on a connection that has handled one before."""
    with Consumer("events", "page", lambda message: None, nsqd_tcp_addresses=[nsqd.tcp_address]):
        for _ in range(2):
            nsqd.publish("events", b"hello")
            nsqd.wait_until_empty("events", "page")


def publish_alone(nsqd: Nsqd) -> None:
    """Publish on a connection that has published before, with no other publish."""
    with Producer([nsqd.tcp_address]) as producer:
        for _ in range(2):
            producer.publish("events", b"hello")


@pytest.mark.parametrize("number, action", [(0, consume), (1, publish_alone)])
def test_every_step_of_a_path_is_taken(number: int, action: Callable[[Nsqd], None]) -> None:
    steps = {name: find(name).__code__ for name in names_of(row[0] for row in PATHS[number])}
    for _ in range(3):  # on a busy machine a message may take another way
        with Nsqd() as nsqd, recorded() as called:
            nsqd.create_topic("events")
            action(nsqd)
        missing = [name for name, code in steps.items() if code not in called]
        if not missing:
            break
    assert missing == []
