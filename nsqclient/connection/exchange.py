"""``exchange`` and ``receive``: the system calls of a publish, and of a reader thread.

``exchange(fd, command, start, seconds) -> (sent, answer)`` writes ``command[start:]`` to a
non-blocking socket, then waits. If ``start`` is ``len(command)``, it only waits.

- ``sent``: bytes of the command that the kernel has taken, ``start`` included.
- ``answer``: the bytes of the first read, ``b""`` at the end of the stream, None after the seconds,
  or the errno (an int) of a failed system call. If nsqd answers before it has read the whole
  command, ``sent`` is less than ``len(command)``.

It raises only exceptions of signal handlers, OSError included. In a child that a signal handler has
forked, the answer is EBADF. Only the thread that calls ``exchange`` closes the descriptor. Other
threads call ``shutdown()``.
"""

from __future__ import annotations

import errno
import math
import os
import select
from collections.abc import Callable
from time import monotonic

from nsqclient import native

#: Bytes to read at once: heartbeats and responses are far shorter.
_READ_SIZE = 4096
#: Bytes that ``receive`` reads. A larger buffer costs page faults.
RECEIVE_SIZE = 16 * 1024
#: Milliseconds between two checks for signals. A signal that arrives outside of a system call, or
#: in another thread, does not interrupt poll().
_LONGEST_WAIT = 100
#: poll() takes milliseconds as a C int.
_MAX_POLL = 2**31 - 1


def exchange_in_python(
    fd: int, command: bytes, start: int, seconds: float
) -> tuple[int, bytes | int | None]:
    until, pid, sent = monotonic() + seconds, os.getpid(), start
    unsent: bytes | memoryview = memoryview(command)[start:] if start else command
    while fd >= 0:
        if unsent:
            try:
                sent += os.write(fd, unsent)
                unsent = memoryview(command)[sent:] if sent < len(command) else b""
            except OSError as exc:
                failure = _system_error(exc)
                if failure != errno.EAGAIN:
                    return sent, _read(fd, failure) or failure
        poll, left = select.poll(), until - monotonic()
        poll.register(fd, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
        ready = poll.poll(_LONGEST_WAIT if left * 1000 > _LONGEST_WAIT else _milliseconds(left))
        if os.getpid() != pid:
            break
        if ready:
            if ready[0][1] != select.POLLOUT:
                answer = _read(fd)
                if answer != errno.EAGAIN:
                    return sent, answer
        elif monotonic() >= until:
            return sent, None
    return sent, errno.EBADF


def receive_in_python(fd: int, seconds: float) -> bytes | int | None:
    until, poll = monotonic() + seconds, select.poll()
    if fd >= 0:
        poll.register(fd, select.POLLIN)
    while fd >= 0:
        if poll.poll(_milliseconds(until - monotonic())):
            data = _read(fd, size=RECEIVE_SIZE)
            if data != errno.EAGAIN:
                return data
        elif monotonic() >= until:
            return None
    return errno.EBADF


def _milliseconds(seconds: float) -> int:
    return math.ceil(min(max(0.0, seconds) * 1000, _MAX_POLL))


def _read(fd: int, failure: int = 0, size: int = _READ_SIZE) -> bytes | int:
    try:
        return os.read(fd, size)
    except OSError as exc:
        error = _system_error(exc)
        return failure or error


def _system_error(exc: OSError) -> int:
    """Return the errno of a system call, or raise the exception of a signal handler."""
    traceback = exc.__traceback__
    if exc.errno is None or traceback is None or traceback.tb_next is not None:
        raise exc  # a handler has a frame of its own
    return exc.errno


exchange: Callable[[int, bytes, int, float], tuple[int, bytes | int | None]] = (
    exchange_in_python if native.compiled is None else native.compiled.exchange)

#: ``receive(fd, seconds)``: wait for bytes and read at most RECEIVE_SIZE of them. Returns an answer
#: as ``exchange`` does.
receive: Callable[[int, float], bytes | int | None] = (
    receive_in_python if native.compiled is None else native.compiled.receive)
