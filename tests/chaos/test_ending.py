"""A chaos run that is broken off leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.processes import CHECKOUT
from tests.support.servers.real_servers import program
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(120)]


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("first", [
    signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)], ids=["SIGINT", "SIGTERM"])
def test_signals_while_it_cleans_up_change_nothing(tmp_path, first):
    """The first ends the run; those that follow do not keep it from ending its servers."""
    program("nsqd")
    folder = tmp_path / "temporary"
    folder.mkdir()
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos", "cluster", "--seed", "1"],
            cwd=CHECKOUT, env={**os.environ, "TMPDIR": str(folder)}, start_new_session=True,
            stdout=output, stderr=output,
        )
    try:
        # Any of its processes: a fault may end the first one before it has a ledger.
        wait_until(lambda: [*folder.glob("*/c2i*.ledger")], 60, "all have started")
        process.send_signal(first)
        wait_until(lambda: process.send_signal(signal.SIGTERM) or process.poll() is not None, 60)
        # The kernel may hand the second signal to the process first.
        ends = {128 + first, 128 + signal.SIGTERM}
        assert process.returncode in ends, (tmp_path / "output").read_text()
        wait_until(lambda: is_gone(process.pid), 30, "no process is left")
        assert [*folder.iterdir()] == []
    finally:
        if not is_gone(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
