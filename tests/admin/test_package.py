"""The installed package contains the pages."""

from __future__ import annotations

import configparser
import fnmatch
from pathlib import Path

import nsqclient

PACKAGE = Path(nsqclient.__file__).parent
CHECKOUT = PACKAGE.parent


def test_pages_and_assets_are_in_the_wheel():
    """Every file of the pages matches the package data of setup.cfg."""
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    patterns = settings["options.package_data"]["nsqclient"].split()
    files = [path for folder in ("static", "templates")
             for path in (PACKAGE / "admin" / folder).iterdir()]
    assert len(files) > 20
    for path in files:
        name = path.relative_to(PACKAGE).as_posix()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name
