"""Every block of code in the manual runs in a test, or says in its source why it cannot.

A Python program that runs as it stands needs no mark: it is run here. What needs surroundings, and
every console block, has a name in a comment (``.. runs: NAME``), by which a test takes it; see
``tests.support.pages``. What no test can run (``.. not run: REASON``) must be correct all the same.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import re
import shlex

import pytest

from nsqclient.cli import COMMANDS
from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.support.flags import flags_of, unknown_flags
from tests.support.pages import PAGES, ROOT, Block, blocks

ALL = [block for page in PAGES for block in blocks(page)]
#: Commands that measure for minutes; the flags are checked.
CODE = [block for block in ALL if not block.page.startswith("benchmarks/")]
PYTHON = [block for block in CODE if block.language == "python"]
CONSOLE = [block for block in ALL if block.language == "console"]
PROGRAMS = [block for block in PYTHON if not block.name and not block.reason]
#: Why a block may not run.
REASONS = re.compile(
    r"(installs packages|needs Docker|a foreign cluster|another library|runs all tests)(: .+)?$")
#: Pieces of a command that stand for something the reader knows.
PLACEHOLDERS = {"...", "COMMAND", "NAME"}


def taken() -> set[str]:
    """Return the names by which tests take blocks: the argument of each call of ``named``."""
    found = set()
    for path in ROOT.glob("tests/**/test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "named":
                assert isinstance(node.args[0], ast.Constant), f"{path}: named() wants a literal"
                found.add(node.args[0].value)
    return found


def test_every_block_of_code_is_run_or_says_why_not() -> None:
    """A console block without a mark, and a name that no test takes, are left out by mistake."""
    unmarked = [b.where for b in CONSOLE if b in CODE and not b.name and not b.reason]
    assert unmarked == [], "write '.. runs: NAME' or '.. not run: REASON' before these"
    names = taken()
    assert [b.where for b in CODE if b.name and b.name not in names] == [], "no test takes these"
    assert names == {block.name for block in CODE if block.name}


def test_a_block_that_does_not_run_has_a_good_reason() -> None:
    """It begins with one of a few words; a new kind of reason is added here, where it is seen."""
    reasons = {block.reason for block in ALL if block.reason}
    assert [reason for reason in reasons if not REASONS.match(reason)] == []


def test_no_block_escapes_by_its_language() -> None:
    """Each names one that is run or checked here, and a text has neither prompts nor imports."""
    known = {"python", "console", "json", "text", "docker"}
    assert [block.where for block in CODE if block.language not in known] == []
    code = re.compile(r"^(\$ |import |from \S+ import )", re.MULTILINE)
    assert [b.where for b in CODE if b.language == "text" and code.search(b.text)] == []


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.where)
def test_a_program_runs_as_it_stands(block: Block) -> None:
    """With an embedded nsqd and nsqlookupd at the usual addresses it ends by itself."""
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        nsqd.publish("orders", b"an order")
        nsqd.create_channel("orders", "mail")
        text = block.text.replace("127.0.0.1:4150", nsqd.tcp_address)
        text = text.replace("127.0.0.1:4161", lookupd.http_address)
        with contextlib.redirect_stdout(None):
            exec(compile(text, block.where, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_a_python_block_is_correct(block: Block) -> None:
    """It compiles, and what it takes from nsqclient can be imported."""
    tree = ast.parse(block.text)
    compile(block.text, block.where, "exec")
    for node in ast.walk(tree):
        names = [alias.name for alias in getattr(node, "names", [])]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nsqclient"):
            if "contrib.django" in (node.module or ""):
                pytest.importorskip("django")
            module = importlib.import_module(node.module or "")
            assert [name for name in names if not hasattr(module, name)] == []
        elif isinstance(node, ast.Import):
            for name in names:
                if name.startswith("nsqclient"):
                    importlib.import_module(name)


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.where)
def test_the_commands_of_a_console_block_exist(block: Block) -> None:
    """``nsqclient X --flag``, ``make X`` and ``python FILE`` name what is there."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for command in block.commands:
        for part in command.split(" | "):
            words = [word for word in shlex.split(part, comments=True) if word not in PLACEHOLDERS]
            if words[:1] == ["nsqclient"] and len(words) > 1 and not words[1].startswith("-"):
                assert words[1] in COMMANDS, command
                sub = words[2:3] if words[1] == "spark" else []
                assert unknown_flags(words[2:], flags_of(words[1], *sub)) == [], command
            elif words[:1] == ["make"] and len(words) > 1:
                assert words[1] in targets, command
            elif words[:1] == ["python"] and words[1].startswith(("examples/", "benchmarks/")):
                assert (ROOT / words[1]).is_file(), command


def test_json_blocks_parse() -> None:
    """Each is one JSON value."""
    for block in ALL:
        if block.language == "json":
            json.loads(block.text)
