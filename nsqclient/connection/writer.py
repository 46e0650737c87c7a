"""``SocketWriter``: writes the bytes of the protocol core to the socket.

The reader must answer heartbeats and may never wait to write. Otherwise it, a sender and a peer
that writes before it reads would wait for each other without end. So no thread waits for the write
lock: its holder looks at the core once more after releasing it, and writes what was queued
meanwhile, in one system call. A caller that may wait does so only until the socket takes bytes.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time

from nsqclient.errors import WriteTimeoutError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.transport import Transport

#: Seconds that a write may take when its socket was shut down.
_LAST_WRITE = 1.0


class SocketWriter:
    """The sending side of one connection.

    Args:
        core: has the bytes to send.
        core_lock: guards the core; taken inside the write lock, never around it.
        write_timeout: seconds in which the peer must take some bytes.

    Threads: any, once ``attach`` was called.
    """

    def __init__(
        self, core: ClientProtocol, core_lock: Lock, write_timeout: float
    ) -> None:
        self._core = core
        self._core_lock = core_lock
        self._write_timeout = write_timeout
        # Where an exception of a signal handler comes before it is released, it stays taken: the
        # connection ends then.
        self._write_lock = threading.Lock()
        self._unsent = memoryview(b"")  # taken from the core, not yet sent; by _write_lock
        self._transport: Transport | None = None
        #: Bytes that the socket has taken; grows while the peer reads. By _write_lock.
        self.sent: int = 0

    def attach(self, transport: Transport) -> None:
        """Set the socket; before anything else."""
        self._transport = transport
        _, self._send = transport.functions()

    def flush(self, wait: bool) -> bool:
        """Write what is queued, unless another thread does; False when bytes were left.

        Blocks: only with ``wait``, and at most ``write_timeout`` without progress.

        Raises:
            ConnectionLostError, WriteTimeoutError: the connection cannot be used any more. This
            holds for any other exception too, as with Ctrl-C: how much was sent is not known.
        """
        while self._write_lock.acquire(blocking=False):
            try:
                done = self._send_queued(wait)
            finally:
                self._write_lock.release()
            if not done:
                return False
            with self._core_lock:
                if not self._core.has_data_to_send():
                    return True
        return True

    def drain(self, timeout: float) -> bool:
        """Wait until everything queued was written, by any thread; False when it was not.

        Raises: as ``flush``.
        """
        until = time.monotonic() + timeout
        if not self._write_lock.acquire(timeout=timeout):
            return False
        try:
            return self.send_all(wait=True, until=until)
        finally:
            self._write_lock.release()

    def send_all(self, wait: bool, until: float = math.inf) -> bool:
        """Send until nothing is queued. Needs the write lock, or no other thread yet."""
        while self._send_queued(wait, until):
            with self._core_lock:
                if not self._core.has_data_to_send():
                    return True
        return False

    def _send_queued(self, wait: bool, until: float = math.inf) -> bool:
        """Send what is queued now; False when bytes were left. Needs the write lock."""
        transport = self._transport
        assert transport is not None
        data: bytes | memoryview = self._unsent
        if not data:
            with self._core_lock:
                data = self._core.data_to_send()
        while data:
            sent = 0
            try:
                sent = self._send(data)
            except OSError as exc:
                transport.need_lost(exc)
            self.sent += sent
            if sent == len(data):
                break
            data = memoryview(data)[sent:]
            self._unsent = data
            if not sent:
                if not wait or time.monotonic() >= until:
                    return False
                self._wait_writable(transport, until)
        self._unsent = memoryview(b"")
        return True

    def _wait_writable(self, transport: Transport, until: float) -> None:
        """Wait until the socket takes bytes; raise when it takes none for ``write_timeout``."""
        left = until - time.monotonic()
        if left >= self._write_timeout:
            transport.wait_writable(self._write_timeout)
            return
        with contextlib.suppress(WriteTimeoutError):  # the caller's time is over, not the peer's
            transport.wait_writable(max(0.0, left))

    def close(self) -> None:
        """Close the socket, when no thread waits on it any more. Shut it down first.

        Blocks: for a second at most, where a thread was interrupted while it wrote.
        """
        self._write_lock.acquire(timeout=_LAST_WRITE)
        if self._transport is not None:
            self._transport.close()
