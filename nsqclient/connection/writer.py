"""``SocketWriter``: writes the bytes of the protocol core to the socket.

The reader must answer heartbeats and may never wait to write. Otherwise it, a sender and a peer
that writes before it reads would wait for each other without end. So no thread waits for the write
lock: its holder looks at the core once more after releasing it, and writes what was queued
meanwhile, in one system call. A caller that may wait does so only until the socket takes bytes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable

from nsqclient.errors import ConnectionLostError, NSQError, WriteTimeoutError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread
from nsqclient.runtime.transport import Transport


logger: logging.Logger = logging.getLogger("nsqclient.connection")

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

    def flush(self, wait: bool, until: float = math.inf) -> bool:
        """Write what is queued, unless another thread does; False when bytes were left.

        Args:
            until: when to stop waiting, on ``time.monotonic()``.

        Blocks: only with ``wait``, and at most ``write_timeout`` without progress.

        Raises:
            ConnectionLostError, WriteTimeoutError: the connection cannot be used any more. This
            holds for any other exception too, as with Ctrl-C: how much was sent is not known.
        """
        while self._write_lock.acquire(blocking=False):
            try:
                done = self._send_queued(wait, until)
            finally:
                self._write_lock.release()
            if not done:
                return False
            with self._core_lock:
                if not self._core.has_data_to_send():
                    return True
        return True

    def has_rest(self) -> bool:
        """Return whether bytes wait to be written."""
        with self._core_lock:
            return bool(self._unsent) or self._core.has_data_to_send()

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

    def write_rest(self) -> None:
        """Write everything queued, after the thread that writes now. Not for the reader.

        Blocks: until the peer has taken it. Raises: as ``flush``.
        """
        with self._write_lock:
            self.send_all(wait=True)

    def send_all(self, wait: bool, until: float = math.inf) -> bool:
        """Send until nothing is queued. Needs the write lock, or no other thread yet."""
        while self._send_queued(wait, until):
            with self._core_lock:
                if not self._core.has_data_to_send():
                    return True
        return False

    def _send_queued(self, wait: bool, until: float) -> bool:
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


class BackgroundFlusher:
    """Writes the bytes that a sender left at its deadline, as soon as the socket takes them.

    It has a thread, ``nsq-writer-HOST:PORT``, only while there are bytes to write.

    Args:
        on_lost: called when the connection is lost.

    Threads: any.
    """

    def __init__(
        self, writer: SocketWriter, on_lost: Callable[[NSQError], None], address: str
    ) -> None:
        self._writer = writer
        self._on_lost = on_lost
        self._address = address
        self._lock = Lock()
        self._thread: LibraryThread | None = None  # the latest; by _lock, as the next
        self._is_writing = False

    def wake(self) -> None:
        """Start to write, where bytes were left. Does not block."""
        with self._lock:
            if self._is_writing:
                return  # it looks for bytes once more, under the lock, before it ends
            thread = LibraryThread(self._run, f"nsq-writer-{self._address}")
            try:
                thread.launch()
            except RuntimeError as exc:  # the next sender or heartbeat writes the rest
                logger.error("%s: no thread to write the rest: %s", self._address, exc)
            else:
                self._thread = thread
                self._is_writing = True

    def _run(self) -> None:
        while True:
            try:
                self._writer.write_rest()
            except NSQError as exc:
                self._on_lost(exc)
                return
            except BaseException as exc:
                self._on_lost(ConnectionLostError(self._address, f"internal error: {exc!r}"))
                raise
            with self._lock:
                if not self._writer.has_rest():
                    self._is_writing = False
                    return

    def join(self, deadline: Deadline) -> bool:
        """Wait for the thread to end; shut the socket down first. True when there is none."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(deadline.remaining())
        return not thread.is_alive()
