"""``Reloader``: restarts a command when code changes.

The command runs in a child process; this process watches the files. The reloaders of Werkzeug and
Django are for their own commands; Werkzeug's ends when the changed code cannot be imported, and
Django's when its settings cannot.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from nsqclient.runtime import process_signals
from nsqclient.worker.lifeline import RELOADED, spawn

#: Seconds between two checks of the files.
_INTERVAL = 0.5
#: Seconds for a child to stop before a restart; nsqd redelivers unfinished messages.
_STOP_TIMEOUT = 3.0
#: Exit status of a command line that cannot be right, which no change of the code repairs.
_USAGE = 2


class Reloader:
    """Runs this process's command line in a child, and again whenever a source file changes.

    After a child that ended with an error it waits for a change; only when the very first one
    ends with status 2, since the command line is wrong, it ends with that.

    Args:
        folder: sources to watch beside those of the modules that are loaded here.
        report: called with a line about each restart.
    """

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._report = report
        self._signals: list[int] = []
        # Once: a module that this process imports later, as rglob does, is no change.
        loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self._loaded = [str(path) for path in loaded if path]

    def run(self) -> int:
        """Run until the child exits with 0, or until SIGINT or SIGTERM, which it gets too.

        A second signal kills the child. Only in the main thread. Returns: the exit status of the
        last child; 128 plus the number of the signal that ended it.
        """
        taken = (signal.SIGINT, signal.SIGTERM)
        before = {
            number: signal.signal(number, lambda number, frame: self._signals.append(number))
            for number in taken
        }
        process_signals.has_begun()
        is_first = True
        try:
            while True:
                files = self._scan()
                child = spawn(RELOADED)
                try:
                    changed = self._watch(child.process, files, is_first)
                finally:
                    status = self._end(child.process)
                    child.socket.close()
                if not changed:
                    return status
                is_first = False
                self._report(f"{changed} has changed: starting again")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _scan(self) -> dict[str, int]:
        """Return every source file with its modification time in nanoseconds."""
        found = {}
        for path in {*self._loaded, *map(str, self._folder.rglob("*.py"))}:
            try:
                found[path] = os.stat(path).st_mtime_ns
            except OSError:
                continue  # removed just now, or inside of a zip file
        return found

    def _watch(
        self, child: subprocess.Popen[bytes], files: dict[str, int], is_first: bool
    ) -> str:
        """Wait for a change, a signal, or a status that ends it; return the changed file."""
        pause = threading.Event()
        failed = False
        while not self._signals and not pause.wait(_INTERVAL):
            for path, changed in self._scan().items():
                if files.get(path) != changed:
                    return path
            status = child.poll()
            if status == 0 or status == _USAGE and is_first:
                break
            if status is not None and not failed:
                failed = True
                self._report(f"it ended with status {status}: waiting for a change")
        return ""

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """Stop the child with the signals of this process; return its exit status."""
        if not self._signals:
            child.terminate()
            try:
                return child.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                child.kill()
                return child.wait()
        # A terminal sends Ctrl-C to both processes: a child minds the first signal only.
        child.send_signal(self._signals[0])
        while True:
            try:
                status = child.wait(_INTERVAL)
            except subprocess.TimeoutExpired:
                if len(self._signals) > 1:
                    child.kill()
            else:
                if [-status] == self._signals:
                    return 0  # before the child handled signals: it had not begun
                return status if status >= 0 else 128 - status
