"""The tutorial, command by command and program by program, on servers with free ports."""

from __future__ import annotations

import requests

from tests.manual.conftest import Cluster
from tests.support.pages import named
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

QUICK_START = [command for block in named("quick-start") for command in block.commands]


def test_the_quick_start_command_by_command(empty_terminal: Terminal) -> None:
    """nsqlookupd, nsqd, nsqadmin, a publish, nsq_to_file, two more; then the file has all three."""
    terminal, names, archiver = empty_terminal, [], None
    terminal.replace["/tmp"] = "."
    for command in QUICK_START:
        names.append(command.split()[1] if command.startswith("nsqclient") else command.split()[0])
        if names[-1] == "curl":
            assert terminal.run(command).strip() == "OK"
        elif names[-1] == "nsq_to_file":
            archiver = terminal.start(command)
        elif names[-1] == "cat":
            stats = f"http://{terminal.replace['127.0.0.1:4151']}/stats?format=json"
            wait_until(lambda: _taken(stats) == 3, 40, "nsq_to_file did not get everything")
            assert archiver is not None and archiver.interrupt() == 0
            assert sorted(terminal.run(command).splitlines()) == [
                f"hello world {number}" for number in (1, 2, 3)]
        else:
            terminal.serve(command)
    assert names == ["nsqlookupd", "nsqd", "nsqadmin", "curl", "nsq_to_file", "curl", "curl", "cat"]
    put = f"http://{terminal.replace['127.0.0.1:4151']}/put?topic=test"
    assert requests.post(put, data=b"x", timeout=10).status_code == 404


def _taken(stats: str) -> int:
    """Return how many messages are with nsq_to_file or already finished."""
    [topic] = requests.get(stats, timeout=10).json()["topics"]
    return sum(
        channel["message_count"] - channel["depth"]
        for channel in topic["channels"] if channel["channel_name"] == "nsq_to_file"
    )


def test_the_worker_handles_orders_and_keeps_what_fails(
    terminal: Terminal, cluster: Cluster
) -> None:
    """shop.py publishes, worker.py prints three mails, and the fourth is a dead letter."""
    for name, [block] in {
        "shop.py": named("tutorial shop"), "worker.py": named("tutorial worker")
    }.items():
        (terminal.folder / name).write_text(terminal.here(block.text))
    cluster.create_topic("orders")
    [block] = named("tutorial commands")
    shop, worker = block.commands
    assert terminal.run(shop) == "stored\n"
    working = terminal.start(worker)
    cluster.nsqd.wait_until_empty("orders", "mail", timeout=40)
    assert working.interrupt() == 0
    shown = block.text[block.text.index(worker):].splitlines()[1:]
    assert sorted(working.output.splitlines()) == sorted(shown)
    [letter] = (terminal.folder / "dead-letters").glob("*.body")
    assert letter.read_bytes() == b"this is not JSON"
