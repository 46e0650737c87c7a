"""The examples: they end well, and what their authors write is short."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT

#: Example -> what its author writes. The rest starts servers, or is generated.
FILES = {
    "django_outbox": ["settings", "models", "views", "handlers", "urls"],
    "flask_thumbnails": ["app"], "drain_to_csv": ["export"], "handler_tests": ["mailer"],
}
LONGEST = 40
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENDMARKER}


def own_lines(path: Path) -> int:
    """Count the lines with code: without comments, docstrings and empty lines."""
    source = path.read_text(encoding="utf-8")
    docs: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node):
            docs |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - docs)


@pytest.mark.parametrize("example", FILES)
def test_the_author_of_an_example_writes_at_most_forty_lines(example: str) -> None:
    files = [path for path in (ROOT / "examples" / example).rglob("*.py")
             if path.stem in FILES[example]]
    assert len(files) == len(FILES[example])
    assert 10 < sum(map(own_lines, files)) <= LONGEST


def run(example: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example / "run.py")], capture_output=True,
        text=True, timeout=110, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_job_appends_every_order_of_two_nights() -> None:
    assert run("drain_to_csv").splitlines() == [
        "night 1: 500 rows, 500 orders", "night 2: 1000 rows, 1000 orders"]


def test_the_tests_of_a_handler_pass() -> None:
    assert "4 passed" in run("handler_tests")
