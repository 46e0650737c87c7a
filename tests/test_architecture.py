"""Rules about the code itself: sizes, docstrings, imports, no sleeping in tests."""

import ast
import inspect
from pathlib import Path

import nsqclient

CHECKOUT = Path(__file__).resolve().parent.parent
MODULES = sorted((CHECKOUT / "nsqclient").rglob("*.py"))
TEST_FILES = sorted((CHECKOUT / "tests").rglob("*.py"))
#: A module is as long as its one subject; a longer module has more than one.
LONGEST_MODULE = 800


def _name(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def _tree(path: Path) -> ast.Module:
    # Not kept: every later garbage collection of the process would pass through all of it.
    return ast.parse(path.read_text())


def test_a_module_is_as_long_as_one_subject():
    lengths = {_name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_every_module_has_a_docstring():
    assert [_name(path) for path in MODULES if not ast.get_docstring(_tree(path))] == []


def _members(cls: type) -> list[str]:
    return [name for name, value in vars(cls).items() if not name.startswith("_")
            and (inspect.isfunction(value) or isinstance(value, (property, classmethod)))]


def test_every_name_of_the_front_door_and_its_methods_have_a_docstring():
    """An override inherits its docstring."""
    found = {name: getattr(nsqclient, name) for name in nsqclient.__all__ if name[0] != "_"}
    found |= {f"{name}.{member}": getattr(value, member) for name, value in found.items()
              if inspect.isclass(value) for member in _members(value)}
    assert [name for name, value in found.items() if not inspect.getdoc(value)] == []


def _sleeps(path: Path) -> list[int]:
    """Return the lines of a file that call time.sleep, or import it."""
    if "sleep" not in path.read_text(encoding="utf-8"):
        return []  # to parse every file takes seconds
    return [
        node.lineno
        for node in ast.walk(_tree(path))
        if (isinstance(node, ast.Attribute) and node.attr == "sleep"
            and ast.unparse(node.value) == "time")
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and any(alias.name == "sleep" for alias in node.names)
        )
    ]


def test_tests_do_not_sleep():
    """Tests wait for conditions; a sleep is too long on one machine and too short on another."""
    lines = {_name(path): _sleeps(path) for path in TEST_FILES}
    assert lines
    assert {name: found for name, found in lines.items() if found} == {}


#: Modules of the client that may use what enters its lock in Python code, and why.
CONDITIONS_ALLOWED = {
    "nsqclient/cluster/ask_all.py": "rounds of the tools and of the page",
}
#: Programs of their own, servers, and what runs in processes of Spark: not the client.
NOT_THE_CLIENT = ("admin", "cli", "devserver", "spark", "testing")


#: What may be imported from ``queue``: its calls are single calls of C.
QUEUE_IN_C = {"Empty", "SimpleQueue"}


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
            else [node.module] * (not {alias.name for alias in node.names} <= QUEUE_IN_C)))
    ]


def test_no_lock_of_the_client_is_entered_in_python_code():
    """An exception from a signal handler would leave it taken; Monitor has none of these."""
    client = [path for path in MODULES
              if path.relative_to(CHECKOUT / "nsqclient").parts[0] not in NOT_THE_CLIENT]
    lines = {_name(path): _python_locks(_tree(path)) for path in client}
    assert {name for name, found in lines.items() if found} == set(CONDITIONS_ALLOWED), lines
