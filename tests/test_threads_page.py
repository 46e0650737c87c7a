"""The page on threads names every thread and every lock of the package, and no other."""

import ast
import re
from pathlib import Path

import nsqclient

PACKAGE = Path(nsqclient.__file__).parent
PAGE = PACKAGE.parent / "docs/topics/threads.rst"
#: The start of names that is asked for, not given.
_NO_THREADS = {"nsq-"}


def names_in_the_code() -> set[str]:
    """The names of threads, up to where something is put in."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"nsq-[a-z-]*", node.value):
                    found.add(node.value)
            if isinstance(node, ast.Call) and node.args and path.parent.name == "devserver":
                # Acceptors put "nsq-" before the name that they are given.
                if ast.unparse(node.func) in ("Acceptor", "super().__init__"):
                    name = node.args[0]
                    if isinstance(name, ast.Constant) and isinstance(name.value, str):
                        found.add(f"nsq-{name.value}")
    return found - _NO_THREADS


def names_on_the_page() -> set[str]:
    """The same of the table; "..." stays, for any end."""
    page = PAGE.read_text().split("Threads of the library")[1]
    table = page.split("Publishing threads")[0].rpartition("\nyours ")[0]
    names = re.findall(r"``(nsq-[^`]+)``", table)
    return {re.sub(r"(?<=-)[A-Z].*", "", name) for name in names}


def fits(code: str, page: str) -> bool:
    """Return whether a name on the page stands for a name in the code."""
    if page.endswith("..."):
        return code.startswith(page[:-3])
    return code.strip("-") == page.strip("-")


def test_every_thread_has_a_row():
    code, page = names_in_the_code(), names_on_the_page()
    assert {"nsq-reader-", "nsq-worker", "nsq-timer", "nsq-topics", "nsq-nsqd-http"} <= code
    assert {name for name in code if not any(fits(name, row) for row in page)} == set()
    assert {row for row in page if not any(fits(name, row) for name in code)} == set()


#: The packages whose locks are on the page.
_LOCKED = ("connection", "consumer", "partitioned", "producer", "runtime")
#: What makes a lock, as it is written in the code.
_LOCK = re.compile(r"(threading\.(R?Lock|Condition|Semaphore|Event)|(?:R?Lock|Monitor))\(")
_ASSIGNED = (ast.Assign, ast.AnnAssign)


def locks_in_the_code() -> set[str]:
    """``Class.attribute`` of each lock that an object has, and ``module.name`` of each global."""
    found = set()
    for path in (path for name in _LOCKED for path in (PACKAGE / name).rglob("*.py")):
        tree = ast.parse(path.read_text())
        owners = [(path.stem, [node]) for node in tree.body if isinstance(node, _ASSIGNED)]
        owners += [(node.name, list(ast.walk(node))) for node in ast.walk(tree)
                   if isinstance(node, ast.ClassDef)]
        for owner, nodes in owners:
            for node in nodes:
                if isinstance(node, _ASSIGNED) and _LOCK.match(ast.unparse(node.value or node)):
                    plain = isinstance(node, ast.Assign)
                    target = ast.unparse(node.targets[0] if plain else node.target)
                    if re.match(r"self\.\w+$", target) or owner == path.stem:
                        found.add(f"{owner}.{target.removeprefix('self.')}")
    return found


def test_every_lock_is_on_the_page():
    section = PAGE.read_text().split("\nLocks\n")[1].split("\nThe write rule\n")[0]
    names = set(re.findall(r"``(\w+\.(?:_\w+|lock|wake))``", section))
    code = locks_in_the_code()
    assert {"NsqdSocket._lock", "NodePool._changed", "futures._quick"} <= code
    assert code - names == set()
    assert names - code == set()
