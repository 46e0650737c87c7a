"""A TCP proxy with faults, to stand between a client and a server of NSQ in a test.

One thread moves the bytes of every link, so a fault takes effect at an exact byte. All methods
may be called from any thread; when one returns, its effect has happened.
"""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

#: The directions: from the client, and from the server.
CLIENT, SERVER = "client", "server"

_CHUNK = 65536
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


class _Pipe:
    def __init__(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.pending = b""  # read and not yet written; nothing more is read meanwhile
        self.ended = False  # the source sent its end of file
        self.is_hole = False  # bytes of the source vanish
        self.not_before = 0.0  # a slow pipe's next move, monotonic time


class _Link:
    def __init__(self, number: int, client: socket.socket, server: socket.socket) -> None:
        self.number = number
        self.sockets = (client, server)
        self.pipes = {CLIENT: _Pipe(self, client, server), SERVER: _Pipe(self, server, client)}


class _Fault:
    """One-shot: after ``count`` more bytes in a direction, cut there or flip the next byte."""

    def __init__(self, count: int, action: str) -> None:
        self.count = count
        self.action = action


class FaultProxy:
    """Forwards a port of 127.0.0.1 to ``upstream`` (``host:port``), unchanged until a fault is set.

    As a context manager it is started and closed. The address stays the same over
    ``stop()`` and ``start()``.

    ``tap(number, direction, data)`` is called with all that was forwarded, on the proxy's thread;
    connections are numbered from 1.
    """

    def __init__(
        self, upstream: str, tap: Callable[[int, str, bytes], object] | None = None
    ) -> None:
        self._tap = tap
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._listener: socket.socket | None = None
        self._port = 0
        self._links: list[_Link] = []
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._faults: dict[str, _Fault | None] = {CLIENT: None, SERVER: None}
        self._deaf = False
        self._hole = False
        self._slow: tuple[int, float] | None = None  # bytes at a time, seconds between
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        #: How many connections were accepted, and bytes forwarded (read at any time).
        self.accepted = 0
        self.forwarded = {CLIENT: 0, SERVER: 0}

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        self._do(self._listen)

    def stop(self) -> None:
        """Refuse new connections and close the open ones in order."""
        self._do(lambda: (self._stop_listening(), self._drop_all(reset=False)))

    def close(self) -> None:
        if self._thread.is_alive():
            self._do(self._finish)
            self._thread.join(10)

    def reset(self) -> None:
        """Drop the open connections with a TCP RST on both sides; go on listening."""
        self._do(lambda: self._drop_all(reset=True))

    def drop(self) -> None:
        """Close the open connections in order; go on listening."""
        self._do(lambda: self._drop_all(reset=False))

    def set_deaf(self, deaf: bool = True) -> None:
        """Accept connections and keep the open ones, but forward nothing until healed."""
        self._do(lambda: setattr(self, "_deaf", deaf))

    def set_slow(self, chunk: int = 1, pause: float = 0.01) -> None:
        """Forward ``chunk`` bytes at a time with ``pause`` seconds between, per direction."""
        self._do(lambda: setattr(self, "_slow", (chunk, pause)))

    def half_close(self, direction: str = SERVER) -> None:
        """On open connections, end this direction alone; what still comes in it vanishes."""
        self._do(lambda: [self._half_close(link.pipes[direction]) for link in self._links])

    def set_black_hole(self) -> None:
        """Let all bytes vanish without closing the connections, until ``heal()``."""
        self._do(self._open_hole)

    def cut_after(self, count: int, direction: str = SERVER, *, reset: bool = False) -> None:
        """Forward ``count`` more bytes in ``direction``, then drop that connection. Once.

        Bytes of all connections count together; ``reset`` drops it with a RST.
        """
        fault = _Fault(count, "reset" if reset else "close")
        self._do(lambda: self._faults.__setitem__(direction, fault))

    def flip_after(self, count: int, direction: str = SERVER) -> None:
        """Forward ``count`` more bytes in ``direction`` and invert the next one. Once."""
        self._do(lambda: self._faults.__setitem__(direction, _Fault(count, "flip")))

    def heal(self) -> None:
        """Listen, and forward faithfully again; the end of every fault."""
        self._do(self._heal)

    def _do(self, action: Callable[[], object]) -> None:
        assert self._thread.is_alive(), "the proxy is used inside `with`"
        done = threading.Event()
        failure: list[BaseException] = []

        def call() -> None:
            try:
                action()
            except BaseException as error:
                failure.append(error)
            finally:
                done.set()

        self._calls.put(call)
        # The thread may be awake already, and done with the last action, which closes this.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"x")
        assert done.wait(10), "the proxy's thread does not answer"
        if failure:
            raise failure[0]

    def _run(self) -> None:
        while not self._closing:
            timeout = self._register()
            for key, _ in self._selector.select(timeout):
                if key.fileobj is self._wake_in:
                    self._wake_in.recv(_CHUNK)
                elif key.fileobj is self._listener:
                    self._accept()
            while not self._calls.empty():
                self._calls.get()()
            for link in list(self._links):
                for direction, pipe in link.pipes.items():
                    if link in self._links:
                        self._move(direction, pipe)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _register(self) -> float | None:
        """Say what to wait for; return after how long to look anyway."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        if self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ)
        wanted: dict[socket.socket, int] = {}
        timeout = None
        now = time.monotonic()
        for pipe in self._pipes():
            if self._deaf or (pipe.ended and not pipe.pending):
                continue
            if pipe.not_before > now:
                wait = pipe.not_before - now
                timeout = wait if timeout is None else min(timeout, wait)
            elif pipe.pending:
                wanted[pipe.target] = wanted.get(pipe.target, 0) | selectors.EVENT_WRITE
            else:
                wanted[pipe.source] = wanted.get(pipe.source, 0) | selectors.EVENT_READ
        for sock, events in wanted.items():
            self._selector.register(sock, events)
        return timeout

    def _pipes(self) -> Iterator[_Pipe]:
        for link in self._links:
            yield from link.pipes.values()

    def _move(self, direction: str, pipe: _Pipe) -> None:
        if self._deaf or pipe.not_before > time.monotonic():
            return
        size = _CHUNK if self._slow is None else self._slow[0]
        try:
            if not pipe.pending and not pipe.ended:
                pipe.pending = pipe.source.recv(size)
                pipe.ended = not pipe.pending
                if pipe.is_hole:
                    self._swallow(pipe)
                elif pipe.ended:
                    self._end(pipe)
            if pipe.pending:
                self._write(direction, pipe, size)
        except BlockingIOError:
            return
        except OSError:
            if pipe.is_hole:
                pipe.ended = True
                self._swallow(pipe)
            else:
                self._drop(pipe.link, reset=True)

    def _write(self, direction: str, pipe: _Pipe, size: int) -> None:
        data = pipe.pending[:size]
        fault = self._faults[direction]
        if fault is not None:
            if fault.count == 0 and fault.action == "flip":
                data = bytes([data[0] ^ 0xFF])
                self._faults[direction] = None
            else:
                data = data[:fault.count]
        sent = pipe.target.send(data) if data else 0
        pipe.pending = pipe.pending[sent:]
        self.forwarded[direction] += sent
        if self._tap is not None and sent:
            self._tap(pipe.link.number, direction, data[:sent])
        if sent and self._slow is not None:
            pipe.not_before = time.monotonic() + self._slow[1]
        if fault is None or self._faults[direction] is None:
            return
        fault.count -= sent
        if fault.count == 0 and fault.action != "flip":
            self._faults[direction] = None
            self._drop(pipe.link, reset=fault.action == "reset")

    def _swallow(self, pipe: _Pipe) -> None:
        """Drop the received bytes; end a link if both ends are gone."""
        pipe.pending = b""
        if all(other.ended for other in pipe.link.pipes.values()):
            self._drop(pipe.link, reset=False)

    def _end(self, pipe: _Pipe) -> None:
        """Hand on an end of file; both ends over is the end of the link."""
        if all(other.ended for other in pipe.link.pipes.values()):
            self._drop(pipe.link, reset=False)
        else:
            pipe.target.shutdown(socket.SHUT_WR)

    def _listen(self) -> None:
        if self._listener is None:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            listener.listen()
            listener.setblocking(False)
            self._listener, self._port = listener, listener.getsockname()[1]

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._unregister(listener)
            listener.close()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        self.accepted += 1
        try:
            server = self._dial()
        except OSError:
            client.close()  # as a dead server behind a load balancer looks
            return
        for sock in (client, server):
            sock.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(self.accepted, client, server)
        for pipe in link.pipes.values():
            pipe.is_hole = self._hole
        self._links.append(link)

    def _dial(self) -> socket.socket:
        if self._hole:
            server, nobody = socket.socketpair()
            nobody.close()
            return server
        server = socket.create_connection(self._upstream, timeout=5)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _drop(self, link: _Link, *, reset: bool) -> None:
        self._links.remove(link)
        for sock in link.sockets:
            self._unregister(sock)
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
            sock.close()

    def _drop_all(self, *, reset: bool) -> None:
        for link in list(self._links):
            self._drop(link, reset=reset)

    def _open_hole(self) -> None:
        self._hole = True
        for pipe in self._pipes():
            pipe.is_hole, pipe.pending = True, b""

    @staticmethod
    def _half_close(pipe: _Pipe) -> None:
        pipe.is_hole, pipe.pending = True, b""
        pipe.target.shutdown(socket.SHUT_WR)

    def _heal(self) -> None:
        self._listen()
        self._slow = None
        for pipe in self._pipes():
            pipe.not_before = 0.0
        self._deaf = self._hole = False
        self._faults = {CLIENT: None, SERVER: None}

    def _finish(self) -> None:
        self._stop_listening()
        self._drop_all(reset=False)
        self._closing = True

    def _unregister(self, sock: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)
