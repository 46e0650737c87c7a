"""Blocks of code of the manual: programs that run as they stand, and what must be right in all."""

import ast
import builtins
import contextlib
import importlib
import json
import shlex
import symtable

import pytest

from nsqclient.cli import COMMANDS, SHORT
from tests.manual.conftest import Cluster
from tests.support import django_settings
from tests.support.docs.flags import flags_of, unknown_flags
from tests.support.docs.pages import PAGES, ROOT, Block, blocks, here

ALL = [block for page in PAGES for block in blocks(page)]
#: Commands that measure for minutes; the flags are checked.
CODE = [block for block in ALL if not block.page.startswith("benchmarks/")]
PYTHON = [block for block in CODE if block.language == "python"]
CONSOLE = [block for block in ALL if block.language == "console"]
PROGRAMS = [block for block in PYTHON if not block.name and not block.reason]
#: Blocks that show the error for a misspelt flag.
MISTAKES = {"configuration mistakes"}
#: Names that the text of Spark's pages describes: the session, and frames of the reader's.
SPARK = {"spark", "df", "stream", "table", "where", "storage"}
#: Pieces of a command that stand for something the reader knows.
PLACEHOLDERS = {"...", "COMMAND", "NAME"}


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.where)
def test_a_program_runs_as_it_stands(cluster: Cluster, block: Block) -> None:
    cluster.create_topic("orders")
    cluster.nsqd.create_channel("orders", "mail")
    program = compile(here(block.text, cluster.addresses), block.where, "exec")
    with contextlib.redirect_stdout(None):
        exec(program, {"__name__": "__main__"})


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_a_python_block_is_correct(block: Block) -> None:
    tree = ast.parse(block.text)
    compile(block.text, block.where, "exec")
    for node in ast.walk(tree):
        names = [alias.name for alias in getattr(node, "names", [])]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nsqclient"):
            if "contrib.django" in (node.module or ""):
                django_settings.configure()
            module = importlib.import_module(node.module or "")
            assert [name for name in names if not hasattr(module, name)] == []
        elif isinstance(node, ast.Import):
            for name in names:
                if name.startswith("nsqclient"):
                    importlib.import_module(name)


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_a_python_block_uses_only_what_its_page_has_shown(page: str) -> None:
    """Each name is imported or defined in the block or above it, so that it can be typed in."""
    shown: set[str] = set(dir(builtins))
    if page.startswith("docs/topics/spark"):
        shown |= SPARK
    for block in blocks(page, "python"):
        used, defined = global_names(block)
        assert used - defined - shown == set(), block.where
        shown |= defined


def global_names(block: Block) -> tuple[set[str], set[str]]:
    used: set[str] = set()
    defined: set[str] = {"__name__", "__file__"}
    tables = [symtable.symtable(block.text, block.where, "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() != "module" and not symbol.is_global():
                continue
            if symbol.is_referenced():
                used.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported():
                defined.add(symbol.get_name())
    return used, defined


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.where)
def test_the_commands_of_a_console_block_exist(block: Block) -> None:
    for command in block.commands:
        for part in command.split(" | "):
            words = [word for word in shlex.split(part, comments=True) if word not in PLACEHOLDERS]
            if words[:1] == ["nsqclient"] and len(words) > 1 and not words[1].startswith("-"):
                assert words[1] in {**COMMANDS, **SHORT}, command
                groups = ("spark", "dead_letters", "topic", "channel")
                sub = words[2:3] if words[1] in groups else []
                unknown = unknown_flags(words[2:], flags_of(words[1], *sub))
                assert bool(unknown) == (block.name in MISTAKES), command
            elif words[:1] == ["python"] and words[1].startswith(("examples/", "benchmarks/")):
                assert (ROOT / words[1]).is_file(), command


def test_a_json_block_is_one_json_value() -> None:
    for block in ALL:
        if block.language == "json":
            json.loads(block.text)
