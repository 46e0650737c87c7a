"""A chaos run that is broken off leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.processes import CHECKOUT
from tests.support.real_servers import program
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(120)]


def is_gone(group: int) -> bool:
    """Tell whether a process group has no member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_signals_while_it_cleans_up_change_nothing(tmp_path, first):
    """The first ends the run; those that follow do not keep it from ending its servers."""
    program("nsqd")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", "--seconds", "600", "--seed", "1"],
        cwd=CHECKOUT, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: [*tmp_path.glob("*/c2i1.ledger")], 60, "all have started")
        process.send_signal(first)
        wait_until(lambda: process.send_signal(signal.SIGTERM) or process.poll() is not None, 60)
        assert process.returncode == 128 + first
        wait_until(lambda: is_gone(process.pid), 30, "no process is left")
        assert [*tmp_path.iterdir()] == []
    finally:
        if not is_gone(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
