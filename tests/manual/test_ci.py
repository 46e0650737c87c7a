"""The parts of the tests."""

import subprocess
from collections import Counter

from tests.support.docs.pages import ROOT
from tests.support.processes import user_environment


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
