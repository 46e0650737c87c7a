"""A bare TCP client of nsqd: sends bytes, reads frames, sees how a connection ends.

It shares no code with nsqclient, so that the two cannot agree by the same mistake.
"""

from __future__ import annotations

import contextlib
import socket
import struct

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
HEARTBEAT = (RESPONSE, b"_heartbeat_")

Frame = tuple[int, bytes]


class Closed(Exception):
    """The server ended the connection; ``reset`` when it did so with a TCP RST."""

    def __init__(self, reset: bool) -> None:
        super().__init__("reset" if reset else "end of file")
        self.reset = reset


class RawClient:
    """One connection. A context manager: leaving it closes the socket."""

    def __init__(self, address: str, magic: bytes = MAGIC, timeout: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.send(magic)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send everything, unless the server closes the connection meanwhile."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def read_frame(self) -> Frame:
        """Return the next frame that is not a heartbeat, as (type, data).

        Raises:
            Closed: the connection ended before a whole frame was there.
            TimeoutError: nothing came in time.
        """
        while True:
            size, frame_type = struct.unpack(">ii", self._read(8))
            frame = (frame_type, self._read(size - 4))
            if frame != HEARTBEAT:
                return frame

    def read_message(self) -> tuple[bytes, int, bytes]:
        """Return the next frame, a message, as (id, attempts, body)."""
        frame_type, data = self.read_frame()
        assert frame_type == MESSAGE, (frame_type, data)
        _, attempts, message_id = struct.unpack(">qH16s", data[:26])
        return message_id, attempts, data[26:]

    def ask(self, command: bytes) -> Frame:
        """Send a command and return the next frame."""
        self.send(command)
        return self.read_frame()

    def subscribe(self, topic: str, channel: str, ready: int = 0) -> None:
        answer = self.ask(f"SUB {topic} {channel}\n".encode())
        assert answer == (RESPONSE, b"OK"), answer
        if ready:
            self.send(b"RDY %d\n" % ready)

    def read_end(self) -> Closed:
        """Wait for the end of the connection and return how it ended.

        Raises:
            AssertionError: a frame came instead.
        """
        try:
            frame = self.read_frame()
        except Closed as end:
            return end
        raise AssertionError(f"expected the end of the connection, got {frame!r}")

    def is_silent(self, seconds: float) -> bool:
        """True if neither a byte nor the end comes for this long."""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            self.read_frame()
        except TimeoutError:
            return True
        except Closed:
            return False
        finally:
            self._socket.settimeout(before)
        return False

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                raise Closed(reset=True) from None
            if not data:
                raise Closed(reset=False)
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken
