"""The table of threads in the docs names every thread of the package, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nsqclient

PACKAGE = Path(nsqclient.__file__).parent
PAGE = PACKAGE.parent / "docs/topics/threads.rst"
#: The starts of names that are asked for, not given.
_ASKED = {"nsq-"}


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
    return found - _ASKED


def names_on_the_page() -> set[str]:
    """The same of the table; "..." stays, for any end."""
    table = PAGE.read_text().split("What may be called from where")[0].rpartition("\nyours ")[0]
    names = re.findall(r"``(nsq-[^`]+)``", table)
    return {re.sub(r"(?<=-)[A-Z].*", "", name) for name in names}


def fits(code: str, page: str) -> bool:
    """Tell whether a name of the code is meant by one of the page."""
    if page.endswith("..."):
        return code.startswith(page[:-3])
    return code.strip("-") == page.strip("-")


def test_every_thread_has_a_row():
    """A new thread is explained, and one that is gone leaves the page."""
    code, page = names_in_the_code(), names_on_the_page()
    assert {"nsq-reader-", "nsq-worker", "nsq-timer", "nsq-topics", "nsq-nsqd-http"} <= code
    assert {name for name in code if not any(fits(name, row) for row in page)} == set()
    assert {row for row in page if not any(fits(name, row) for name in code)} == set()
