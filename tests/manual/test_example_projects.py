"""The example projects are short: what their author writes, without what commands generate."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT

#: Project -> its files; manage.py, wsgi.py and migrations are Django's.
PROJECTS = {
    "django_outbox": ["settings", "models", "views", "handlers", "urls"],
    "flask_thumbnails": ["app"],
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


@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_has_forty_lines_of_its_author(project: str) -> None:
    """The rest of its folder starts servers, or is generated."""
    files = [path for path in (ROOT / "examples" / project).rglob("*.py")
             if path.stem in PROJECTS[project]]
    assert len(files) == len(PROJECTS[project])
    assert sum(map(own_lines, files)) <= LONGEST
