"""Who takes part: how each contender's program is made ready and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nsqd import CHECKOUT, BenchmarkError, build_nsq

HERE = Path(__file__).resolve().parent
CACHE = CHECKOUT / ".cache" / "bench"
#: What each of the other Python clients needs. Their own requirements are open ranges; the versions
#: are pinned so that two machines measure the same.
REQUIREMENTS = {
    "pynsq": ("pynsq==0.9.1", "tornado==6.6.1"),
    "gnsq": ("gnsq==1.0.2", "gevent==26.9.0"),
}
#: No contender takes longer than this for one measurement, in seconds.
LONGEST = 600


class Measurement(NamedTuple):
    """One run of one contender."""

    name: str
    version: str
    messages: int
    seconds: float
    #: Processor time of the contender's process, its start included.
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


def _python_of(name: str) -> str:
    """Return the interpreter of a virtual environment that holds another Python client."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    stamp = folder / "installed"
    wanted = " ".join(REQUIREMENTS[name])
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {wanted}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install",
             *REQUIREMENTS[name]],
            check=True,
        )
        stamp.write_text(wanted)
    return str(python)


def _go_program(name: str) -> str:
    """Build one of the Go programs and return its path; quick when nothing changed."""
    go = build_nsq.find_go()
    if go is None:
        raise BenchmarkError("go-nsq takes part and there is no Go: install it, or use --only")
    target = CACHE / "go" / name
    subprocess.run(
        [go, "build", "-buildvcs=false", "-mod=readonly", "-o", str(target), f"./{name}"],
        cwd=HERE / "go",
        check=True,
    )
    return str(target)


def _python_command(name: str, kind: str) -> list[str]:
    python = _python_of(name) if name in REQUIREMENTS else sys.executable
    return [python, str(HERE / "contenders" / f"{kind}_{name}.py")]


_PREPARE: dict[str, Callable[[str], list[str]]] = {
    "go-nsq": lambda kind: [_go_program(kind)],
    "pynsq": lambda kind: _python_command("pynsq", kind),
    "gnsq": lambda kind: _python_command("gnsq", kind),
    "nsqclient": lambda kind: _python_command("nsqclient", kind),
    "limit": lambda kind: _python_command("limit", kind),
}
CONSUMERS = ("go-nsq", "pynsq", "gnsq", "nsqclient", "limit")
PUBLISHERS = ("go-nsq", "pynsq", "gnsq", "nsqclient")


def prepare(names: list[str], kind: str) -> dict[str, list[str]]:
    """Make contenders ready for ``consume`` or ``publish``; return the command of each."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return {name: _PREPARE[name](kind) for name in names}


def run(command: list[str], arguments: list[object]) -> Measurement | None:
    """Run a contender to its end and return what it measured; None where it does not offer that.

    Raises:
        BenchmarkError: it failed, took too long, or did not print a measurement.
    """
    before = os.times()
    started = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *map(str, arguments)],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        waited = time.monotonic() - started
        raise BenchmarkError(f"{command[-1]} did not end within {waited:.0f} s") from None
    after = os.times()
    if done.returncode != 0:
        raise BenchmarkError(f"{command[-1]} failed:\n{done.stderr[-2000:]}")
    try:
        line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise BenchmarkError(f"{command[-1]} printed no measurement: {done.stdout!r}") from None
    if "skipped" in line:
        print(f"  {line['name']}: {line['skipped']}", flush=True)
        return None
    cpu = after.children_user + after.children_system - before.children_user
    return Measurement(cpu_seconds=cpu - before.children_system, **line)
