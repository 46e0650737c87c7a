"""What Python 3.13 asks of code that holds a lock.

There an exception of a signal handler at the jump back to the start of a loop passes by the
``with`` statement around it, where the jump is not the end of the loop's body: behind an ``if``
without ``else``, a ``continue``, a condition of a comprehension. The lock would stay taken
(https://github.com/python/cpython/issues/130279). In a function or generator of its own such a loop
does no harm: the exception leaves it through the call.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nsqclient

PACKAGE = Path(nsqclient.__file__).parent
#: Where threads of users, and so signal handlers, come by.
SEARCHED = ["connection", "consumer", "contrib", "partitioned", "producer", "protocol", "runtime"]
_LOOPS = (ast.For, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
_OTHER_CODE = (ast.FunctionDef, ast.Lambda, ast.GeneratorExp)


def takes_a_lock(node: ast.AST) -> bool:
    """Return whether it is a ``with`` statement for a lock."""
    return isinstance(node, ast.With) and any(
        ast.unparse(item.context_expr).endswith(("lock", "_quick", "_appending"))
        for item in node.items
    )


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs in the same frame."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _OTHER_CODE):
            yield child
            yield from inside(child)


def jumps_from_within(node: ast.AST) -> bool:
    """Return whether a loop may jump back from elsewhere than the end of its body."""
    if isinstance(node, _COMPREHENSIONS):
        return any(generator.ifs for generator in node.generators)
    if not isinstance(node, _LOOPS):
        return False
    return ends_with_a_branch(node.body) or any(isinstance(n, ast.Continue) for n in inside(node))


def ends_with_a_branch(body: list[ast.stmt]) -> bool:
    """Return whether its last statement may be skipped."""
    last = body[-1]
    if isinstance(last, ast.If) and last.orelse:
        return ends_with_a_branch(last.body) or ends_with_a_branch(last.orelse)
    return isinstance(last, (ast.If, *_LOOPS))


def complaints(source: str) -> list[int]:
    """Return the lines of such loops under a lock."""
    return sorted({
        loop.lineno for node in ast.walk(ast.parse(source)) if takes_a_lock(node)
        for loop in inside(node) if jumps_from_within(loop)
    })


@pytest.mark.parametrize("package", SEARCHED)
def test_no_loop_under_a_lock_jumps_back_from_within_its_body(package: str) -> None:
    found = {
        str(file.relative_to(PACKAGE)): lines for file in (PACKAGE / package).rglob("*.py")
        if (lines := complaints(file.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(("body", "is_refused"), [
    ("[x for x in y if x]", True), ("list(x for x in y if x)", False), ("[x for x in y]", False),
    ("for x in y:\n  if x: f()", True), ("for x in y:\n  if x: continue\n  f()", True),
    ("for x in y:\n  if x: f()\n  else: g()", False), ("while x:\n  for z in y: f()", True),
])
def test_the_search_finds_such_loops(body: str, is_refused: bool) -> None:
    inner = body.replace("\n", "\n  ")
    source = f"with self._lock:\n  {inner}\n"
    assert bool(complaints(source)) is is_refused
    assert not complaints(source.replace("_lock", "_file"))
