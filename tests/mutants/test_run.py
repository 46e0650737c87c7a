"""What becomes of a mutant, on a library of two lines."""

from pathlib import Path

import pytest

from tests.mutants.run import Copy, Mutant, Result, run

LIBRARY = """
def double(number):
    return number + number
"""
TESTS = """
import threading
from nsqclient import double

def test_double():
    assert double(2) == 4

def test_double_of_five():
    assert double(5) == 10

def test_nothing():
    pass

def test_that_waits():
    if double(2) != 4:
        threading.Event().wait()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout."""
    for folder, text in (("nsqclient", LIBRARY), ("tests", "")):
        (tmp_path / "root" / folder).mkdir(parents=True)
        (tmp_path / "root" / folder / "__init__.py").write_text(text)
    (tmp_path / "root" / "tests" / "test_double.py").write_text(TESTS)
    (tmp_path / "root" / "setup.cfg").write_text(
        "[tool:pytest]\naddopts = -p no:randomly -p no:nsqclient -p no:hypothesispytest\n")
    return tmp_path / "root"


def mutant(old: str = "number + number", new: str = "number * number", test: str = "test_double",
           hangs: bool = False) -> Mutant:
    return Mutant("square", "double() doubles", old, new, f"tests/test_double.py::{test}", hangs,
                  "nsqclient/__init__.py")


@pytest.mark.parametrize(("one", "result"), [
    (mutant(test="test_double_of_five"), Result.KILLED),
    (mutant(), Result.SURVIVED),  # two times two is four as well
    (mutant("number * 2"), Result.STALE),
    (mutant("number"), Result.STALE),
    (mutant(test="test_of_another_name"), Result.BROKEN),
    (mutant(new="("), Result.BROKEN),
    (mutant(new="3", test="test_that_waits"), Result.HUNG),
    (mutant(new="3", test="test_that_waits", hangs=True), Result.KILLED),
], ids=["killed", "survived", "stale", "ambiguous", "no such test", "no Python", "hung", "hangs"])
def test_a_mutant_is_killed_survives_or_is_stale(
    root: Path, tmp_path: Path, one: Mutant, result: Result
) -> None:
    copy = Copy(root, tmp_path / "copy")
    limit = 2.0 if one.new == "3" else 60.0
    assert copy.try_mutant(one, limit)[0] is result
    for folder in (root, copy.folder):
        assert (folder / "nsqclient" / "__init__.py").read_text() == LIBRARY


def test_tests_that_fail_anyway_kill_nothing(root: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    (root / "nsqclient" / "__init__.py").write_text(LIBRARY.replace("+", "-"))
    assert run([mutant("number - number")], root, tmp_path / "copies", 1, lines.append) is None
    assert "assert 0 == 4" in lines[-1]
