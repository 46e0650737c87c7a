"""Every block of code of the manual runs in a test, or says in its source why it cannot.

A Python program that runs as it stands needs no mark: ``tests/manual/test_blocks.py`` runs it. What
needs surroundings, and every console block, has a name in a comment (``.. runs: NAME``), by which a
test takes it: ``tests.support.docs.pages.named``. What no test can run
(``.. not run: REASON``) must be correct all the same. The programs of README and quickstart are
run here.
"""

import ast
import contextlib
import importlib.util
import io
import json
import re
import shlex
import signal
import subprocess
import sys

import pytest
import requests

from nsqclient.cli import COMMANDS, SHORT
from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.support.docs.pages import PAGES as ALL_PAGES, ROOT, blocks, here, named, read, text_of
from tests.support.waiting import wait_until

PAGES = ("README.rst", "docs/quickstart.rst")
#: The benchmarks measure for minutes, so only their flags are checked.
CODE = [block for page in ALL_PAGES if not page.startswith("benchmarks/") for block in blocks(page)]
#: Why a block may not run.
REASONS = re.compile(
    r"(installs packages|needs Docker|needs a download|a foreign cluster|another library)(: .+)?$")


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
    unmarked = [b.where for b in CODE
                if b.language == "console" and not b.name and not b.reason]
    assert unmarked == [], "write '.. runs: NAME' or '.. not run: REASON' before these"
    names = taken()
    assert [b.where for b in CODE if b.name and b.name not in names] == [], "no test takes these"
    assert names == {block.name for block in CODE if block.name}


def test_a_block_that_does_not_run_has_a_good_reason() -> None:
    reasons = {block.reason for block in CODE if block.reason}
    assert [reason for reason in reasons if not REASONS.match(reason)] == []


def test_no_block_escapes_by_its_language() -> None:
    """Each language is run or checked here, and a text has neither prompts nor imports."""
    known = {"python", "console", "json", "text", "toml", "docker"}
    assert [block.where for block in CODE if block.language not in known] == []
    code = re.compile(r"^(\$ |import |from \S+ import )", re.MULTILINE)
    assert [b.where for b in CODE if b.language == "text" and code.search(b.text)] == []


def with_addresses(code: str, nsqd: str, lookupd: str = "127.0.0.1:1") -> str:
    """Put the addresses of running servers in the place of the usual ones."""
    return here(code, {"127.0.0.1:4150": nsqd, "127.0.0.1:4161": lookupd})


def run(code: str) -> str:
    """Run a program in this process; return its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "<page>", "exec"), {"__name__": "__main__"})
    return output.getvalue()


def run_consumer(code: str, lines: int) -> list[str]:
    """Run a program that ends with SIGTERM, in a process; return the first lines it printed."""
    program = [sys.executable, "-W", "error", "-c", code]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed = [process.stdout.readline().strip() for _ in range(lines)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    return printed


def producer_of_readme(nsqd: Nsqd) -> str:
    return with_addresses(text_of(named("README producer")), nsqd.tcp_address)


def test_the_producer_of_the_readme_stores_its_messages() -> None:
    with Nsqd() as nsqd:
        assert run(producer_of_readme(nsqd)) == ""
        assert [m.body for m in nsqd.messages("events")] == [b"hello"]


def test_the_rates_in_the_readme_are_those_of_the_benchmark() -> None:
    works = {
        "consume, 1 worker, messages/s": "consume, 1 worker",
        "consume, 8 workers, messages/s": "consume, 8 workers",
        "``max_in_flight`` 1, messages/s": "consume, max_in_flight 1",
        "publish, 16 threads, messages/s": "publish, 16 threads",
        "idle latency, median": "latency, idle, p50",
    }
    rows = json.loads((ROOT / "benchmarks/results.json").read_text(encoding="utf-8"))["rows"]
    figures = {row["work"]: row["figures"] for row in rows}
    shown = [re.split(r"  +", line) for line in read("README.rst").splitlines()]
    for cells in shown:
        if cells[0] in works:
            names = ("nsqclient", "go-nsq", "pynsq", "gnsq", "ansq")
            measured = [figures[works[cells[0]]].get(name) for name in names]
            unit = " us" if "latency" in cells[0] else ""
            assert cells[1:] == [
                "not measured" if rate is None else f"{rate:,.0f}{unit}" for rate in measured]
    assert set(works) <= {cells[0] for cells in shown}


def test_the_producer_of_the_manual_names_both_bad_outcomes() -> None:
    def published(code: str) -> str:
        return run(with_addresses(code, nsqd.tcp_address))

    code = text_of(named("outcomes of a publish"))
    with Nsqd() as nsqd:
        assert published(code) == ""
        nsqd.faults.fail_next("PUB", "E_BAD_MESSAGE")
        assert published(code).startswith("not stored: ")
        nsqd.faults.hold_answers("PUB")
        assert published(code.replace("timeout=5", "timeout=3")).startswith("may be stored: ")


@pytest.mark.parametrize("discovers", [False, True])
def test_the_consumer_of_the_readme_prints_and_ends_by_signal(discovers: bool) -> None:
    code = text_of(named("README consumer"))
    if discovers:
        given = 'nsqd_tcp_addresses=["127.0.0.1:4150"]'
        option = 'lookupd_http_addresses=["127.0.0.1:4161"]'
        assert given in code and option in read("README.rst")
        code = code.replace(given, option)
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        run(producer_of_readme(nsqd))
        code = with_addresses(code, nsqd.tcp_address, lookupd.http_address)
        assert run_consumer(code, 1) == ["hello"]
        nsqd.wait_until_empty("events", "printer")


#: What each program of the quickstart prints, as patterns of whole lines.
QUICKSTART = [
    ["got hello"],
    ["messages came from 2 nsqds"],
    ["stored", "invalid, not sent: .+", "unknown", "not stored"],
    ["stored 10000"],
    ["attempt 1", "attempt 2", "attempt 3"],
    [r"kept \[\(b'poison', 'no such event'\)\]"],
    ["written 1000"],
    ["one", "two", "three"],
    ["passed"],
]


@pytest.mark.parametrize("number", range(len(QUICKSTART)))
def test_a_program_of_the_quickstart_prints_what_it_should(number: int) -> None:
    programs = blocks("docs/quickstart.rst", "python")
    assert len(programs) == len(QUICKSTART)
    lines = run(programs[number].text).splitlines()
    assert len(lines) == len(QUICKSTART[number])
    for line, pattern in zip(lines, QUICKSTART[number]):
        assert re.fullmatch(pattern, line)


def test_the_requests_of_the_tour_are_answered() -> None:
    tour = map(shlex.split, named("quickstart tour")[0].commands)
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        nsqd.create_topic("events")
        lookup = f"http://{lookupd.http_address}/lookup?topic=events"
        wait_until(lambda: requests.get(lookup).ok, 30, "nsqd did not register the topic")
        answers = []
        for words in tour:
            if words[0] == "curl":
                url = here(words[-1], {"127.0.0.1:4151": nsqd.http_address,
                                       "127.0.0.1:4161": lookupd.http_address})
                data = words[words.index("-d") + 1] if "-d" in words else None
                answers.append(requests.request("POST" if data else "GET", url, data=data).text)
    assert answers[0] == "OK"
    assert answers[1].startswith('{"channels":[],"producers":[{"remote_address":')
    assert '"topics":[{"topic_name":"events","channels":[],"depth":1,' in answers[2]


def test_the_nsqd_of_the_readme_is_what_its_programs_need() -> None:
    words = shlex.split(text_of(named("README nsqd")).removeprefix("$ "))
    values = importlib.import_module(COMMANDS[words[1]][0]).build_command().parse(words[2:]).values
    assert values["tcp-address"] in read("README.rst")


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_on_a_page_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(" ".join(re.findall(r"^([\w -]+):", makefile, re.MULTILINE)).split())
    targets |= {f"test-{part}" for part in re.findall(r"^PART_([\w-]+) :=", makefile, re.MULTILINE)}
    text = read(page)
    assert set(re.findall(r"\bmake ([\w-]+)``", text)) <= targets | {"test-PART"}
    assert set(re.findall(r"^    \$ make ([\w-]+)", text, re.MULTILINE)) <= targets
    for name in re.findall(r"(?:\$ |``)(?:python3? -m )?nsqclient (\w+)", text):
        assert name == "help" or SHORT.get(name, name) in COMMANDS


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_links_to_exist(page: str) -> None:
    links = [link for link in re.findall(r"<([^<> ]+)>`__", read(page)) if "://" not in link]
    documents = [f"{name}.rst" for name in re.findall(r":doc:`([^`<]+)`", read(page))]
    folder = (ROOT / page).parent
    assert [name for name in links + documents if not (folder / name).is_file()] == []
