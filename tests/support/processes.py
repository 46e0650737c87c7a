"""Forked children and Python programs of a test."""

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"

#: How long a child or a program may take, in seconds.
LIMIT = 90.0

#: Whether this Python refuses to start a thread while the process ends.
STARTS_NO_THREAD_AT_ITS_END = (3, 12) <= sys.version_info < (3, 12, 2)

#: What ``make test`` hands on to its tests, and what changes ``make demo`` and ``make pipeline``.
OF_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "GNUMAKEFLAGS",
           "ARGS", "JOBS", "PYTHON", "INPUT", "NSQD", "LOOKUPD"}


def user_environment() -> dict[str, str]:
    """Return the environment of a user's shell, also where make started the tests.

    A make inside of another one prints more, and takes over its flags and variables.
    """
    return {name: value for name, value in os.environ.items() if name not in OF_MAKE}


def fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child; return its process id. Whatever it raises is printed."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        # It ends by itself should ``work`` hang; the parent then sees the signal.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_child(work: Callable[[], object]) -> int:
    return exit_status(fork(work))


def handles(pid: int, number: int) -> bool:
    """True once a process has installed a handler for a signal.

    SIGTERM shows it: Python itself handles SIGINT from its start.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except FileNotFoundError:
        return False
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def run_program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAMS / f"{name}.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def start_threads(count: int, work: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads
