"""The contenders: how the program of each is built and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Callable, Sequence
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


class Line(NamedTuple):
    """The output of a contender, and the resources that its process used."""

    name: str
    version: str
    #: The numbers of its line.
    values: dict[str, float]
    #: Processor time, the start of the process included.
    cpu_seconds: float
    peak_rss_mb: float

    def __str__(self) -> str:
        return "  ".join(f"{key} {value:,.6g}" for key, value in self.values.items())


class Measurement(NamedTuple):
    """One run of one contender that handled a number of messages."""

    name: str
    version: str
    messages: int
    seconds: float
    cpu_seconds: float
    peak_rss_mb: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    def __str__(self) -> str:
        return f"{self.rate:>12,.0f} messages/s"


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


def prepare(names: Sequence[str], kind: str) -> dict[str, list[str]]:
    """Make contenders ready for ``consume``, ``publish`` ...; return the command of each."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return {name: _PREPARE[name](kind) for name in names}


def measure(command: list[str], arguments: list[object]) -> Measurement | None:
    """Run a contender that counts messages; return None if it does not offer the mode.

    Raises:
        BenchmarkError: as ``run``.
    """
    line = run(command, arguments)
    if line is None:
        return None
    return Measurement(
        line.name, line.version, int(line.values["messages"]), line.values["seconds"],
        line.cpu_seconds, line.peak_rss_mb,
    )


def run(command: list[str], arguments: list[object]) -> Line | None:
    """Run a contender and return its line, or None if it does not offer the mode.

    Raises:
        BenchmarkError: it failed, took too long, or did not print a line.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        )
        guard = threading.Timer(LONGEST, process.kill)
        guard.start()
        try:
            # Not wait(): the system knows what this process used, and nobody else's.
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            guard.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        printed, complaint = out.read(), err.read()
    if process.returncode != 0:
        raise BenchmarkError(
            f"{command[-1]} failed ({process.returncode}; longer than {LONGEST} s is killed):"
            f"\n{complaint[-2000:]}"
        )
    try:
        values: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise BenchmarkError(f"{command[-1]} printed no line: {printed!r}") from None
    name, version = values.pop("name"), values.pop("version", "")
    if "skipped" in values:
        print(f"  {name}: {values['skipped']}", flush=True)
        return None
    return Line(
        name, version, values, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    )
