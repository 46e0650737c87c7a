"""``Outbox``: brings what the protocol core has to say to the socket; the rule for writing.

The reader must answer heartbeats and may never wait to write, else it, a sender and a peer that
writes before it reads wait for each other for good. So nobody ever waits for the write lock:
whoever holds it looks at the core once more after releasing it, and what was queued meanwhile
goes out too, in one system call. Only a caller that may wait waits, for room in the socket.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from nsqclient.errors import NSQError, WriteTimeoutError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread, ThreadStartError
from nsqclient.runtime.transport import Transport
from nsqclient.runtime.trying import try_lock


class Outbox:
    """The way out of one connection.

    Args:
        core: what has bytes to send.
        core_lock: guards the core; taken inside the write lock, never around it.
        write_timeout: seconds in which the peer must take some bytes.

    Threads: any, once ``attach`` was called.
    """

    def __init__(
        self, core: ClientProtocol, core_lock: threading.Lock, write_timeout: float
    ) -> None:
        self._core = core
        self._core_lock = core_lock
        self._write_timeout = write_timeout
        self._write_lock = threading.Lock()
        self._unsent = memoryview(b"")  # taken from the core, not yet sent; by _write_lock
        self._transport: Transport | None = None
        #: Bytes that the socket has taken; grows while the peer reads. By _write_lock.
        self.sent = 0

    def attach(self, transport: Transport) -> None:
        """Set the socket; before anything else."""
        self._transport = transport

    def flush(self, wait: bool, deadline: Deadline | None = None) -> bool:
        """Write what is queued, unless somebody else is at it; False when bytes were left.

        Blocks: only with ``wait``, and at most ``write_timeout`` without progress.

        Raises:
            ConnectionLostError, WriteTimeoutError: the connection is of no use any more. Nor is
            it after any other exception, Ctrl-C: what was sent is not known.
        """
        while True:
            held: list[bool] = []
            try:
                if not try_lock(self._write_lock, held):
                    return True
                done = self._send_queued(wait, deadline)
            finally:
                if held == [True]:
                    self._write_lock.release()
            if not done:
                return False
            with self._core_lock:
                if not self._core.has_data_to_send():
                    return True

    def has_rest(self) -> bool:
        """Tell whether something waits to be written."""
        with self._core_lock:
            return bool(self._unsent) or self._core.has_data_to_send()

    def drain(self, timeout: float) -> bool:
        """Wait until all that is queued was written, also by others; False when it was not.

        Raises: as ``flush``.
        """
        deadline = Deadline(timeout)
        if not self._write_lock.acquire(timeout=timeout):
            return False
        try:
            return self.send_all(wait=True, deadline=deadline)
        finally:
            self._write_lock.release()

    def write_rest(self) -> None:
        """Write all that is queued, after whoever is writing. Not for the reader.

        Blocks: until the peer has taken it. Raises: as ``flush``.
        """
        with self._write_lock:
            self.send_all(wait=True)

    def send_all(self, wait: bool, deadline: Deadline | None = None) -> bool:
        """Send until nothing is queued. Needs the write lock, or no other thread yet."""
        while self._send_queued(wait, deadline):
            with self._core_lock:
                if not self._core.has_data_to_send():
                    return True
        return False

    def _send_queued(self, wait: bool, deadline: Deadline | None) -> bool:
        """Send what is queued now; False when bytes were left. Needs the write lock."""
        transport = self._transport
        assert transport is not None
        data: bytes | memoryview = self._unsent
        if not data:
            with self._core_lock:
                data = self._core.data_to_send()
        while data:
            sent = transport.send_some(data)
            self.sent += sent
            if sent == len(data):
                break
            data = memoryview(data)[sent:]
            self._unsent = data
            if not sent:
                if not wait or (deadline is not None and deadline.expired()):
                    return False
                self._wait_writable(transport, deadline)
        self._unsent = memoryview(b"")
        return True

    def _wait_writable(self, transport: Transport, deadline: Deadline | None) -> None:
        """Wait for room to send; raise when there is none for ``write_timeout``."""
        left = None if deadline is None else deadline.remaining()
        if left is None or left >= self._write_timeout:
            transport.wait_writable(self._write_timeout)
            return
        with contextlib.suppress(WriteTimeoutError):  # our time is over, not the peer's
            transport.wait_writable(left)

    def close(self) -> None:
        """Give the socket back, when nobody waits on it any more. Shut it down first."""
        with self._write_lock:
            if self._transport is not None:
                self._transport.close()


class RestWriter:
    """Writes what a sender had to leave when its time was over, as soon as the socket takes it.

    It has a thread, ``nsq-writer-HOST:PORT``, only while there is something to write.

    Args:
        on_lost: called when the connection turns out to be of no use any more.

    Threads: any.
    """

    def __init__(
        self, outbox: Outbox, on_lost: Callable[[NSQError], None], address: str
    ) -> None:
        self._outbox = outbox
        self._on_lost = on_lost
        self._name = f"nsq-writer-{address}"
        self._lock = threading.Lock()
        self._thread: LibraryThread | None = None  # by _lock

    def wake(self) -> None:
        """Something was left. Does not block."""
        with self._lock:
            if self._thread is not None and self._thread.is_launched:
                return  # it looks once more, under the lock, before it ends
            self._thread = LibraryThread(self._run, self._name)
            # Where no thread is left, the next sender or heartbeat takes the rest along.
            with contextlib.suppress(ThreadStartError):
                self._thread.launch()

    def _run(self) -> None:
        while True:
            try:
                self._outbox.write_rest()
            except NSQError as exc:
                self._on_lost(exc)
                return
            with self._lock:
                if not self._outbox.has_rest():
                    self._thread = None
                    return

    def join(self, deadline: Deadline) -> bool:
        """Wait for the thread to end; shut the socket down first. True when there is none."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(deadline.remaining())
        return not thread.is_alive()
