"""A command ends with its documented status from the start of ``main`` to the end of it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsqclient.cli import _is_ended_by_signals
from tests.support.processes import handles
from tests.support.waiting import wait_until

NSQD = "--nsqd-tcp-address=127.0.0.1:1"
WORKER = ["json:loads", "--topic=t", "--channel=c", NSQD]
COMMANDS = {
    "nsq_tail": ["--topic=t", NSQD],
    "nsq_to_file": ["--topic=t", "--channel=c", NSQD],
    "nsq_to_nsq": ["--topic=t", NSQD, "--destination-nsqd-tcp-address=127.0.0.1:1"],
    "nsq_to_http": ["--topic=t", NSQD, "--post=http://127.0.0.1:1/"],
    "publish": ["--topic=t", NSQD, "x"],
    "stat": ["--topic=t", "--channel=c", "--nsqd-http-address=127.0.0.1:1"],
    "nsqd": ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"],
    "worker": WORKER,
    "worker with --reload": [*WORKER, "--reload"],
    "worker with --processes": [*WORKER, "--processes=2"],
    "spark": ["ingest", "--topic=t", "--channel=c", NSQD, "--storage=file:///proc/no"],
}


@pytest.mark.parametrize("name, has_children", [
    *[(name, False) for name in COMMANDS], *[(name, True) for name in COMMANDS if "with" in name],
])
def test_a_signal_at_the_start_is_the_documented_end(
    name: str, has_children: bool, tmp_path: Path
) -> None:
    """As soon as the handlers of ``main`` are there, while the command imports what it needs.

    Or as soon as the first child is there, which may die of the signal that it is sent.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "nsqclient", name.split()[0], *COMMANDS[name]], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: process.poll() is not None or (
        children.read_text() if has_children else handles(process.pid, signal.SIGTERM)))
    process.terminate()
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in printed, printed


@pytest.mark.parametrize(("words", "expected"), [
    (["nsq_tail", "--topic=t"], True), (["spark", "ingest"], True), (["worker", "jobs"], True),
    (["worker", "jobs", "--check"], False), (["spark", "compact"], False), (["spark"], False),
    (["doctor"], False), (["completion", "bash"], False), ([], False),
])
def test_a_command_that_has_a_result_is_ended_by_the_system(
    words: list[str], expected: bool
) -> None:
    """Status 0 would say that it has one."""
    assert _is_ended_by_signals(words) is expected
