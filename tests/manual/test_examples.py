"""The examples: they end well, and what their authors write is short."""

import os
import subprocess
import sys


from tests.support.docs.pages import ROOT


def run(example: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example / "run.py")], capture_output=True,
        text=True, timeout=110, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_job_appends_every_order_of_two_nights() -> None:
    assert run("drain_to_csv").splitlines() == [
        "night 1: 500 rows, 500 orders", "night 2: 1000 rows, 1000 orders"]


def test_the_tests_of_a_handler_pass() -> None:
    assert "4 passed" in run("handler_tests")
