"""A terminal for the commands that the manual shows: a shell, a folder, and programs on its PATH.

``nsqclient``, ``nsqd``, ``flask`` and ``python`` run from this checkout and interpreter; ``curl``
and ``jq`` are stand-ins with the options that the manual uses, so that no machine needs them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.processes import CHECKOUT, PROGRAMS, user_environment
from tests.support.waiting import wait_until

#: Seconds for one command, on a busy machine.
LIMIT = 60.0
_PYTHON = shlex.quote(sys.executable)
_PROGRAMS = {
    "nsqclient": f"{_PYTHON} -m nsqclient",
    "nsqd": f"{_PYTHON} -m nsqclient nsqd",
    "python": _PYTHON,
    "flask": f"{_PYTHON} -m flask",
    "django-admin": f"{_PYTHON} -m django",
    "curl": f"{_PYTHON} {shlex.quote(str(PROGRAMS / 'curl.py'))}",
    "jq": f"{_PYTHON} {shlex.quote(str(PROGRAMS / 'jq.py'))}",
}
#: A server, and the usual addresses whose real ones its log shows.
_LISTENS = {
    "nsqlookupd": {"TCP": "127.0.0.1:4160", "HTTP": "127.0.0.1:4161"},
    "nsqd": {"TCP": "127.0.0.1:4150", "HTTP": "127.0.0.1:4151"},
    "nsqadmin": {"HTTP": "127.0.0.1:4171"},
}


def _listen_to_ctrl_c() -> None:
    """Tests in the background ignore SIGINT, and so would the programs that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Command:
    def __init__(self, text: str, terminal: Terminal, number: int) -> None:
        self.text = text
        self._stdout = terminal.folder / f".stdout-{number}"
        self._stderr = terminal.folder / f".stderr-{number}"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                ["bash", "-c", text], cwd=terminal.folder, env=terminal.environment,
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
                preexec_fn=_listen_to_ctrl_c,
            )

    @property
    def output(self) -> str:
        return self._stdout.read_text(encoding="utf-8")

    @property
    def log(self) -> str:
        return self._stderr.read_text(encoding="utf-8")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.output + self.log or self._process.poll() is not None,
                   LIMIT, f"it does not say {text!r}: {self.text}")
        assert text in self.output + self.log, f"{self.text}: {self.output} {self.log}"

    def end(self, timeout: float = LIMIT) -> int:
        return self._process.wait(timeout)

    def interrupt(self) -> int:
        os.killpg(self._process.pid, signal.SIGINT)
        return self.end()

    def kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of it has ended
        self._process.wait()


class Terminal:
    """Types commands of the manual in a folder of its own.

    Args:
        replace: what stands on the page -> what stands for it here, such as an address. Addresses
            are replaced as a whole, and all in one pass.
    """

    def __init__(self, folder: Path, replace: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.replace = dict(replace or {})
        programs = folder / ".programs"
        programs.mkdir()
        self.environment = {
            **user_environment(), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1",
        }
        self._programs = programs
        self._commands: list[Command] = []
        for name, words in _PROGRAMS.items():
            self.add_program(name, f'exec {words} "$@"')

    def add_program(self, name: str, script: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def here(self, text: str) -> str:
        if not self.replace:
            return text
        longest = sorted(self.replace, key=len, reverse=True)
        pattern = "|".join(rf"(?<![\w.]){re.escape(usual)}(?!\w)" for usual in longest)
        return re.sub(pattern, lambda found: self.replace[found[0]], text)

    def start(self, command: str) -> Command:
        started = Command(self.here(command), self, len(self._commands))
        self._commands.append(started)
        return started

    def serve(self, command: str) -> Command:
        """Start a server on free ports; from now on they stand for the usual addresses."""
        words = shlex.split(command)
        listens = _LISTENS[words[1] if words[0] == "nsqclient" else words[0]]
        flags = [f"--{kind.lower()}-address=127.0.0.1:0" for kind in listens]
        if "--tls-cert" in command:
            flags.append("--https-address=127.0.0.1:0")
        server = self.start(" ".join([command.removesuffix("&"), *flags]))
        for kind, usual in listens.items():
            server.wait_for(f"{kind}: listening on ")
            self.replace[usual] = re.findall(rf"{kind}: listening on (?:http://)?([\d.:]+)",
                                             server.log)[0]
        return server

    def run(self, command: str) -> str:
        started = self.start(command)
        status = started.end()
        assert status == 0, f"{started.text}: status {status}: {started.output}{started.log}"
        return started.output

    def close(self) -> None:
        for command in self._commands:
            command.kill()
