"""``Pipe``: pickled tuples over two byte streams, between a process and its child.

Both ends are the same code, started by the same program, so pickle is safe here.
"""

from __future__ import annotations

import pickle
import struct
import threading
from typing import IO, Any

_size = struct.Struct(">I")


class Pipe:
    """One end. Threads: ``send`` any; ``receive`` one."""

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source = source
        self._target = target
        self._sending = threading.Lock()

    def send(self, *words: Any) -> None:
        """Send a tuple. Blocks while the other end does not read.

        Raises:
            OSError: the other end is gone.
        """
        data = pickle.dumps(words, protocol=pickle.HIGHEST_PROTOCOL)
        with self._sending:
            try:
                self._target.write(_size.pack(len(data)) + data)
                self._target.flush()
            except ValueError as exc:  # closed on this side
                raise BrokenPipeError("the pipe is closed") from exc

    def receive(self) -> tuple[Any, ...] | None:
        """Wait for a tuple; None when the other end is gone."""
        try:
            head = self._source.read(_size.size)
            if len(head) < _size.size:
                return None
            data = self._source.read(_size.unpack(head)[0])
            words: tuple[Any, ...] = pickle.loads(data)  # nosec B301 # from our own child process
            return words
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            return None
