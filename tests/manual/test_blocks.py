"""Every block of code in the manual is run, or at least correct.

Whole programs have tests of their own (README, quickstart, tutorial). Fragments run in surroundings
that stand here; those that need a foreign cluster, another library or a web project must compile,
and what they import of nsqclient must exist. A console block calls commands and flags that exist.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex

import pytest

from nsqclient.cli import COMMANDS
from nsqclient.devserver import Nsqd
from tests.support.flags import flags_of, unknown_flags
from tests.support.pages import PAGES, ROOT, Block, blocks, commands

#: These have tests of their own, which know what each program prints.
TESTED_ELSEWHERE = {"README.rst", "docs/quickstart.rst", "docs/tutorial.rst"}
ALL = [block for page in PAGES for block in blocks(page)]
CONSOLE = [block for block in ALL if block.language in ("console", "bash", "shell")]
#: Marks of Python blocks that are not ours to run.
MARKS = {"", "needs-cluster", "needs-spark", "fragment", "other-library"}
#: Pieces of a command that stand for something the reader knows.
PLACEHOLDERS = {"...", "COMMAND", "NAME"}


def looks_like_python(block: Block) -> bool:
    """Tell whether a block without a language is Python: it parses, and says something."""
    try:
        tree = ast.parse(block.text)
    except SyntaxError:
        return False
    return any(not isinstance(node, ast.Expr) for node in tree.body)


PYTHON = [
    block for block in ALL
    if block.language == "python" or (not block.language and looks_like_python(block))
]

#: What stands around a fragment in its reader's program: (page, how it begins) -> before and after.
SURROUNDINGS = {
    ("docs/topics/options.rst", "config = Config("): (
        "from datetime import timedelta\nfrom nsqclient import Config",
        "assert other.msg_timeout == 300 and third.msg_timeout == 120 == config.msg_timeout",
    ),
    ("docs/topics/fork.rst", "producer = Producer("): (
        "from nsqclient import Producer",
        "class Request: body = b'ada'\nview(Request)\nproducer.close()\n"
        "assert [m.body for m in nsqd.messages('signups')] == [b'ada']",
    ),
    ("docs/topics/writing-tests.rst", "def test_signup_is_announced"): (
        "from nsqclient import Producer\n"
        "def sign_up(producer, name): producer.publish('signups', name.encode())",
        "test_signup_is_announced(nsqd)",
    ),
    ("docs/topics/writing-tests.rst", "def test_signups_are_mailed"): (
        "from nsqclient import Consumer\n"
        "class Mailer:\n"
        "    def __init__(self, outbox): self.outbox = outbox\n"
        "    def handle(self, message): self.outbox.append(message.body.decode())",
        "test_signups_are_mailed(nsqd)",
    ),
    ("docs/topics/writing-tests.rst", "config = Config("): (
        "from nsqclient import Config",
        "assert config.max_backoff_duration == config.default_requeue_delay == 0",
    ),
    ("docs/topics/writing-tests.rst", "assert [c.name"): (
        "from nsqclient import Producer\n"
        "with Producer([nsqd.tcp_address]) as producer: producer.publish('t', b'x')", "",
    ),
    ("docs/topics/devserver.rst", "def test_orders_are_published"): (
        "from nsqclient import Producer\n"
        "def place_order(nsqd_tcp_address):\n"
        "    with Producer([nsqd_tcp_address]) as p: p.publish('orders', b'...')",
        "test_orders_are_published(nsqd)",
    ),
}


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_a_python_block_is_correct(block: Block) -> None:
    """It compiles, and what it takes from nsqclient can be imported."""
    compile(block.text, block.where, "exec")
    if block.mark == "other-library":
        return
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nsqclient"):
            if "contrib.django" in (node.module or ""):
                pytest.importorskip("django")
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block.where}: {node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("nsqclient"):
                    importlib.import_module(alias.name)


@pytest.mark.parametrize("page, begins", SURROUNDINGS, ids=lambda text: text[:50])
def test_a_fragment_runs_in_its_surroundings(nsqd: Nsqd, page: str, begins: str) -> None:
    """It does what its page says, on an embedded nsqd."""
    [text] = [block.text for block in PYTHON
              if block.page == page and block.text.startswith(begins)]
    before, after = SURROUNDINGS[page, begins]
    program = "\n".join([before, text.replace("127.0.0.1:4150", nsqd.tcp_address), after])
    exec(compile(program, page, "exec"), {"nsqd": nsqd})


def test_python_blocks_have_a_known_mark() -> None:
    """A mark says why a block does not run."""
    own = [block for block in PYTHON if block.page not in TESTED_ELSEWHERE]
    assert [block.where for block in own if block.mark not in MARKS] == []


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.where)
def test_the_commands_of_a_console_block_exist(block: Block) -> None:
    """``nsqclient X --flag``, ``make X`` and ``python FILE`` name what is there."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for command in commands(block):
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
