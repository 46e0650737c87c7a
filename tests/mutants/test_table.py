"""The table of mutants fits the library: a change that leaves the table behind fails here."""

import ast
import functools
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.mutants.run import Mutant, mutated
from tests.mutants.table import MUTANTS
from tests.support.docs.pages import ROOT


@functools.cache
def meaning(source: str) -> str:
    """Return the same text for sources that differ in comments and blanks alone."""
    return ast.dump(ast.parse(source))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_changes_one_place_of_the_library(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text("utf-8")
    assert ast.dump(ast.parse(mutated(mutant, source))) != meaning(source)


def test_every_mutant_has_a_name_of_its_own() -> None:
    """``make hard NAME=mutants ARGS="-k NAME"`` chooses by it."""
    assert [name for name, count in Counter(m.name for m in MUTANTS).items() if count > 1] == []
    assert len(MUTANTS) >= 25


@pytest.mark.timeout(600)
def test_the_tests_of_the_table_exist() -> None:
    tests = sorted({mutant.test for mutant in MUTANTS})
    assert [test for test in tests if "::" not in test] == []
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider",
         "-n", "0", *tests],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=500, check=False)
    assert found.returncode == 0, "\n".join(
        line for line in (found.stdout + found.stderr).splitlines() if "ERROR" in line)
