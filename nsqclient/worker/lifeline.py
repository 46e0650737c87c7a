"""``Lifeline``: how a process of a worker notices that its parent is gone, and reports to it.

A child runs the command line of its parent again, with one end of a socket pair. The system closes
the parent's end when the parent ends, also by SIGKILL; then the child stops as after SIGTERM, and
ends itself should that hang. Linux could send a signal instead (``PR_SET_PDEATHSIG``), but that is
sent when the *thread* that made the child ends, is lost between fork and the call that asks for
it, and does not exist elsewhere. The socket also carries the child's reports.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from nsqclient.runtime.threads import LibraryThread

#: In the environment of a child: "DESCRIPTOR IS_FIRST ROLE".
_VARIABLE = "NSQCLIENT_WORKER_PARENT"
#: Seconds beyond the timeout of the stop, after which a child that lost its parent ends itself.
_GRACE = 5.0
#: Exit status then.
_ABANDONED = 1


class Child(NamedTuple):
    """A child process, and the parent's end of its socket."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


def current_folder() -> str:
    """Return the path of the current folder as the user gave it.

    After a deployment a symbolic link names another folder, and ``os.getcwd()`` the old one.
    """
    given = os.environ.get("PWD", "")
    try:
        if os.path.isabs(given) and os.path.samefile(given, "."):
            return given
    except OSError:
        pass
    return os.getcwd()


def spawn(role: str, is_first: bool, folder: str) -> Child:
    """Run this process's command line again in a child with a role.

    Args:
        is_first: whether the child prints the list of consumed channels.
        folder: working directory of the child.

    Raises:
        OSError: the process could not be started.
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
    """A child's end of the socket.

    Life: created, ``watch()`` once. Threads: ``report`` from one.
    """

    def __init__(self, connection: socket.socket, role: str, is_first: bool) -> None:
        self.role = role
        self.is_first = is_first
        self._socket = connection
        self._unsent = b""
        self._is_watching = False

    def watch(self, stop_timeout: float) -> None:
        """From now on end this process when its parent has ended. Idempotent.

        Args:
            stop_timeout: seconds that the stop may take.
        """
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
        """Send a state to the parent; never waits for it. A report that it is late to read waits.

        Args:
            state: values for JSON.
        """
        if not self._unsent:
            self._unsent = json.dumps(state).encode() + b"\n"
        try:
            sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT)
        except OSError:
            return  # full, or the parent is gone: the watch sees to that
        self._unsent = self._unsent[sent:]


def has_parent(environ: Mapping[str, str]) -> bool:
    """True if another process of a worker has started this one. Call it before ``attach()``."""
    return _VARIABLE in environ


_attached: list[Lifeline | None] = []


def attach() -> Lifeline | None:
    """Return this process's Lifeline; None if it was not started by a worker.

    The variable is removed from the environment: programs that handlers start must not take
    themselves for children of the worker.
    """
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
