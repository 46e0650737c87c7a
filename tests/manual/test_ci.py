"""``.ci/run`` runs what README.rst says, and fails where one step fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.pages import ROOT, named

SCRIPT = ROOT / ".ci" / "run"
#: Stands for make: notes how it was started, prints closing lines, fails at one target.
FAKE_MAKE = """#!/bin/sh
echo "make $*, level ${MAKELEVEL-none}, flags ${MAKEFLAGS-none}, CI $CI" >>"$NOTES"
echo "= 5 passed in 1.00s ="
test "$1" = test && echo "= 7 passed, 1 skipped in 2.00s ="
test "$1" != "$FAILING"
"""


def run(tmp_path: Path, failing: str = "") -> tuple[int, list[str], list[str]]:
    """Run the script with a make that only takes notes; return status, output, notes."""
    (tmp_path / "checkout" / ".ci").mkdir(parents=True)
    script = shutil.copy(SCRIPT, tmp_path / "checkout" / ".ci" / "run")
    make = tmp_path / "make"
    make.write_text(FAKE_MAKE)
    make.chmod(0o755)
    ended = subprocess.run(
        [script], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
             "NOTES": str(tmp_path / "notes"), "FAILING": failing, "CHROMIUM": "none",
             "MAKELEVEL": "1", "MAKEFLAGS": "w", "CI": ""})
    notes = (tmp_path / "notes").read_text().splitlines()
    return ended.returncode, ended.stdout.splitlines(), notes


def test_the_commands_of_the_readme_are_steps_word_for_word(tmp_path: Path) -> None:
    """Each runs once, in the environment of a user's shell; CI=true lets no missing Go pass."""
    status, _, notes = run(tmp_path)
    assert status == 0
    for command in named("make demo")[0].commands:
        assert re.search(rf"^step {re.escape(command)} *(#.*)?$", SCRIPT.read_text("utf-8"), re.M)
        assert notes.count(f"{command}, level none, flags none, CI true") == 1


def test_the_last_line_is_that_of_pytest(tmp_path: Path) -> None:
    """It stands below the summary, which has a line for each step."""
    _, output, notes = run(tmp_path)
    assert output[-1] == "= 7 passed, 1 skipped in 2.00s ="
    steps = [line.split()[:3] for line in output[-1 - len(notes):-1]]
    assert steps == [[*note.split(",")[0].split(), "passed"] for note in notes]


def test_a_step_that_fails_has_no_second_try(tmp_path: Path) -> None:
    """The others run all the same; the exit status is 1."""
    status, output, notes = run(tmp_path, failing="test")
    assert status == 1
    assert len([note for note in notes if note.startswith("make test,")]) == 1
    assert re.search(r"make test +FAILED", output[-2])
    assert run(tmp_path / "again", failing="style")[0] == 1
