"""``make test`` runs two commands side by side: their exit status, their output, and Ctrl-C."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT
from tests.support.waiting import wait_until

SCRIPT = str(ROOT / "tools" / "side_by_side.py")
#: Writes its name to a file, and that it was interrupted to another one; only then it ends.
PATIENT = """
import pathlib, signal, sys
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def note(number, frame):
    (folder / (name + "-ended")).write_text(signal.Signals(number).name)
    print(name, "ended", flush=True)
    sys.exit(5)
signal.signal(signal.SIGINT, note)
signal.signal(signal.SIGTERM, note)
(folder / (name + "-ready")).touch()
while True:
    signal.pause()
"""


def ending_with(status: int, text: str = "") -> list[str]:
    """Return a command that prints a text and ends with a status."""
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({status})"]


def run(tmp_path: Path, first: list[str], second: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, str(tmp_path / "log"), *first, "--beside", *second],
        capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("first", "second", "expected"), [
    (0, 0, 0), (5, 0, 0), (0, 5, 0), (1, 0, 1), (0, 1, 1), (2, 5, 1),
])
def test_one_failure_is_a_failure_and_nothing_chosen_is_none(
        tmp_path: Path, first: int, second: int, expected: int) -> None:
    """The exit status is 0 if each command ended with 0 or with pytest's 5."""
    ended = run(tmp_path, ending_with(first), ending_with(second))
    assert (ended.returncode, ended.stderr) == (expected, "")


def test_the_output_of_the_second_comes_at_the_end_and_stays_in_the_log(tmp_path: Path) -> None:
    ended = run(tmp_path, ending_with(0, "of the first"), ending_with(0, "of the second"))
    assert ended.stdout == "of the first\nof the second\n"
    assert (tmp_path / "log").read_text() == "of the second\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both_and_is_waited_for(tmp_path: Path, number: signal.Signals) -> None:
    commands = [[sys.executable, "-c", PATIENT, str(tmp_path), name]
                for name in ("first", "second")]
    started = subprocess.Popen(
        [sys.executable, SCRIPT, str(tmp_path / "log"), *commands[0], "--beside", *commands[1]],
        stdout=subprocess.PIPE, text=True)
    for name in ("first", "second"):
        wait_until((tmp_path / f"{name}-ready").exists)
    started.send_signal(number)
    printed, _ = started.communicate(timeout=60)
    assert printed == "first ended\nsecond ended\n"
    assert [(tmp_path / f"{name}-ended").read_text() for name in ("first", "second")] == \
        [number.name] * 2
    assert started.returncode == 1
