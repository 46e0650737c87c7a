"""``.ci/run`` runs what README.rst says, and fails where one step fails; the parts of its tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.support.docs.pages import ROOT, named
from tests.support.processes import user_environment

SCRIPT = ROOT / ".ci" / "run"
#: Stands for make: notes how it was started, prints closing lines, fails at one target.
FAKE_MAKE = """#!/bin/sh
echo "make $*, level ${MAKELEVEL-none}, flags ${MAKEFLAGS-none}, CI $CI" >>"$NOTES"
echo "= 5 passed in 1.00s ="
test "$1" = test && echo "$FAILURES= ${FAILED}6 passed in 1.00s =" &&
    echo "= 7 passed, 1 skipped in 2.00s ="
test "$1" != "$FAILING"
"""
#: Stands for Python: a test called "always" fails again.
FAKE_PYTHON = """#!/bin/sh
echo "python $*" >>"$NOTES"
case "$*" in *always*) exit 1 ;; esac
"""


def run(tmp_path: Path, failing: str = "", *tests: str,
        failed: int = 0) -> tuple[int, list[str], list[str]]:
    """Run the script with a make that only takes notes; return status, output, notes.

    ``failing`` is the step that fails; ``tests`` are those that its output names, and ``failed`` is
    the number in its closing line, if another one.
    """
    (tmp_path / "checkout" / ".ci").mkdir(parents=True)
    script = shutil.copy(SCRIPT, tmp_path / "checkout" / ".ci" / "run")
    python = tmp_path / "checkout" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for program, text in ((tmp_path / "make", FAKE_MAKE), (python, FAKE_PYTHON)):
        program.write_text(text)
        program.chmod(0o755)
    ended = subprocess.run(
        [script], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
             "NOTES": str(tmp_path / "notes"), "FAILING": failing, "CHROMIUM": "none",
             "FAILURES": "".join(f"FAILED {test} - assert 1 == 2\n" for test in tests),
             "FAILED": f"{failed or len(tests)} failed, " if tests else "",
             "MAKELEVEL": "1", "MAKEFLAGS": "w", "CI": ""})
    fetched, *notes = (tmp_path / "notes").read_text().splitlines()
    assert fetched.startswith("make fetch,")  # before the steps; it may fail
    return ended.returncode, ended.stdout.splitlines(), notes


def test_the_commands_of_the_readme_are_steps_word_for_word(tmp_path: Path) -> None:
    """Each runs once, in the environment of a user's shell; CI=true lets no missing Go pass."""
    status, _, notes = run(tmp_path)
    assert status == 0
    for command in named("make demo")[0].commands:
        assert re.search(rf"^step {re.escape(command)} *(#.*)?$", SCRIPT.read_text("utf-8"), re.M)
        assert notes.count(f"{command}, level none, flags none, CI true") == 1


def test_the_last_lines_are_those_of_pytest(tmp_path: Path) -> None:
    """Of both runs of ``make test``, below the summary, which has a line for each step."""
    _, output, notes = run(tmp_path)
    assert output[-2:] == ["= 6 passed in 1.00s =", "= 7 passed, 1 skipped in 2.00s ="]
    steps = [line.split()[:3] for line in output[-2 - len(notes):-2]]
    assert steps == [[*note.split(",")[0].split(), "passed"] for note in notes]


def test_a_step_that_fails_has_no_second_try(tmp_path: Path) -> None:
    """The others run all the same; the exit status is 1."""
    status, output, notes = run(tmp_path, "test")
    assert status == 1
    assert len([note for note in notes if note.startswith("make test,")]) == 1
    assert [line for line in output if re.match(r"make test +FAILED", line)]
    assert run(tmp_path / "again", "style", "tests/test_a.py::test_b")[0] == 1


def test_tests_that_pass_when_they_run_again_are_named_as_flaky(tmp_path: Path) -> None:
    """They run once more, alone, and the summary names each."""
    names = ["tests/test_a.py::test_b[x]", "tests/test_c.py::test_d"]
    status, output, notes = run(tmp_path, "test", *names)
    assert status == 0
    assert f"python -m pytest -n 0 {' '.join(names)}" in notes
    assert [line for line in output if re.match(r"make test +FLAKY", line)]
    assert [line for line in output if line.startswith("FLAKY: ")] == [
        f"FLAKY: {name}" for name in names]


@pytest.mark.parametrize(("names", "failed"), [
    (["tests/test_a.py::test_always"], 1),
    ([f"tests/test_a.py::test_{number}" for number in range(4)], 4),
    (["tests/test_a.py::test_b"], 2),
], ids=["fails again", "too many", "not all are named"])
def test_tests_that_fail_again_or_are_many_have_failed(tmp_path: Path, names: list[str],
                                                       failed: int) -> None:
    """The status is 1, and nothing is called flaky."""
    status, output, _ = run(tmp_path, "test", *names, failed=failed)
    assert status == 1
    assert not [line for line in output if "FLAKY" in line]
    assert [line for line in output if re.match(r"make test +FAILED", line)]


def variables(*names: str) -> dict[str, list[str]]:
    """Return the words of variables of the Makefile, as make expands them."""
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


def test_the_workflow_runs_the_steps_in_parts() -> None:
    """Each step of the script, the parts in place of ``make test``, on each Python of setup.cfg."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]
    checks, tests = (jobs[name]["strategy"]["matrix"] for name in ("checks", "test"))
    steps = re.findall(r"^step make ([\w-]+)", SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert [*checks["step"], "test", "test-long"] == steps
    assert tests["part"] == [*variables("PARTS")["PARTS"], "jvm"]
    settings = (ROOT / "setup.cfg").read_text("utf-8")
    assert tests["python"] == re.findall(r"Python :: (3\.\d+)$", settings, re.MULTILINE)
    assert [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step] == [
        "make ${{ matrix.step }}", "make test-${{ matrix.part }}", "make test-long"]
