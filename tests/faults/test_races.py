"""stop, close, publish, pause, set_max_in_flight and fork against each other, in subprocesses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.dialogues import FULL, make_channel
from tests.support.processes import CHECKOUT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 120)]

PROGRAM = Path(__file__).parent / "programs" / "races.py"
#: Rounds for each way of switching threads; in the full form 200 on each kind of server.
ROUNDS = 100 if FULL else 4


@pytest.mark.parametrize("interval", ["1e-6", "1"], ids=["eager", "lazy"])
def test_all_calls_from_eight_threads_at_once_end(server, interval):
    """No call hangs, every one ends as the docs say, no thread is left, forked children work."""
    make_channel(server, "races")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), server.tcp_address, str(ROUNDS), "1", interval],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True,
        timeout=1700, check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    outcomes = json.loads(done.stdout)
    assert outcomes["child 0"] == ROUNDS
    assert outcomes["stop ok"] == outcomes["close ok"] == 3 * ROUNDS
