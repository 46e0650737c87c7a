"""``CloseHook``: runs a command for each finished file, one at a time, beside the archiving."""

from __future__ import annotations

import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading

from nsqclient.cli.archive.log import Log
from nsqclient.cli.goflags import CommandLineError
from nsqclient.runtime.plurals import counted

#: Seconds that the last commands have at the end.
_LAST_COMMANDS = 30.0


class CloseHook:
    """Calls a command with the path of each finished file as its last argument.

    Args:
        command: words as in a shell; no shell runs it, so that names of files need no quotes.
        log: where to say that a command failed.

    Raises:
        CommandLineError: no such program.

    Life: a thread starts with the object; ``close()`` lets it finish what waits. Threads: any.
    """

    def __init__(self, command: str, log: Log) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise CommandLineError(f"--exec-on-close {command!r}: {exc}") from None
        if not self._words or shutil.which(self._words[0]) is None:
            raise CommandLineError(f"--exec-on-close {command!r}: no such program")
        self._log = log
        self._paths: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nsq-exec-on-close", daemon=True)
        self._thread.start()

    def __call__(self, path: str) -> None:
        """Have the command run for a file; returns at once."""
        self._paths.put(path)

    def close(self, timeout: float = _LAST_COMMANDS) -> bool:
        """Wait for the commands that are due; False if some were left. Blocks: ``timeout``."""
        self._paths.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._log.error(
                "--exec-on-close did not end in %g s; left out: about %s",
                timeout, counted(self._paths.qsize() - 1, "file"),
            )
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            path = self._paths.get()
            if path is None:
                return
            try:
                # stdout belongs to the tool; a session of its own keeps a Ctrl-C away.
                status = subprocess.run(
                    [*self._words, path], stdin=subprocess.DEVNULL, stdout=_stderr(),
                    env={**os.environ, "NSQ_FILE": path}, start_new_session=True, check=False,
                ).returncode
            except OSError as exc:
                self._log.error("--exec-on-close for %s: %s", path, exc)
            else:
                if status != 0:
                    self._log.error("--exec-on-close for %s: exit status %d", path, status)


def _stderr() -> int:
    """The descriptor of stderr, or of nothing where a program has replaced it."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL
