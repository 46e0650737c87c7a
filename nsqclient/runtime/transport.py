"""TCP sockets: a non-blocking stream, whose OSErrors become the package's own errors; listening."""

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

#: Bytes to read at once. Larger reads mean larger batches of messages.
RECV_SIZE = 256 * 1024
#: Bytes to read if few are expected, because a large buffer costs page faults, or if they will
#: expand: deflate makes at most 17 MB of them.
SMALL_READ = 16 * 1024

#: The hint on the errno of a failed dial.
_HINTS: dict[int | None, str] = {
    errno.EMFILE: hints.OPEN_FILES, errno.ENFILE: hints.OPEN_FILES,
    errno.EHOSTUNREACH: hints.BLOCKED, errno.ENETUNREACH: hints.BLOCKED,
}
#: The longest timeout of poll(), in milliseconds: 24 days.
_MAX_POLL = 2**31 - 1
#: Errors of a machine without IPv6.
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class _BindError(OSError):
    ...


def _dial(
    host: str, port: int, deadline: Deadline, bind: tuple[str, int] | None,
    on_dial: Callable[[socket.socket], None],
) -> socket.socket:
    """Connect to the first of the host's addresses that answers; each has a share of the time."""
    found = find_addresses(host, port, deadline)
    if bind is not None:
        version = ip_version(bind[0])
        found = [one for one in found if version in (0, 6 if one[0] == socket.AF_INET6 else 4)]
        if not found:
            raise _BindError(f"the server has no IPv{version} address")
    error: OSError = TimeoutError()
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
            if not isinstance(exc, OSError):
                raise
            error = exc
    raise error


def _bind(sock: socket.socket, local: tuple[str, int]) -> None:
    try:
        sock.bind(local)
    except (OSError, UnicodeError) as exc:
        raise _BindError(str(exc)) from exc


def _connect_error(
    address: str, exc: Exception, source: str | None, timeout: float | None
) -> ConnectError:
    if isinstance(exc, _BindError):
        reason, hint = f"local_addr {source!r} cannot be used: {exc}", hints.LOCAL_ADDR
    elif isinstance(exc, socket.gaierror):
        reason = f"host {parse_address(address)[0]!r} is unknown ({exc.strerror})"
        hint = hints.NAME_SERVER if exc.errno == socket.EAI_AGAIN else hints.UNKNOWN_HOST
    elif isinstance(exc, TimeoutError):
        reason = "no answer" + ("" if timeout is None else f" within {timeout:g} s")
        hint = hints.BLOCKED
    elif isinstance(exc, ConnectionRefusedError):
        reason, hint = "connection refused: is the server running there?", hints.RUNS
    else:
        start = "" if source is None else f" from local_addr {source!r}"
        reason = f"cannot connect{start}: {exc}"
        hint = _HINTS.get(getattr(exc, "errno", None), hints.LOCAL_ADDR if source else "")
    return ConnectError(address, reason, hint)


class Transport:
    """One connected, non-blocking TCP socket.

    Threads: one may receive and call ``wait``, and one at a time may send (the caller holds a write
    lock). ``has_input`` and ``shutdown``, which wakes both, may be called from any.
    """

    def __init__(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # a socketpair (in tests) has no TCP options
        self._sock = sock
        self.address = address
        #: ``send`` of the socket; pass its OSError to ``need_lost()``. Saves a call per command.
        self.raw_send: Callable[[bytes | memoryview], int] = sock.send

    @property
    def local_host(self) -> str:
        """The local address; empty once the socket is closed."""
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
            on_dial: called with each socket before it is connected. ``shutdown()`` of the socket
                ends the dial.

        Blocks: until the deadline.

        Raises:
            ConnectError: refused, unknown host, no answer in time, or ``source`` cannot be used.
        """
        host, port = parse_address(address)
        bind = None if source is None else parse_local_address(source)
        if deadline.expired():
            raise ConnectError(address, "no time was left to connect")
        try:
            sock = _dial(host, port, deadline, bind, on_dial)
        except (OSError, UnicodeError) as exc:
            raise _connect_error(address, exc, source, deadline.timeout) from exc
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            pass  # best effort; heartbeats are the real liveness check
        return cls(sock, address)

    def recv(self, size: int = RECV_SIZE) -> bytes | None:
        """Return at most ``size`` bytes, ``b""`` at the end of the stream, or None without input.

        Does not block. Raises ConnectionLostError.
        """
        try:
            return self._sock.recv(size)
        except OSError as exc:
            self.need_lost(exc)
            return None

    def send_some(self, data: bytes | memoryview) -> int:
        """Return how many bytes the kernel took. Does not block. Raises ConnectionLostError."""
        try:
            return self._sock.send(data)
        except OSError as exc:
            self.need_lost(exc)
            return 0

    def fileno(self) -> int:
        """Return -1 once the socket is closed."""
        return self._sock.fileno()

    def need_lost(self, exc: OSError) -> None:
        """Return if a system call would have blocked.

        Raises:
            ConnectionLostError: the socket failed. Or ``exc``, if a signal handler raised it.
        """
        if exc.errno is None:
            raise exc
        if not isinstance(exc, (BlockingIOError, InterruptedError)):
            raise self.lost(exc) from exc

    def wait(self, timeout: float | None, *, for_write: bool = False) -> bool:
        """Wait until the socket is readable (or, if asked, writable); False if the time is over."""
        return self._poll(select.POLLIN | select.POLLOUT if for_write else select.POLLIN, timeout)

    def has_input(self) -> bool:
        """True if bytes, or the end of the stream, can be received."""
        return self._poll(select.POLLIN, 0)

    def wait_writable(self, timeout: float) -> None:
        """Wait until the kernel accepts bytes again. Raises WriteTimeoutError."""
        if self._sock.fileno() < 0:
            raise ConnectionLostError(self.address, "closed")
        if not self._poll(select.POLLOUT, timeout):
            raise WriteTimeoutError(self.address, f"took no bytes for {timeout:g} s")

    def _poll(self, mask: int, timeout: float | None) -> bool:
        fd = self._sock.fileno()
        if fd < 0:
            return True  # closed: the next system call raises
        poll = select.poll()
        poll.register(fd, mask)
        # Rounded up, so that a wait never ends before its time.
        return bool(poll.poll(
            None if timeout is None else math.ceil(min(max(0.0, timeout * 1000), _MAX_POLL))))

    def shutdown(self) -> None:
        """End the stream both ways and wake the threads that wait on it. Idempotent, any thread.

        On Linux, closing the socket does not wake a thread inside ``poll`` or ``recv``.
        """
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError as exc:
            if exc.errno is None:
                raise  # raised by a signal handler
            # Not connected any more.

    def close(self) -> None:
        """Close the descriptor. Call ``shutdown()`` first; no thread may wait on it."""
        self._sock.close()

    def lost(self, exc: OSError) -> ConnectionLostError:
        if exc.errno in (errno.ECONNRESET, errno.EPIPE):
            reason = "reset by the peer"
        elif exc.errno == errno.EBADF:
            reason = "closed"
        else:
            reason = str(exc)
        return ConnectionLostError(self.address, reason)


def listen(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """Return a socket that listens for TCP connections, with Go's meaning of the address.

    Args:
        host: empty or ``::``: all of IPv4 and IPv6, or of IPv4 if the machine has no IPv6.
        port: 0 for any free one.

    Raises:
        OSError: the address is in use, not allowed, or not one of this machine.
    """
    is_any = host in ("", "::")
    if is_any and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as exc:
            if exc.errno not in _NO_IPV6:
                raise
    if is_any:
        return socket.create_server(("", port), backlog=backlog)
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family, backlog=backlog)
