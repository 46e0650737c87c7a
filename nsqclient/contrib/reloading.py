"""Restarts a command when code changes: the command runs in a child, this process watches files.

Werkzeug promises its reloader to its own development server alone, and it ends where the changed
code cannot be imported; Django's belongs to Django.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

#: In the environment of the child, which runs the command itself.
_CHILD = "NSQCLIENT_RELOADED"
#: Seconds between two looks at the files.
_INTERVAL = 0.5
#: Seconds that a child has to stop before a restart; nsqd delivers again what it had not finished.
_STOP_TIMEOUT = 3.0


def is_child() -> bool:
    """Tell whether this process was started by a ``Reloader``."""
    return _CHILD in os.environ


class Reloader:
    """Runs this process's command line in a child, and again whenever a source file changes.

    A child that ends with an error is not the end: a change is waited for.

    Args:
        folder: sources to watch besides those of the modules that are loaded here.
        say: is told what happens, in a line.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._signals: list[int] = []

    def run(self) -> int:
        """Run until the child ends in order, or until SIGINT or SIGTERM, which it is given too.

        Only in the main thread. Returns: the exit status of the last child.
        """
        taken = (signal.SIGINT, signal.SIGTERM)
        before = {
            number: signal.signal(number, lambda number, frame: self._signals.append(number))
            for number in taken
        }
        try:
            while True:
                files = self._look()
                child = subprocess.Popen(
                    [sys.executable, *sys.orig_argv[1:]], env={**os.environ, _CHILD: "1"})
                try:
                    changed = self._watch(child, files)
                finally:
                    status = self._end(child)
                if not changed:
                    return status
                self._say(f"{changed} has changed: starting again")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _look(self) -> dict[str, int]:
        """Return every source file and when it was changed last, in nanoseconds."""
        loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        found = {}
        for path in {*map(str, filter(None, loaded)), *map(str, self._folder.rglob("*.py"))}:
            try:
                found[path] = os.stat(path).st_mtime_ns
            except OSError:
                continue  # removed just now, or inside of a zip file
        return found

    def _watch(self, child: subprocess.Popen[bytes], files: dict[str, int]) -> str:
        """Wait for a change, a signal, or the end in order; return the file that has changed."""
        pause = threading.Event()
        failed = False
        while not self._signals and not pause.wait(_INTERVAL):
            for path, changed in self._look().items():
                if files.get(path) != changed:
                    return path
            status = child.poll()
            if status == 0:
                break
            if status is not None and not failed:
                failed = True
                self._say(f"it ended with status {status}: waiting for a change")
        return ""

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """Stop the child as its own signals do; return its exit status."""
        if not self._signals:
            child.terminate()
            try:
                return child.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                child.kill()
                return child.wait()
        # A terminal has given Ctrl-C to both already, and a second one would break off the stop.
        if self._signals[0] == signal.SIGTERM or not sys.stdin.isatty():
            child.send_signal(self._signals[0])
        given = 1
        while True:
            try:
                return child.wait(_INTERVAL)
            except subprocess.TimeoutExpired:
                if len(self._signals) > given:
                    child.send_signal(self._signals[given])
                    given += 1
