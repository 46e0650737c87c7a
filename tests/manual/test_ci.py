"""``.ci/run`` runs the README's commands first, and fails if one step fails."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.support.docs.pages import ROOT, named
from tests.support.processes import user_environment

SCRIPT = ROOT / ".ci" / "run"
#: Stands for make: notes how it was started, prints closing lines, fails at one target.
FAKE_MAKE = """#!/bin/sh
echo "make $*, level ${MAKELEVEL-none}, flags ${MAKEFLAGS-none}, CI $CI" >>"$NOTES"
echo "= 5 passed in 1.00s ="
test "$1" = test && for n in 6 7 8; do echo "= $n passed, 1 skipped in 2.00s ="; done
test "$1" != "$FAILING"
"""


def run(tmp_path: Path, failing: str = "") -> tuple[int, list[str], list[str]]:
    """Run the script with a make that only takes notes and fails at one target.

    Return status, output, notes.
    """
    (tmp_path / "checkout" / ".ci").mkdir(parents=True)
    script = shutil.copy(SCRIPT, tmp_path / "checkout" / ".ci" / "run")
    (tmp_path / "make").write_text(FAKE_MAKE)
    (tmp_path / "make").chmod(0o755)
    ended = subprocess.run(
        [script], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
             "NOTES": str(tmp_path / "notes"), "FAILING": failing, "CHROMIUM": "none",
             "MAKELEVEL": "1", "MAKEFLAGS": "w", "CI": ""})
    return ended.returncode, ended.stdout.splitlines(), (
        tmp_path / "notes").read_text().splitlines()


def test_the_commands_of_the_readme_are_the_first_steps_word_for_word(tmp_path: Path) -> None:
    """Nothing runs before; each has the environment of a user's shell, and CI=true needs Go."""
    status, output, notes = run(tmp_path)
    commands = named("make demo")[0].commands
    assert status == 0
    assert notes[:2] == [f"{command}, level none, flags none, CI true" for command in commands]
    steps = re.findall(r"^step (.*?) *(?:#.*)?$", SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert steps[:2] == commands
    # The last lines close the three runs of pytest, below a line for each step.
    assert output[-3:] == [f"= {n} passed, 1 skipped in 2.00s =" for n in (6, 7, 8)]
    steps = [line.split()[:3] for line in output[-3 - len(notes):-3]]
    assert steps == [[*note.split(",")[0].split(), "passed"] for note in notes]


def test_a_step_that_fails_has_no_second_try(tmp_path: Path) -> None:
    status, output, notes = run(tmp_path, "test")
    assert status == 1
    assert len([note for note in notes if note.startswith("make test,")]) == 1
    assert [line for line in output if re.match(r"make test +FAILED", line)]
    assert notes[-1].startswith("make test-external,")


def variables(*names: str) -> dict[str, list[str]]:
    rules = "".join(f"show:;@echo '{name}=$({name})'\n" if not number else
                    f"\t@echo '{name}=$({name})'\n" for number, name in enumerate(names))
    shown = subprocess.run(
        ["make", "--no-print-directory", "-f", "Makefile", "-f", "-", "show"], cwd=ROOT,
        input=rules, capture_output=True, text=True, check=True, timeout=60,
        env=user_environment()).stdout
    return {name: words.split() for name, _, words in
            (line.partition("=") for line in shown.splitlines())}


def test_each_file_of_tests_is_in_one_part() -> None:
    """So the parts that ``make help`` names are together what ``make test`` runs."""
    parts = variables("PARTS")["PARTS"]
    places = [place for words in variables(*(f"PART_{part}" for part in parts)).values()
              for place in words]
    found = Counter(
        str(path) for place in places
        for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("test_*.py"))
    )
    assert found == Counter(str(path) for path in (ROOT / "tests").rglob("test_*.py"))


def workflow(name: str) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(
        (ROOT / ".github/workflows" / name).read_text("utf-8"))["jobs"]
    return jobs


def commands(jobs: dict[str, Any]) -> list[str]:
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


def test_the_workflow_runs_the_steps_in_parts() -> None:
    jobs = workflow("ci.yml")
    checks, tests = (jobs[name]["strategy"]["matrix"] for name in ("checks", "test"))
    steps = re.findall(r"^step make ([\w-]+)", SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert sorted([*checks["step"], "test"]) == sorted(steps)
    assert tests["part"] == [*variables("PARTS")["PARTS"], "python", "jvm"]
    settings = (ROOT / "setup.cfg").read_text("utf-8")
    assert tests["python"] == re.findall(r"Python :: (3\.\d+)$", settings, re.MULTILINE)
    assert commands(jobs) == ["make ${{ matrix.step }}", "make test-${{ matrix.part }}"]


def test_long_tests_run_each_night() -> None:
    assert "test-long" not in SCRIPT.read_text("utf-8")
    assert commands(workflow("nightly.yml")) == ["make test-long"]
