"""``tools/package.py``, which ``make package`` and ``make release`` run."""

from __future__ import annotations

import configparser
import os
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT, load

package = load("tools/package.py")


def test_each_extra_is_installed_or_for_developers() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    groups = [set(package.EXTRAS) - {""}, set(package.LARGE_EXTRAS), package.FOR_DEVELOPERS]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert set().union(*groups) == set(settings["options.extras_require"])


def test_each_module_of_ours_that_is_imported_exists() -> None:
    """A module that was moved is seen here, not by ``make package`` alone."""
    names = {name for modules in (package.EXTRAS | package.LARGE_EXTRAS).values()
             for name in modules if name.partition(".")[0] in ("nsqclient", "pyspark_nsq")}
    paths = [ROOT / name.replace(".", "/") for name in sorted(names)]
    assert [path for path in paths
            if not path.with_suffix(".py").is_file()
            and not (path / "__init__.py").is_file()] == []


def test_pythons_that_run_are_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PATH and in pyenv; a program that fails is none, nor is a Python before 3.10."""
    programs = {"one/python3.98": 0, "one/python3.9": 0, "two/python3.99": 1,
                "pyenv/versions/3.97.1/bin/python3.97": 0, "two/python3.98": 0}
    for name, status in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {status}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in ("one", "two")))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert package.pythons() == {
        "%d.%d" % sys.version_info[:2]: sys.executable,
        "3.97": str(tmp_path / "pyenv/versions/3.97.1/bin/python3.97"),
        "3.98": str(tmp_path / "one/python3.98"),
    }
