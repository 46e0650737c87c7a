"""Leftovers that fail a test: our threads, child processes, open sockets and files."""

import gc
import os
import socket
import threading
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import wait_until

#: How long something that is about to end may take, in seconds. Only a leak waits for all of it.
GRACE = 15.0

#: Seconds after which leftovers may be garbage.
COLLECT_AFTER = 0.1

_PROC = Path("/proc/self")

#: Peers of sockets that belong to the session, not to a test: the JVM's, which py4j opens at any
#: time, also from the garbage collector.
FOREIGN_PORTS: set[int] = set()
#: Processes whose connections to us belong to the session: the JVM itself connects when a task
#: ends, or a query, which may be after the test.
FOREIGN_PROCESSES: set[int] = set()


class Snapshot(NamedTuple):
    """Threads, processes, sockets and files at one moment."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    descriptors: frozenset[str]


def take_snapshot() -> Snapshot:
    return Snapshot(frozenset(_our_threads()), frozenset(_children()), frozenset(_descriptors()))


def find_leaks(before: Snapshot) -> list[str]:
    """Return a description of everything alive now that was not in ``before``."""
    # Most of it is about to end, and a collection costs more than all the rest.
    if not any(_new_since(before)) or _ends(before, COLLECT_AFTER):
        return []
    # Sockets in reference cycles are closed by the collection, which also warns about them.
    gc.collect()
    return [] if _ends(before, GRACE) else _describe(_new_since(before))


def _ends(before: Snapshot, seconds: float) -> bool:
    try:
        wait_until(lambda: not any(_new_since(before)), timeout=seconds)
    except AssertionError:
        return False
    return True


def _new_since(before: Snapshot) -> Snapshot:
    now = take_snapshot()
    # No pipes and the like, and no devices.
    opened = {
        link for link in now.descriptors - before.descriptors
        if link.startswith(("socket:", "/")) and not link.startswith(("/dev/", "/proc/"))
    }
    if opened:
        opened -= _foreign_sockets()
    return Snapshot(now.threads - before.threads, now.children - before.children,
                    frozenset(opened))


def _describe(new: Snapshot) -> list[str]:
    leaks = [f"thread {thread.name}" for thread in new.threads]
    leaks += [f"child process {pid}: {_command_line(pid)}" for pid in new.children]
    leaks += [f"open file {link}" for link in new.descriptors if link.startswith("/")]
    if count := sum(link.startswith("socket:") for link in new.descriptors):
        leaks.append(f"{count} socket(s), among these: {_known_sockets()}")
    return leaks


def _our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("nsq-")]


def _children() -> list[int]:
    pids: list[int] = []
    try:
        for task in _PROC.joinpath("task").iterdir():
            try:
                pids += map(int, task.joinpath("children").read_text().split())
            except OSError:
                continue  # the thread has ended
    except OSError:
        return []  # no /proc here
    # Python's own helper stays for the life of the process.
    return [pid for pid in pids if "resource_tracker" not in _command_line(pid)]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "(gone)"


def _foreign_sockets() -> set[str]:
    """The sockets of ours that are connected to FOREIGN_PORTS or to FOREIGN_PROCESSES.

    If there are any, sockets that no table of the system lists are included: the JVM has reset an
    idle connection, and py4j closes its end at its next use.
    """
    if not (FOREIGN_PORTS or FOREIGN_PROCESSES):
        return set()
    ends = {}
    for table in ("tcp", "tcp6"):
        for fields in _system_table(table):
            # The JVM's end may be an IPv6 socket that speaks IPv4; its address ends with ours.
            local, remote = (end[-13:] for end in fields[1:3])
            ends[local, remote] = f"socket:[{fields[9]}]"
    listed = {*ends.values(), *(f"socket:[{fields[6]}]" for fields in _system_table("unix")),
              *(f"socket:[{fields[9]}]" for fields in _system_table("udp"))}
    theirs = {inode for pid in FOREIGN_PROCESSES for inode in _sockets(Path(f"/proc/{pid}"))}
    return {
        inode for (local, remote), inode in ends.items()
        if int(remote[-4:], 16) in FOREIGN_PORTS or ends.get((remote, local)) in theirs
    } | set(_sockets()) - listed


def _system_table(name: str) -> list[list[str]]:
    try:
        lines = _PROC.joinpath("net", name).read_text().splitlines()
    except FileNotFoundError:
        return []  # a system without IPv6, for example
    return [line.split() for line in lines[1:]]


def _sockets(process: Path = _PROC) -> list[str]:
    return [link for link in _descriptors(process) if link.startswith("socket:")]


def _descriptors(process: Path = _PROC) -> list[str]:
    """Return what each descriptor of a process stands for: a path, or as ``socket:[INODE]``."""
    found = []
    try:
        descriptors = os.listdir(process / "fd")
    except OSError:
        return []  # no /proc here, or no such process
    for descriptor in descriptors:
        try:
            found.append(os.readlink(f"{process}/fd/{descriptor}"))
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def _known_sockets() -> str:
    """Describe the open socket objects. Walks all objects: only for a failure's message."""
    # Not isinstance(): it asks a lazy object, such as Django's, what it is, and wakes it up.
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), socket.socket)]
    return ", ".join(repr(thing) for thing in alive if thing.fileno() != -1) or "none known"
