"""``tools/package.py``, which ``make package`` and ``make release`` run."""

from __future__ import annotations

import configparser
import importlib.util
import os
import sys
import types
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT


@pytest.fixture(scope="module")
def package() -> types.ModuleType:
    """Return the tool as a module."""
    spec = importlib.util.spec_from_file_location("package", ROOT / "tools/package.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_extra_is_installed_or_for_developers(package: types.ModuleType) -> None:
    """A new one in setup.cfg is added to one of the lists."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    groups = [set(package.EXTRAS) - {""}, set(package.LARGE_EXTRAS), package.FOR_DEVELOPERS]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert set().union(*groups) == set(settings["options.extras_require"])


def test_each_module_of_ours_that_is_imported_exists(package: types.ModuleType) -> None:
    """A module that was moved is seen here, not by ``make package`` alone."""
    names = {name for modules in (package.EXTRAS | package.LARGE_EXTRAS).values()
             for name in modules if name.partition(".")[0] in ("nsqclient", "pyspark_nsq")}
    paths = [ROOT / name.replace(".", "/") for name in sorted(names)]
    assert [path for path in paths
            if not path.with_suffix(".py").is_file()
            and not (path / "__init__.py").is_file()] == []


def test_pythons_that_run_are_found_once(
    package: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_the_command_that_uploads_is_shown_and_not_run(
    package: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the files in dist."""
    monkeypatch.setattr(package, "CHECKOUT", tmp_path)
    monkeypatch.setattr(package, "DIST", tmp_path / "dist")
    (tmp_path / "dist").mkdir()
    for name in ("a.whl", "a.tar.gz"):
        (tmp_path / "dist" / name).touch()
    assert package.upload_command() == "python -m twine upload dist/a.tar.gz dist/a.whl"
