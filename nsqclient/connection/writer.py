"""``SocketWriter``: writes the bytes of the protocol core to the socket.

The reader must answer heartbeats and must not wait to write, or the reader, a sender and a peer
that writes before it reads would deadlock. So sending does not wait for the write lock. Its holder
checks the core again after releasing it, and writes commands that were queued meanwhile.
"""

from __future__ import annotations

import math
import threading
import time

from nsqclient.protocol.client import ClientProtocol
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.transport import Transport

#: Seconds that a write may take after its socket was shut down.
_LAST_WRITE = 1.0


class SocketWriter:
    """The sending side of one connection, which sends the bytes of ``core``.

    Args:
        core_lock: guards the core; acquired after the write lock, never before it.
        write_timeout: seconds in which the peer must read some bytes.

    Threads: any, after ``attach``.
    """

    def __init__(self, core: ClientProtocol, core_lock: Lock, write_timeout: float) -> None:
        self._core = core
        self._core_lock = core_lock
        self._write_timeout = write_timeout
        # An exception of a signal handler may leave it acquired. Then the connection ends.
        self._write_lock = threading.Lock()
        self._unsent = memoryview(b"")  # taken from the core, not yet sent; guarded by _write_lock
        #: Bytes that the socket has accepted.
        self.sent: int = 0
        self._transport: Transport | None = None

    def attach(self, transport: Transport) -> None:
        self._transport = transport
        self._send = transport.raw_send

    def flush(self, wait: bool) -> bool:
        """Write the queued bytes, unless another thread does; return False if bytes are left.

        Blocks: only with ``wait``, and at most ``write_timeout`` without progress. After any
        exception the connection cannot be used any more: nobody knows how much was sent.
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
        """Wait until all queued bytes are written, by any thread; False if they are not."""
        until = time.monotonic() + timeout
        if not self._write_lock.acquire(timeout=timeout):
            return False
        try:
            return self.send_all(wait=True, until=until)
        finally:
            self._write_lock.release()

    def send_all(self, wait: bool, until: float = math.inf) -> bool:
        """Send until the queue is empty. Needs the write lock, or no other thread yet."""
        while self._send_queued(wait, until):
            with self._core_lock:
                if not self._core.has_data_to_send():
                    return True
        return False

    def _send_queued(self, wait: bool, until: float = math.inf) -> bool:
        """Send the bytes queued now; return False if bytes are left. Needs the write lock."""
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
        """Wait until the socket accepts bytes; raise if it accepts none for ``write_timeout``."""
        left = until - time.monotonic()
        if left >= self._write_timeout:
            transport.wait_writable(self._write_timeout)
        else:
            transport.wait(max(0.0, left), for_write=True)

    def close(self) -> None:
        """Close the socket after its shutdown, once no thread writes to it.

        Blocks: at most a second, if a thread was interrupted while writing.
        """
        self._write_lock.acquire(timeout=_LAST_WRITE)
        if self._transport is not None:
            self._transport.close()
