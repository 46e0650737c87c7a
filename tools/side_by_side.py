"""Runs two test commands at once; the output of the second is printed when both have ended.

    side_by_side.py LOG FIRST... --beside SECOND...

The second command writes to the file LOG. SIGINT and SIGTERM are sent on to both, with all that
they started. Exit status: 0 if each ended with 0 or 5 (pytest: nothing was chosen), otherwise 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

_SEPARATOR = "--beside"
_GOOD = (0, 5)


class _Pair:
    """The two commands, each in a process group of its own: a signal reaches it once, from here."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._received = 0

    def forward(self, number: int, frame: object = None) -> None:
        """Send a signal to the commands that run, and remember it for a command that starts."""
        self._received = number
        for process in self._running:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it has ended just now
                    os.killpg(process.pid, number)

    def start(self, command: list[str], output: BinaryIO | None = None) -> None:
        """Start a command, unless a signal came first."""
        if not self._received:
            self._running.append(subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT if output else None, start_new_session=True))
        if self._received:
            self.forward(self._received)

    def wait(self) -> int:
        """Wait for both; return the exit status."""
        ended = [process.wait() for process in self._running]
        return int(bool(self._received) or any(status not in _GOOD for status in ended))


def main(arguments: list[str]) -> int:
    """Run the commands."""
    log, *commands = arguments
    middle = commands.index(_SEPARATOR)
    pair = _Pair()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pair.forward)
    path = Path(log)
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as output:
        pair.start(commands[middle + 1:], output)
        pair.start(commands[:middle])
        status = pair.wait()
    sys.stdout.buffer.write(path.read_bytes())
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
