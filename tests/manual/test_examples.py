"""The examples of batch jobs and of tests: they end well, and their own lines are few."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT

#: What a reader writes; the rest of the example starts servers.
OWN_LINES = [("drain_to_csv/export.py", 40), ("handler_tests/mailer.py", 40),
             ("handler_tests/test_mailer.py", 40)]


def own_lines(path: Path) -> int:
    """Count the lines that are neither empty, nor a comment, nor the docstring of the module."""
    text = path.read_text("utf-8")
    first = ast.parse(text).body[0]
    lines = text.splitlines()[first.end_lineno or 0:]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


@pytest.mark.parametrize("name, most", OWN_LINES)
def test_the_lines_of_the_user_are_few(name: str, most: int) -> None:
    """Without servers, which are there already."""
    assert 10 < own_lines(ROOT / "examples" / name) <= most


def run(example: str) -> str:
    """Run an example; return what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example / "run.py")], capture_output=True,
        text=True, timeout=110, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_job_appends_every_order_of_two_nights() -> None:
    """What is no order is skipped."""
    assert run("drain_to_csv").splitlines() == [
        "night 1: 500 rows, 500 orders", "night 2: 1000 rows, 1000 orders"]


def test_the_tests_of_a_handler_pass() -> None:
    """With the fixtures that pytest knows once nsqclient is installed."""
    assert "4 passed" in run("handler_tests")
