"""The parts of the tests, and the workflows that run them."""

import re
import subprocess
from collections import Counter
from typing import Any

import yaml

from tests.support.docs.pages import ROOT
from tests.support.processes import user_environment

SCRIPT = ROOT / ".ci" / "run"


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
