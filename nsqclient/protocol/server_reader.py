"""Cuts what a server receives into command lines and blocks of known size.

Source: TCP protocol spec, "Commands".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

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
        self._later: deque[Iterator[bytes]] = deque()  # asked when these do not suffice
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

    def feed_later(self, pieces: Iterator[bytes]) -> None:
        """Add bytes that are made ready one piece at a time, when they are read.

        What the iterator raises comes out of ``line()`` or ``block()``.
        """
        self._later.append(pieces)

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer where fewer are there, and leave them."""
        while self._have < size and self._fetch():
            pass
        if self._chunks:
            self._join()
        return self._buf[self._pos:self._pos + size]

    def line(self, fixed: int = 0) -> bytes | None:
        """Take one line, without its newline and an optional carriage return before it.

        Its first ``fixed`` bytes may be anything, newlines included.
        """
        while True:
            if self._chunks:
                self._join()
            start = self._pos
            stop = self._buf.find(b"\n", start + fixed, start + MAX_LINE_SIZE)
            if stop >= 0:
                break
            if self._have >= MAX_LINE_SIZE:
                self.line_too_long = True
                return None
            if not self._fetch():
                return None
        self._pos = stop + 1
        self._have -= stop + 1 - start
        line = self._buf[start:stop]
        return line[:-1] if line.endswith(b"\r") and len(line) > fixed else line

    def block(self, size: int) -> bytes | None:
        """Take ``size`` bytes."""
        while self._have < size:
            if not self._fetch():
                return None
        if self._chunks and len(self._buf) - self._pos < size:
            self._join()
        start = self._pos
        self._pos = start + size
        self._have -= size
        return self._buf[start:self._pos]

    def take_all(self) -> Iterator[bytes]:
        """Take everything, also what is not ready yet (for the next byte layer)."""
        if self._chunks:
            self._join()
        rest, later = self._buf[self._pos:], self._later
        self._buf, self._pos, self._have, self._later = b"", 0, 0, deque()
        return chain((rest,), *later)

    def _fetch(self) -> bool:
        """Make one more piece ready; False when there is none."""
        while self._later:
            for piece in self._later[0]:
                self.feed(piece)
                return True
            self._later.popleft()
        return False

    def _join(self) -> None:
        if self._pos < len(self._buf):
            self._chunks.insert(0, self._buf[self._pos:])
        self._buf = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._pos = 0
        self._chunks = []
