"""A server that follows a script: it answers as a test says, and records the received bytes."""

from __future__ import annotations

import socket
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType

from nsqclient.protocol.frames import HEARTBEAT, encode_frame, encode_message

OK = encode_frame(0, b"OK")
BEAT = encode_frame(0, HEARTBEAT)
CLOSE_WAIT = encode_frame(0, b"CLOSE_WAIT")


def response(data: bytes) -> bytes:
    return encode_frame(0, data)


def error(text: str) -> bytes:
    return encode_frame(1, text.encode())


def message(body: bytes = b"body", number: int = 0, attempts: int = 1) -> bytes:
    """A message frame with an id made from a number."""
    return encode_message(1, attempts, b"%016x" % number, body)


class Peer:
    """The server's end of one connection, for the script."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""

    def send(self, *data: bytes) -> None:
        self.sock.sendall(b"".join(data))

    def line(self) -> bytes:
        """Read one command line, without its end."""
        while b"\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def sized(self) -> bytes:
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def identify(self, answer: bytes = OK) -> bytes:
        """Read the magic and IDENTIFY, answer it, return its body."""
        assert self.exactly(4) == b"  V2"
        assert self.line() == b"IDENTIFY"
        body = self.sized()
        self.send(answer)
        return body

    def subscribe(self) -> bytes:
        """Read IDENTIFY and SUB, answer both, return the line of SUB."""
        self.identify()
        line = self.line()
        self.send(OK)
        return line

    def until_closed(self) -> bytes:
        while True:
            try:
                self._more()
            except EOFError:
                return self._buffer

    def _more(self) -> None:
        try:
            data = self.sock.recv(65536)
        except ConnectionError as exc:
            raise EOFError from exc
        if not data:
            raise EOFError
        self._buffer += data


class ScriptedServer:
    """Runs ``script(peer)`` for each connection, one after the other, in a thread.

    What a script raises (a failed assert, EOF) is raised again when the ``with`` block ends.
    """

    def __init__(self, *scripts: Callable[[Peer], None], buffer_size: int = 0) -> None:
        self._scripts = scripts
        self._listener = socket.socket()
        if buffer_size:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._listener.setsockopt(socket.SOL_SOCKET, option, buffer_size)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="scripted-server", daemon=True)

    def _run(self) -> None:
        try:
            for script in self._scripts:
                sock, _ = self._listener.accept()
                with sock:
                    sock.settimeout(20)
                    script(Peer(sock))
        except BaseException as exc:
            self._failure = exc

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def join(self) -> None:
        self._thread.join(20)

    def _stack(self) -> str:
        assert self._thread.ident is not None
        frame = sys._current_frames().get(self._thread.ident)
        return "".join(traceback.format_stack(frame))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.join(20)
        self._listener.close()
        assert not self._thread.is_alive(), f"the script did not end:\n{self._stack()}"
        if exc is None and self._failure is not None:
            raise self._failure
