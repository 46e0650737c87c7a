"""Docs, comments, docstrings, names and texts use the common terms, and not words of our own."""

import re
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT

#: A word, and what to write instead.
WORDS = (
    (r"rooms?", "module, package, space"),
    (r"(ware)?houses?", "package"),
    (r"verdicts?", "outcome, result"),
    (r"(dis)?honest(ly|y)?", "leave it out"),
    (r"company|companies|crowds?", "group, group commit"),
    (r"travel(s|led|ling)?", "is sent, is written"),
    (r"(?<!round )(?<!round-)(?<!round_)trips?", "write, request"),
    (r"bells?|rings?|rung|rang", "wake-up, wake"),
    (r"chores?", "background task"),
    (r"troubles?", "failure, fault, error"),
    (r"guilty", "rejected, failed"),
    (r"(?<!\.)tells?|told|telling", "reports, shows, returns; distinguish"),
    (r"one[ _]+(?:#:? +)?that", "the noun: a connection that, an nsqd that"),
    (r"in[ _]+peace", "without interruption"),
    (r"for[ _]+good", "permanently, forever"),
    (r"given[ _]+up[ _]+and[ _]+gone", "dropped"),
    (r"who|whom", "a caller that, the thread that"),
)
#: A word ends where an underscore begins: names of functions and tests count.
PATTERN = re.compile(
    r"(?<![A-Za-z])(?:" + "|".join(f"(?P<w{n}>{word})" for n, (word, _) in enumerate(WORDS))
    + r")(?![A-Za-z])", re.IGNORECASE)
#: Lines that may have such a word, by a part of them: quotations, and former names.
ALLOWED = ("``nsqclient doctor --json``: ``verdict``", "threads ``nsq-chores-N``",
           "spark.sql.warehouse.dir", "spark.sql.catalog.lake.warehouse")
TEST_FOLDERS = sorted(path for path in (ROOT / "tests").iterdir() if path.name[0] != "_")
#: What is searched: files, and folders with what is below them.
SEARCHED = (
    "README.rst", "CHANGELOG.rst", "Makefile", "setup.cfg", ".ci", "docs", "examples", "benchmarks",
    "tools", "nsqclient", "pyspark_nsq", *(str(path.relative_to(ROOT)) for path in TEST_FOLDERS),
)
SUFFIXES = {".py", ".rst", ".cfg", ".go", ".toml", ".yaml", ".html", ".js", ".css", ""}


def files(place: str) -> list[Path]:
    path = ROOT / place
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [file for file in found if file.is_file() and file.suffix in SUFFIXES
            and not {"_build", "__pycache__"} & set(file.parts) and file != Path(__file__)]


def complaints(text: str, name: str) -> list[str]:
    """Return each use of a word in the list, also where a line ends in the middle of it."""
    lines = text.split("\n")
    found = []
    for use in PATTERN.finditer(text.replace("\n", " ")):
        number = text.count("\n", 0, use.start())
        if not any(allowed in lines[number] for allowed in ALLOWED):
            _, instead = WORDS[int(str(use.lastgroup)[1:])]
            found.append(f"{name}:{number + 1}: {use[0]!r}: write {instead}")
    return found


@pytest.mark.parametrize("place", SEARCHED)
def test_no_private_word_is_used(place: str) -> None:
    found = [line for file in files(place) if file.is_file()
             for line in complaints(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))]
    assert found == []
