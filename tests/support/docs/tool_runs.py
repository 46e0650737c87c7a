"""The utilities as processes: ours and the originals, with the same words."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.servers.real_servers import program


def command(kind: str, name: str, *words: str) -> list[str]:
    """The command line of a utility; ``kind`` is "ours" or "original"."""
    if kind == "original":
        return [str(program(name)), *words]
    return [sys.executable, "-m", "nsqclient", name, *words]


def run_tool(
    kind: str, name: str, *words: str, stdin: bytes = b"", timeout: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(kind, name, *words), input=stdin, capture_output=True, timeout=timeout
    )


@contextmanager
def tool(kind: str, name: str, *words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A utility that runs until the block ends; its pipes are closed then."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL} | options
    process = subprocess.Popen(command(kind, name, *words), **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def end(process: subprocess.Popen[bytes], signum: int = signal.SIGTERM) -> int:
    process.send_signal(signum)
    return process.wait(20)
