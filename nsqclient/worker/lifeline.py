"""``Lifeline``: the socket between a worker process and its supervisor.

A child reports over it. When the parent ends, also by SIGKILL, the system closes its end, and the
child stops as after SIGTERM. ``PR_SET_PDEATHSIG`` of Linux depends on the parent's *thread*.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, NamedTuple

from nsqclient.runtime.threads import LibraryThread

#: In the environment of a child: "DESCRIPTOR IS_FIRST ROLE".
_VARIABLE = "NSQCLIENT_WORKER_PARENT"
#: Seconds beyond its stop timeout after which a child without a parent ends itself.
_GRACE = 5.0
_ABANDONED = 1


class Child(NamedTuple):
    process: subprocess.Popen[bytes]
    socket: socket.socket


def current_folder() -> str:
    """Return the current folder as the user gave it, with the symbolic link of a deployment."""
    given = os.environ.get("PWD", "")
    try:
        if os.path.isabs(given) and os.path.samefile(given, "."):
            return given
    except OSError:
        pass
    return os.getcwd()


def spawn(role: str, is_first: bool, folder: str) -> Child:
    """Run this process's command line again in a child. Raises OSError.

    ``is_first``: the child prints the list of consumed channels.
    """
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"the folder {folder} is gone: start the worker in a path that stays, such as the"
            " symbolic link to the current release")
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]], pass_fds=[theirs.fileno()], cwd=folder,
            env={**os.environ, _VARIABLE: f"{theirs.fileno()} {is_first:d} {role}"},
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return Child(process, ours)


class Lifeline:
    """A child's end of the socket. Threads: ``report`` from one."""

    def __init__(self, connection: socket.socket, role: str, is_first: bool) -> None:
        self.role = role
        self.is_first = is_first
        self._socket = connection
        self._unsent = b""
        self._is_watching = False

    def watch(self, stop_timeout: float) -> None:
        """Stop this process when its parent ends. Idempotent."""
        if not self._is_watching:
            self._is_watching = True
            LibraryThread(self._watch, "nsq-parent-watch", (stop_timeout,)).launch()

    def _watch(self, stop_timeout: float) -> None:
        try:
            while self._socket.recv(64):
                pass  # a parent says nothing
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        # Not reached by a process that stops in time: this thread is a daemon.
        time.sleep(stop_timeout + _GRACE)
        os._exit(_ABANDONED)

    def report(self, **state: Any) -> None:
        """Send values as JSON to the parent without waiting.

        If the parent is slow, a partly sent report is completed first.
        """
        if not self._unsent:
            self._unsent = json.dumps(state).encode() + b"\n"
        try:
            sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT)
        except OSError:
            return  # full, or the parent is gone: the watch sees to that
        self._unsent = self._unsent[sent:]


_attached: list[Lifeline | None] = []


def attach() -> Lifeline | None:
    """Return this process's Lifeline, or None. Removes the variable from the environment."""
    if not _attached:
        descriptor, is_first, role = [*os.environ.pop(_VARIABLE, "").split(" ", 2), "", "", ""][:3]
        found = None
        if role and descriptor.isdecimal():
            try:
                connection = socket.socket(fileno=int(descriptor))
            except OSError:
                pass  # inherited by another program, which lacks the descriptor
            else:
                os.set_inheritable(connection.fileno(), False)
                found = Lifeline(connection, role, is_first == "1")
        _attached.append(found)
    return _attached[0]
