"""``tools/`` and the settings of services: they agree with setup.cfg, the docs and the Makefile."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.docs.pages import ROOT, load, read

SETTINGS = configparser.ConfigParser()
SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")
package = load("tools/package.py")


def test_each_extra_is_installed_or_for_developers() -> None:
    groups = [set(package.EXTRAS) - {""}, set(package.LARGE_EXTRAS), package.FOR_DEVELOPERS]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert set().union(*groups) == set(SETTINGS["options.extras_require"])


def test_each_module_of_ours_that_is_imported_exists() -> None:
    """A module that was moved is seen here, not by ``make package`` alone."""
    names = {name for modules in (package.EXTRAS | package.LARGE_EXTRAS).values()
             for name in modules if name.partition(".")[0] in ("nsqclient", "pyspark_nsq")}
    paths = [ROOT / name.replace(".", "/") for name in sorted(names)]
    assert [path for path in paths
            if not path.with_suffix(".py").is_file()
            and not (path / "__init__.py").is_file()] == []


def test_every_requirement_has_a_floor_that_is_installed() -> None:
    """urllib3 is one of them: a floor of requests alone would admit an older one."""
    lines = SETTINGS["options"]["install_requires"].strip().splitlines()
    everywhere = [line.replace(" >= ", "==") for line in lines if ";" not in line]
    floors = load("tools/floors.py").read_floors((ROOT / "setup.cfg").read_text("utf-8"))
    assert floors[:len(everywhere)] == everywhere
    names = [pin.partition("==")[0] for pin in everywhere]
    assert names == ["requests", "urllib3", "python-snappy"]


def test_the_page_has_the_versions_of_the_suites_of_others(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    for suite in load("tools/strangers.py").SUITES:
        row = rf"^{suite.name} {re.escape(suite.version)}\s"
        assert re.search(row, read("docs/topics/devserver.rst"), re.MULTILINE)


def test_read_the_docs_builds_what_make_docs_builds() -> None:
    found = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text("utf-8"))
    assert found["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    assert found["python"]["install"] == [
        {"method": "pip", "path": ".", "extra_requirements": ["docs"]}]


@pytest.mark.parametrize(("first", "second", "expected"), [
    (0, 0, 0), (5, 0, 0), (0, 5, 0), (1, 0, 1), (0, 1, 1), (2, 5, 1),
])
def test_one_failure_of_two_side_by_side_is_a_failure(
        tmp_path: Path, first: int, second: int, expected: int) -> None:
    """0 and pytest's 5 are none; the output of the second comes at the end, and is in the log."""
    commands = [[sys.executable, "-c", f"print({status}); raise SystemExit({status})"]
                for status in (first, second)]
    ended = subprocess.run(
        [sys.executable, str(ROOT / "tools/side_by_side.py"), str(tmp_path / "log"), *commands[0],
         "--beside", *commands[1]], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (expected, "")
    assert ended.stdout == f"{first}\n{second}\n"
    assert (tmp_path / "log").read_text() == f"{second}\n"


def test_each_finding_has_its_labels_and_stands_in_the_table() -> None:
    table = read("findings/README.rst")
    listed = set(re.findall(r"^([a-z0-9-]+-[a-z0-9-]+)  ", table, re.MULTILINE))
    scripts = sorted((ROOT / "findings").glob("*.sh"))
    assert {path.stem for path in scripts} == listed
    for path in scripts:
        head = "\n".join(path.read_text(encoding="utf-8").splitlines()[:40])
        labels = re.findall(r"^# (\w+): ", head, re.MULTILINE)
        assert labels == ["Guess", "Happens", "Version", "Source", "Seen", "Needs"], path.name
        assert os.access(path, os.X_OK), path.name
