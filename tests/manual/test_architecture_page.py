"""The page on architecture: the tree is the real one, and the two paths are those of the code."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest

from nsqclient import Consumer, Producer
from nsqclient.devserver import Nsqd
from tests.support.docs.pages import ROOT, blocks, list_tables

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
    """The modules at the top of the package, and all folders."""
    found = {path.name for path in PACKAGE.glob("*.py")}
    for path in PACKAGE.rglob("*"):
        inside = path.relative_to(PACKAGE)
        if path.is_dir() and not _UNLISTED & set(inside.parts) and any(path.glob("*.py")):
            found.add(f"{inside}/")
    return found


def test_the_tree_on_the_page_is_the_real_one() -> None:
    """Each folder and each module at the top has its line, and no line is left over."""
    assert shown_tree() == real_tree()


def find(name: str) -> object:
    """Return the class, function or method that a name below ``nsqclient`` means."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path = PACKAGE.joinpath(*parts[:length]).with_suffix(".py")
        if path.is_file():
            found: object = importlib.import_module(".".join(["nsqclient", *parts[:length]]))
            for part in parts[length:]:
                found = getattr(found, part)
            return found
    raise LookupError(name)


def names_of(cells: Iterator[str]) -> list[str]:
    """Return the dotted names in the cells of a column."""
    return [name for cell in cells for name in re.findall(r"``([\w.]+)``", cell)]


def test_each_class_of_the_table_of_patterns_exists() -> None:
    """A class that was renamed or moved is renamed on the page too."""
    names = names_of(row[1] for row in TABLES["pattern"][1:])
    assert len(names) > 15
    assert [name for name in names if not isinstance(find(name), type)] == []


def steps(number: int) -> dict[str, CodeType]:
    """The steps of a path, each with the code that it means."""
    return {name: find(name).__code__ for name in names_of(row[0] for row in PATHS[number])}


class Calls:
    """The code that ran, each piece with the name of its thread."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, CodeType]] = set()
        self.before: set[CodeType] = set()  #: what ran before the last ``begin()``

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """A profile function."""
        if event == "call":
            self._seen.add((threading.current_thread().name, frame.f_code))

    def begin(self) -> None:
        """Set aside what ran until now: connecting, and loops that were entered."""
        self.before |= self.on("")
        self._seen = set()

    def on(self, *threads: str) -> set[CodeType]:
        """Return what ran on threads whose names begin with one of these."""
        return {code for name, code in list(self._seen) if name.startswith(threads)}


@contextmanager
def recorded() -> Iterator[Calls]:
    """Note what runs in this thread, and in those that start meanwhile."""
    calls = Calls()
    threading.setprofile(calls.note)
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def consume(nsqd: Nsqd, calls: Calls) -> set[CodeType]:
    """Handle a message on a connection that has handled one before."""
    with Consumer("events", "page", lambda message: None, nsqd_tcp_addresses=[nsqd.tcp_address]):
        for _ in range(2):
            calls.begin()
            nsqd.publish("events", b"hello")
            nsqd.wait_until_empty("events", "page")
        return calls.on("nsq-reader-", "nsq-worker")


def publish_alone(nsqd: Nsqd, calls: Calls) -> set[CodeType]:
    """Publish on a connection that has published before, with no other publish."""
    with Producer([nsqd.tcp_address]) as producer:
        for _ in range(2):
            calls.begin()
            producer.publish("events", b"hello")
        return calls.on(threading.current_thread().name)


#: For each table of steps: what takes them, and the most modules that run on the way.
ACTIONS = [(consume, 11), (publish_alone, 6)]


@pytest.mark.parametrize("number", range(len(ACTIONS)))
def test_every_step_of_a_path_is_taken(number: int) -> None:
    """What the page says happens is what happens: each method of the path is called."""
    action, most = ACTIONS[number]
    for _ in range(3):
        with Nsqd() as nsqd, recorded() as calls:
            nsqd.create_topic("events")
            seen = action(nsqd, calls)
        taken = seen | calls.before
        missing = [name for name, code in steps(number).items() if code not in taken]
        files = {Path(code.co_filename) for code in seen}
        modules = {str(file.relative_to(PACKAGE)) for file in files
                   if file.is_relative_to(PACKAGE)}
        modules.discard("runtime/lock.py")  # no step of the way: what "with" calls
        if not missing and len(modules) <= most:  # more where the machine was busy meanwhile
            break
    assert missing == []
    assert len(modules) <= most, sorted(modules)
