"""The tutorial, command by command and program by program, on servers with free ports."""

import json
import re

import pytest
import requests

from tests.support.docs.pages import Block, commands_of, named, read, text_of
from tests.support.docs.terminal import Terminal
from tests.support.waiting import wait_until

PAGE_LINES = [
    re.sub(r"\b[0-9a-f]{16}\b", "ID", line.strip())
    for line in read("docs/tutorial.rst").splitlines() if line.strip() != "..."]
QUICK_START = [command for block in named("quick-start") for command in block.commands]


def test_the_commands_of_the_quick_start_work(empty_terminal: Terminal) -> None:
    terminal, names, archiver = empty_terminal, [], None
    terminal.replace["/tmp"] = "."
    for command in QUICK_START:
        names.append(command.split()[1] if command.startswith("nsqclient") else command.split()[0])
        if names[-1] == "curl":
            assert terminal.run(command).strip() == "OK"
        elif names[-1] == "nsq_to_file":
            archiver = terminal.start(command)
        elif names[-1] == "cat":
            # nsqd counts a message as sent before nsq_to_file has it.
            wait_until(lambda: "".join(
                file.read_text() for file in terminal.folder.glob("test.*.log")
            ).count("\n") == 3, message="nsq_to_file did not get everything")
            assert archiver is not None and archiver.interrupt() == 0
            assert sorted(terminal.run(command).splitlines()) == [
                f"hello world {number}" for number in (1, 2, 3)]
        else:
            terminal.serve(command)
    assert names == ["nsqlookupd", "nsqd", "nsqadmin", "curl", "nsq_to_file", "curl", "curl", "cat"]
    put = f"http://{terminal.replace['127.0.0.1:4151']}/put?topic=test"
    assert requests.post(put, data=b"x", timeout=10).status_code == 404


def known(text: str, terminal: Terminal) -> list[str]:
    """Return the lines of an output but for tracebacks, with the page's addresses and one id."""
    for usual, here in terminal.replace.items():
        text = text.replace(here, usual).replace(here.replace(":", "_"), usual.replace(":", "_"))
    text = re.sub(r"\b[0-9a-f]{16}\b", "ID", text)
    # The page shortens long lines: those begin as shown.
    begin = [line.removesuffix("...") for line in PAGE_LINES if line.endswith("...")]
    lines = [line for line in text.splitlines()
             if re.match(r"(INFO|WARNING|ERROR|mail to|json\.)", line)]
    return [next((start for start in begin if line.startswith(start)), line) for line in lines]


def shown(blocks: list[Block]) -> str:
    text = text_of(blocks)
    return text.partition("\n")[2] if text.startswith("$ ") else text


def test_the_worker_prints_what_the_page_shows(terminal: Terminal) -> None:
    for name, [block] in {
        "shop.py": named("tutorial shop"), "worker.py": named("tutorial worker")
    }.items():
        (terminal.folder / name).write_text(terminal.here(block.text))
    starts = named("tutorial worker starts")
    [shop] = commands_of(named("tutorial shop runs"))
    working = terminal.start(*commands_of(starts))
    working.wait_for("no nsqlookupd lists")
    assert known(working.log, terminal) == known(shown(starts), terminal)
    assert terminal.run(shop) == shown(named("tutorial shop runs"))
    working.wait_for("gave up")
    assert working.interrupt() == 0
    pages = [starts, named("output of the tutorial worker"), named("end of the tutorial worker")]
    lines = known("".join(map(shown, pages)), terminal)
    of_log = [line for line in lines if not line.startswith("mail")]
    assert known(working.output, terminal) == [line for line in lines if line not in of_log]
    assert known(working.log, terminal) == of_log
    [letter] = (terminal.folder / "dead-letters").glob("*.json")
    assert json.loads(letter.read_text())["body"] == "this is not JSON"


@pytest.mark.long
def test_the_tests_of_the_tutorial_pass(empty_terminal: Terminal) -> None:
    terminal = empty_terminal
    (terminal.folder / "worker.py").write_text(text_of(named("tutorial worker")))
    (terminal.folder / "test_worker.py").write_text(text_of(named("tutorial test")))
    [command] = commands_of(named("tutorial test runs"))
    output = terminal.run(f"{command} -p no:cacheprovider")
    assert re.sub(r"[\d.]+s$", "", output.strip()) == re.sub(
        r"[\d.]+s$", "", shown(named("tutorial test runs")).strip())
