"""``tools/floors.py``: what ``make floors`` installs is what setup.cfg admits."""

import types

import pytest

from tests.support.docs.pages import ROOT, load

SETTINGS = (ROOT / "setup.cfg").read_text(encoding="utf-8")
floors = load("tools/floors.py")


def test_every_requirement_has_a_floor_that_is_installed():
    """urllib3 is one of them: a floor of requests alone would admit an older one."""
    section = SETTINGS.partition("install_requires =\n")[2].partition("\n\n")[0]
    lines = [line.strip() for line in section.splitlines()]
    everywhere = [line.replace(" >= ", "==") for line in lines if ";" not in line]
    assert floors.read_floors(SETTINGS)[:len(everywhere)] == everywhere
    names = [pin.partition("==")[0] for pin in everywhere]
    assert names == ["requests", "urllib3", "python-snappy"]


@pytest.mark.parametrize("minor, names", [(10, ["requests", "tomli"]), (11, ["requests"])])
def test_a_requirement_of_older_pythons_is_for_them_alone(monkeypatch, minor, names):
    monkeypatch.setattr(floors, "sys", types.SimpleNamespace(version_info=(3, minor)))
    text = '[options]\ninstall_requires =\n    requests >= 2\n    tomli >= 2.0; %s\n'
    pins = floors.read_floors(text % 'python_version < "3.11"')
    assert [pin.partition("==")[0] for pin in pins] == names
