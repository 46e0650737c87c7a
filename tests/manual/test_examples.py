"""The examples end well, and print what the pages show."""

import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT, named, text_of
from tests.support.processes import LIMIT, user_environment

OUTPUTS = {
    "examples/topology_metrics.py": named("output of examples/topology_metrics.py"),
    "examples/topology_persistence.py": named("output of examples/topology_persistence.py"),
    "examples/topology_distributed.py": named("output of examples/topology_distributed.py"),
}


@pytest.mark.parametrize("path", OUTPUTS)
def test_an_example_prints_what_the_page_shows(path: str, capfd, leak_guard) -> None:
    [block] = OUTPUTS[path]
    runpy.run_path(str(ROOT / path), run_name="__main__")
    assert capfd.readouterr().out == block.text.rstrip("\n") + "\n"


@pytest.mark.parametrize("example, printed", [
    # A job that appends every order of two nights; the tests of a handler.
    ("drain_to_csv", "night 1: 500 rows, 500 orders\nnight 2: 1000 rows, 1000 orders\n"),
    ("handler_tests", ".*4 passed.*"),
])
def test_a_project_runs_to_its_end(example: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example / "run.py")], capture_output=True,
        text=True, timeout=110, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(printed, done.stdout, re.DOTALL)


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


def test_an_interrupt_ends_the_demo(tmp_path: Path) -> None:
    """Its publishers end too, although most lines are left."""
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"line\n" * 300_000)
    with subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "demo.py")], cwd=tmp_path, text=True,
        env={**user_environment(), "PYTHONPATH": str(ROOT), "INPUT": str(lines)},
        stderr=subprocess.PIPE,
    ) as demo:
        try:
            assert demo.stderr is not None
            assert any(line.startswith("published") for line in demo.stderr)
            demo.send_signal(signal.SIGINT)
            assert demo.wait(LIMIT) == 130
            assert "interrupted" in demo.stderr.read()
        finally:
            demo.kill()
