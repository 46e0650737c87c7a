"""Cuts what a server receives into command lines and blocks of known size.

Source: TCP protocol spec, "Commands".
"""

from __future__ import annotations

#: A command line, its newline included, must fit nsqd's read buffer.
MAX_LINE_SIZE = 16 * 1024


class CommandReader:
    """Received bytes that are not read yet; "need more bytes" is None.

    Chunks are joined only when a whole block is there, so a big body costs one copy however
    small the pieces are that it comes in.
    """

    def __init__(self) -> None:
        self._buf = b""
        self._pos = 0
        self._chunks: list[bytes] = []  # received after _buf
        self._have = 0  # unread bytes in all
        #: True once a line is longer than nsqd reads.
        self.line_too_long = False

    def __len__(self) -> int:
        """How many bytes are not read yet."""
        return self._have

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if data:
            self._chunks.append(data)
            self._have += len(data)

    def line(self) -> bytes | None:
        """Take one line, without its newline and an optional carriage return before it."""
        if self._chunks:
            self._join()
        start = self._pos
        stop = self._buf.find(b"\n", start, start + MAX_LINE_SIZE)
        if stop < 0:
            self.line_too_long = self._have >= MAX_LINE_SIZE
            return None
        self._pos = stop + 1
        self._have -= stop + 1 - start
        line = self._buf[start:stop]
        return line[:-1] if line.endswith(b"\r") else line

    def block(self, size: int) -> bytes | None:
        """Take ``size`` bytes."""
        if self._have < size:
            return None
        if self._chunks and len(self._buf) - self._pos < size:
            self._join()
        start = self._pos
        self._pos = start + size
        self._have -= size
        return self._buf[start:self._pos]

    def take_all(self) -> bytes:
        """Take everything (for the next byte layer, on an upgrade)."""
        self._join()
        rest = self._buf[self._pos:]
        self._buf, self._pos, self._have = b"", 0, 0
        return rest

    def _join(self) -> None:
        if self._pos < len(self._buf):
            self._chunks.insert(0, self._buf[self._pos:])
        self._buf = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._pos = 0
        self._chunks = []
