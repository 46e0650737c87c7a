"""``make demo`` does what README says of it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT, named, text_of
from tests.support.processes import user_environment


def test_make_demo_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's own command, without the making of an environment; numbers may differ."""
    monkeypatch.setenv("MAKELEVEL", "1")  # as in `make test ARGS=--no-such-flag`
    monkeypatch.setenv("MAKEFLAGS", "w -- ARGS=--no-such-flag")
    demo, tests = named("make demo")[0].commands
    assert tests == "make test"  # which is running now
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    output = subprocess.run(
        [*demo.split(), "--file", str(ROOT / "Makefile"), "--old-file", ".venvs/run/installed",
         f"RUN={shlex.quote(sys.executable)}"], env={**user_environment(), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100).stdout
    shown = text_of(named("output of make demo")).splitlines()
    printed = output.splitlines()[-len(shown):]
    assert [re.sub(r"[ \d,-]+", "", line) for line in printed] == [
        re.sub(r"[ \d,-]+", "", line) for line in shown]
