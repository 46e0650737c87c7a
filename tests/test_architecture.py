"""Rules about the code itself: sizes, docstrings, imports, no sleeping in tests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nsqclient

CHECKOUT = Path(__file__).resolve().parent.parent
MODULES = sorted((CHECKOUT / "nsqclient").rglob("*.py"))
TEST_FILES = sorted((CHECKOUT / "tests").rglob("*.py"))
#: A module is as long as its one subject; one that passes this has more than one.
LONGEST_MODULE = 800

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _name(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def _public_definitions(body: list[ast.stmt], prefix: str = "") -> list[tuple[str, Definition]]:
    """Return public classes and functions, and the public methods of public classes."""
    found: list[tuple[str, Definition]] = []
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        found.append((prefix + node.name, node))
        if isinstance(node, ast.ClassDef):
            found += _public_definitions(node.body, f"{prefix}{node.name}.")
    return found


def _is_overload_or_setter(node: Definition) -> bool:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name == "overload" or name.endswith(".setter") for name in decorators)


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_module_is_short(path):
    """A module has one subject."""
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST_MODULE, f"{_name(path)} has {lines} lines"


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_module_and_public_names_have_docstrings(path):
    """Every module says what lives there, every public name what it does."""
    tree = ast.parse(path.read_text())
    missing = [] if ast.get_docstring(tree) else ["the module"]
    missing += [
        name
        for name, node in _public_definitions(tree.body)
        if not ast.get_docstring(node) and not _is_overload_or_setter(node)
    ]
    assert not missing, f"no docstring in {_name(path)}: {', '.join(missing)}"


def _sleeps(tree: ast.Module) -> list[int]:
    """Return the lines that call time.sleep, or import it."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep")
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and any(alias.name == "sleep" for alias in node.names)
        )
    ]


@pytest.mark.parametrize("path", TEST_FILES, ids=_name)
def test_tests_do_not_sleep(path):
    """Tests wait for conditions; a sleep is too long on one machine and too short on another."""
    lines = _sleeps(ast.parse(path.read_text()))
    assert not lines, f"time.sleep in {_name(path)}, lines {lines}"


def test_public_names_exist():
    """Everything the package promises can be imported from it."""
    missing = [name for name in nsqclient.__all__ if not hasattr(nsqclient, name)]
    assert not missing


def test_import_contract_holds():
    """Imports point down, and pure rooms know no socket, thread or clock."""
    pytest.importorskip("importlinter", reason="import-linter comes with the lint extra")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


#: Modules of the client that may use what enters its lock in Python code, and why.
CONDITIONS_ALLOWED = {
    "nsqclient/runtime/bell.py": "the ticker's own; close() comes from nsq-closer",
    "nsqclient/contrib/reloading.py": "the loop of a command, on a thread that signals end",
    "nsqclient/contrib/statsd.py": "its thread's; a program closes it once, at its end",
}
#: Programs of their own, servers, and what runs in processes of Spark: not the client.
NOT_THE_CLIENT = ("admin", "cli", "devserver", "spark")


def _python_locks(tree: ast.Module) -> list[int]:
    """Return the lines that name one of ``threading`` or ``queue`` that is Python code."""
    names = {"Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
    return [
        node.lineno for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in names
            and ast.unparse(node.value) == "threading")
        or (isinstance(node, ast.ImportFrom) and node.module == "threading"
            and any(alias.name in names for alias in node.names))
        or (isinstance(node, (ast.Import, ast.ImportFrom)) and "queue" in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module]))
    ]


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_no_lock_of_the_client_is_entered_in_python_code(path):
    """An exception from a signal handler would leave it taken; Monitor has none of these."""
    inside = path.relative_to(CHECKOUT / "nsqclient")
    if inside.parts[0] in NOT_THE_CLIENT:
        return
    lines = _python_locks(ast.parse(path.read_text()))
    assert bool(lines) == (_name(path) in CONDITIONS_ALLOWED), f"{_name(path)}, lines {lines}"
