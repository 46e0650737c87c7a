"""``tools/floors.py``: what ``make floors`` installs is what setup.cfg admits."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import types

import pytest

from tests.support.docs.pages import ROOT

SETTINGS = (ROOT / "setup.cfg").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def floors() -> types.ModuleType:
    """Return the tool as a module."""
    spec = importlib.util.spec_from_file_location("floors", ROOT / "tools/floors.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_requirement_has_a_floor_that_is_installed(floors):
    """Each line of install_requires becomes a pin; a requirement of another form is refused."""
    section = SETTINGS.partition("install_requires =\n")[2].partition("\n\n")[0]
    lines = [line.strip() for line in section.splitlines()]
    everywhere = [line.replace(" >= ", "==") for line in lines if ";" not in line]
    assert everywhere and floors.read_floors(SETTINGS)[:len(everywhere)] == everywhere
    for line in ("requests", "requests > 2", "requests >= 2, < 3", "requests == 2",
                 'requests >= 2; sys_platform == "linux"'):
        with pytest.raises(ValueError, match="setup.cfg requires"):
            floors.read_floors(f"[options]\ninstall_requires =\n    {line}\n")


@pytest.mark.parametrize("minor, names", [
    (10, ["requests", "tomli"]), (11, ["requests"]), (14, ["requests"]),
])
def test_a_requirement_of_older_pythons_is_for_them_alone(floors, monkeypatch, minor, names):
    """As pip does it."""
    monkeypatch.setattr(floors, "sys", types.SimpleNamespace(version_info=(3, minor)))
    text = '[options]\ninstall_requires =\n    requests >= 2\n    tomli >= 2.0; %s\n'
    pins = floors.read_floors(text % 'python_version < "3.11"')
    assert [pin.partition("==")[0] for pin in pins] == names


def test_what_is_imported_is_required(floors):
    """urllib3 is one of them: a floor of requests alone would admit an older one."""
    names = [pin.partition("==")[0] for pin in floors.read_floors(SETTINGS)]
    assert [name for name in names if name != "tomli"] == ["requests", "urllib3", "python-snappy"]


def test_the_floors_are_installed_before_they_are_tested(floors, monkeypatch, capsys, tmp_path):
    """pip gets the pins; an environment with anything else is a failure, not a test of it."""
    pins, commands = floors.read_floors(SETTINGS), []

    def run(words, **options):
        commands.append(words)
        return subprocess.CompletedProcess(words, 0, stdout="requests==9 urllib3==9\n")

    monkeypatch.setattr(floors, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(floors.venv, "create", lambda *args, **options: None)
    monkeypatch.setattr(floors.subprocess, "run", run)
    assert floors.main([]) == 1
    assert [pin for pin in pins if pin in commands[0]] == pins
    assert "which setup.cfg admits" in capsys.readouterr().err and len(commands) == 2


def test_this_environment_is_not_below_the_floors(floors):
    """Otherwise an old environment would be tested in their place."""
    for pin in floors.read_floors(SETTINGS):
        name, _, floor = pin.partition("==")
        version = importlib.metadata.version(name)
        assert _parts(version) >= _parts(floor), f"{name} {version} is older than {floor}"


def _parts(version):
    return [int(part) for part in version.split(".") if part.isdigit()]
