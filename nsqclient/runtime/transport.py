"""A non-blocking TCP stream: connect, receive, send what fits, wait, shut down, close.

The only place where OSError is turned into the package's own errors.
"""

from __future__ import annotations

import errno
import math
import select
import socket
from collections.abc import Callable

from nsqclient import hints
from nsqclient.errors import ConnectError, ConnectionLostError, WriteTimeoutError
from nsqclient.runtime.addresses import ip_version, parse_address, parse_local_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.name_lookup import find_addresses

#: What a socket with a timeout raises has no errno.
_TIMED_OUT = ("timed out",)

#: Bytes asked from the kernel at once. Larger reads mean larger batches of messages.
RECV_SIZE = 256 * 1024
#: Bytes to read if few are expected, because a large buffer costs page faults, or if they will
#: expand: deflate makes at most 17 MB of them.
SMALL_READ = 16 * 1024

_WOULD_BLOCK = (BlockingIOError, InterruptedError)


#: errno of a failed dial -> the hint.
_HINTS: dict[int | None, str] = {
    errno.EMFILE: hints.OPEN_FILES, errno.ENFILE: hints.OPEN_FILES,
    errno.EHOSTUNREACH: hints.BLOCKED, errno.ENETUNREACH: hints.BLOCKED,
}


def is_of_system(exc: OSError) -> bool:
    """Return whether a system call raised it; else a signal handler did, as with TimeoutError()."""
    return exc.errno is not None or exc.args == _TIMED_OUT


#: The longest wait that poll() takes, in milliseconds: 24 days.
_MAX_POLL = 2**31 - 1


def _milliseconds(timeout: float) -> int:
    """Round up, so that a wait never ends just before its time."""
    return math.ceil(min(max(0.0, timeout * 1000), _MAX_POLL))


def _dial(
    host: str, port: int, deadline: Deadline, bind: tuple[str, int] | None,
    on_dial: Callable[[socket.socket], None],
) -> socket.socket:
    """Connect to the first of the host's addresses that answers.

    ``socket.create_connection`` would give each of them the whole time.
    """
    found = find_addresses(host, port, deadline)
    if bind is not None:
        version = ip_version(bind[0])
        fitting = [one for one in found if version in (0, 6 if one[0] == socket.AF_INET6 else 4)]
        if not fitting:
            raise _BindError(f"the server has no IPv{version} address")
        found = fitting
    error: OSError = TimeoutError(*_TIMED_OUT)
    for index, (family, kind, protocol, _, target) in enumerate(found):
        remaining = deadline.remaining()
        if remaining is not None and remaining <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(None if remaining is None else remaining / (len(found) - index))
            if bind is not None:
                _bind(sock, bind)
            on_dial(sock)
            sock.connect(target)
            return sock
        except BaseException as exc:
            sock.close()
            if not isinstance(exc, OSError) or not is_of_system(exc):
                raise
            error = exc
    raise error


class _BindError(OSError):
    """``local_addr`` cannot be used; the text says why."""

    errno = errno.EADDRNOTAVAIL


def _bind(sock: socket.socket, local: tuple[str, int]) -> None:
    try:
        sock.bind(local)
    except (OSError, UnicodeError) as exc:
        if isinstance(exc, OSError) and not is_of_system(exc):
            raise
        raise _BindError(str(exc)) from exc


class Transport:
    """One connected, non-blocking TCP socket.

    Threads: one thread may receive and call ``wait``; one thread at a time may send (the caller
    holds a write lock); ``has_input()`` and ``shutdown()``, which wakes both, may come from any.
    """

    def __init__(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # a socketpair (in tests) has no TCP options
        self._sock = sock
        self.address = address
        self._poll = select.poll()  # used by the receiving thread only
        self._poll_mask = 0

    @property
    def local_host(self) -> str:
        """The address of our end; empty once the socket is closed."""
        try:
            return str(self._sock.getsockname()[0])
        except (OSError, IndexError):
            return ""

    @classmethod
    def connect(
        cls, address: str, deadline: Deadline, source: str | None = None,
        on_dial: Callable[[socket.socket], None] = lambda sock: None,
    ) -> Transport:
        """Dial ``host:port``, trying each of the host's addresses.

        Args:
            source: the local ``host`` or ``host:port`` to bind.
            on_dial: called with each socket before it is connected; its ``shutdown()`` ends the
                dial, and what ``on_dial`` raises is raised.

        Blocks: until the deadline.

        Raises:
            ConnectError: refused, unknown host, no answer in time, or ``source`` cannot be used.
        """
        host, port = parse_address(address)
        bind = None
        if source is not None:
            bind = parse_local_address(source)
        if deadline.expired():
            raise ConnectError(address, "no time was left to connect")
        try:
            sock = _dial(host, port, deadline, bind, on_dial)
        except _BindError as exc:
            raise ConnectError(
                address, f"local_addr {source!r} cannot be used: {exc}", hints.LOCAL_ADDR) from exc
        except socket.gaierror as exc:
            hint = hints.NAME_SERVER if exc.errno == socket.EAI_AGAIN else hints.UNKNOWN_HOST
            raise ConnectError(address, f"host {host!r} is unknown ({exc.strerror})", hint) from exc
        except TimeoutError as exc:
            if not is_of_system(exc):
                raise
            within = "" if deadline.timeout is None else f" within {deadline.timeout:g} s"
            raise ConnectError(address, f"no answer{within}", hints.BLOCKED) from exc
        except ConnectionRefusedError as exc:
            raise ConnectError(
                address, "connection refused: is the server running there?", hints.RUNS) from exc
        except (OSError, UnicodeError) as exc:
            if isinstance(exc, OSError) and not is_of_system(exc):
                raise
            start = "" if source is None else f" from local_addr {source!r}"
            hint = _HINTS.get(getattr(exc, "errno", None), hints.LOCAL_ADDR if source else "")
            raise ConnectError(address, f"cannot connect{start}: {exc}", hint) from exc
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            pass  # best effort; heartbeats are the real liveness check
        return cls(sock, address)

    def recv(self, size: int = RECV_SIZE) -> bytes | None:
        """Return what is there, ``b""`` at the end of the stream, None when nothing is there.

        ``size``: the most bytes to return. It never waits.

        Raises:
            ConnectionLostError: reset, or any other error of the socket.
        """
        try:
            return self._sock.recv(size)
        except OSError as exc:
            self.need_lost(exc)
            return None

    def send_some(self, data: bytes | memoryview) -> int:
        """Send as much of ``data`` as the kernel takes now; return how many bytes that was.

        It never waits.

        Raises:
            ConnectionLostError: the peer is gone.
        """
        try:
            return self._sock.send(data)
        except OSError as exc:
            self.need_lost(exc)
            return 0

    def fileno(self) -> int:
        """Return the file descriptor; -1 once the socket is closed."""
        return self._sock.fileno()

    def functions(
        self
    ) -> tuple[Callable[[int], bytes], Callable[[bytes | memoryview], int]]:
        """Return ``recv`` and ``send`` of the socket, for what is called for every message.

        What they raise goes to ``need_lost()``.
        """
        return self._sock.recv, self._sock.send

    def need_lost(self, exc: OSError) -> None:
        """Return where a system call would have waited; raise what any other failure means.

        Raises:
            ConnectionLostError: the socket failed. And what a signal handler raised.
        """
        if not is_of_system(exc):
            raise exc
        if not isinstance(exc, _WOULD_BLOCK):
            raise self.lost(exc) from exc

    def wait(self, timeout: float | None, *, for_write: bool = False) -> bool:
        """Wait until bytes can be received (or, if asked, sent); False if not.

        Only the receiving thread may call it.
        """
        mask = select.POLLIN | select.POLLOUT if for_write else select.POLLIN
        if mask != self._poll_mask:
            fd = self._sock.fileno()
            if fd < 0:
                return True  # closed: the next recv says so
            self._poll.register(fd, mask)
            self._poll_mask = mask
        return bool(self._poll.poll(None if timeout is None else _milliseconds(timeout)))

    def has_input(self) -> bool:
        """Return whether bytes, or the end of the stream, wait to be received. Any thread."""
        fd = self._sock.fileno()
        if fd < 0:
            return True
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))

    def wait_writable(self, timeout: float) -> None:
        """Wait until the kernel takes bytes again. For the thread that holds the write lock.

        Raises:
            WriteTimeoutError: it took nothing for ``timeout`` seconds.
        """
        fd = self._sock.fileno()
        if fd < 0:
            raise ConnectionLostError(self.address, "closed")
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        if not poll.poll(_milliseconds(timeout)):
            raise WriteTimeoutError(self.address, f"took no bytes for {timeout:g} s")

    def shutdown(self) -> None:
        """End the stream both ways and wake the threads that wait on it. Idempotent, any thread.

        Closing alone would not wake a thread that is inside ``poll`` or ``recv`` on Linux.
        """
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError as exc:
            if not is_of_system(exc):
                raise
            # else it is not connected any more

    def close(self) -> None:
        """Give the file descriptor back. Call ``shutdown()`` first; nobody may wait on it now."""
        self._sock.close()

    def lost(self, exc: OSError) -> ConnectionLostError:
        """Return the error for what a system call of a socket that was connected raised."""
        if exc.errno in (errno.ECONNRESET, errno.EPIPE):
            reason = "reset by the peer"
        elif exc.errno == errno.EBADF:
            reason = "closed"
        else:
            reason = str(exc)
        return ConnectionLostError(self.address, reason)
