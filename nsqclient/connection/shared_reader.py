"""``SharedReader``: a reader thread whose place a worker can take.

If a consumer may have one message at a time, each message would wake the reader thread and then a
worker, which costs as much as the message itself. So a worker that would only wait for the next
message receives it, and the reader thread *pauses*. It continues when it is woken, or soon after
the last worker has received, so heartbeats are answered in time whatever the workers do.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from nsqclient.connection.reader import SocketReader
from nsqclient.errors import ConnectionLostError, NSQError
from nsqclient.runtime.lock import Lock

#: Seconds without a worker that receives, after which the reader continues: far less than a
#: heartbeat interval, and long enough to cost nothing while messages follow each other.
_PAUSE = 0.05


class SharedReader(SocketReader):
    """A SocketReader on the reader thread or, while that pauses, on one worker.

    Threads: ``run`` on the reader thread; ``receive_messages`` and ``wake`` on any.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Its holder receives. The reader has it from before it runs until after its end.
        self._receive_lock = threading.Lock()
        self._receive_lock.acquire()
        self._is_requested = False  # a worker would receive; no lock
        self._turns = 0  # of workers that received
        #: Workers may receive. Written by the reader, read without a lock.
        self.is_paused: bool = False
        self._wakeup = threading.Lock()  # released to wake the reader
        self._wakeup.acquire()
        self._wake_lock = Lock()

    def receive_messages(self, until: float) -> None:
        """Receive messages on this thread, if no other thread receives. See Connection."""
        if not self._receive_lock.acquire(blocking=False):
            self._is_requested = True
            return
        has_messages = False
        try:
            self._turns += 1
            while not (has_messages or self._core.events or self._failure):
                left = until - time.monotonic()
                if left <= 0:
                    break
                super()._receive(left)
                has_messages = self._dispatch(messages_only=True)
        except NSQError as exc:
            self._failure = exc  # the reader ends the connection
        except BaseException:  # also of a time limit: bytes may be missing
            self._failure = ConnectionLostError(self._conn.address, "messages were not taken")
            raise
        finally:
            self._receive_lock.release()
            if not has_messages or self._core.events or self._failure or self._bytes_left:
                self.wake()

    def wake(self) -> None:
        """Let the reader continue, if it pauses."""
        with self._wake_lock:
            if self.is_paused and self._wakeup.locked():  # else it was woken already
                self._wakeup.release()

    def _receive(self, longest: float = math.inf) -> None:
        """On the reader thread: as ``SocketReader``, or pause for workers."""
        if not self._is_requested:
            super()._receive(longest)
            return
        self._is_requested = False
        self.is_paused = True
        # After the flag is set: a thread that sends from now on wakes the reader.
        if not (self._core.awaits_answer() or self._bytes_left):
            self._receive_lock.release()
            self._wait_for_turn()
        self.is_paused = False

    def _wait_for_turn(self) -> None:
        while True:
            turns = self._turns
            woken = self._wakeup.acquire(timeout=_PAUSE)
            if (woken or self._turns == turns) and self._receive_lock.acquire(blocking=False):
                return
