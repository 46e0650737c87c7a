"""``BlockingConnection``: one socket to one nsqd that serves one publish at a time.

The publishing thread writes the command and reads the response, with a time limit for each wait.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from nsqclient.config import Config
from nsqclient.connection.exchange import exchange
from nsqclient.connection.handshake import NsqdSocket
from nsqclient.errors import ConnectionLostError, NSQError
from nsqclient.log_records import log_fields
from nsqclient.protocol.client import State
from nsqclient.protocol.events import FatalError, Published, PublishFailed
from nsqclient.protocol.frames import OK, FrameType, encode_frame
from nsqclient.runtime.deadline import Deadline

logger: logging.Logger = logging.getLogger("nsqclient.connection")


class Answer(NamedTuple):
    """The result of an attempt to publish."""

    error: NSQError | None = None  #: None if the message is stored
    value: Any = None  #: the result of ``read_answer``


#: The response to a stored message, which usually arrives by itself, and its Answer.
STORED_FRAME, STORED = encode_frame(FrameType.RESPONSE, OK), Answer()


class BlockingConnection(NsqdSocket):
    """A connection to one nsqd for publishes, one at a time.

    If it ``is_plain``, a publish calls ``exchange()`` with ``fd`` itself. For every answer but
    STORED_FRAME, and with TLS or compression: ``begin()``, then ``wait()``.

    Threads: only the thread that has taken the connection from a pool, also for ``close()``.
    ``cut()`` and ``has_unread()``: any.
    """

    has_begun: bool = True  # nsqd may have read a part of a publish that waits

    def __init__(self, address: str, config: Config) -> None:
        super().__init__(address, config)
        self._error: NSQError | None = None  # the reason given to cut(); written under _lock
        self.is_closed: bool = False  # written under _lock
        self.fd: int = -1
        self.is_plain: bool = False  # the socket carries the bytes of the commands
        self._out = b""  # the command of this publish, and NOPs that followed it
        self.sent: int = 0  # bytes of it that the kernel has taken
        self.opened_at: float = 0.0
        self.used_at: float = 0.0  # when nsqd last answered a publish
        self.heard_at: float = 0.0  # when bytes last arrived
        self.suspected_at: float = 0.0  # when a publish began to doubt that it is alive

    def __del__(self) -> None:
        if not self.is_closed:  # an exception has interrupted its thread
            self.close()

    def open(self, deadline: Deadline) -> None:
        """Dial, negotiate, and authenticate if requested. Blocks and raises as Connection.open."""
        try:
            self._dial(None, deadline)
            with self._lock:
                self._need_not_ended()
                assert self._transport is not None
                self.fd = self._transport.fileno()
        except BaseException:
            self.close()
            raise
        self.is_plain = not self._core.has_layers
        self.opened_at = self.used_at = self.heard_at = time.monotonic()

    @property
    def progress(self) -> int:
        """A number that changes while nsqd reads the command."""
        return 0 if self.sent == len(self._out) else self.sent

    # -- one publish at a time, in the thread that took the connection

    def begin(self, command: bytes, read_answer: Callable[[bytes], Any]) -> None:
        """Begin a publish, of which ``sent`` bytes were sent already if ``is_plain``."""
        if not self.is_plain:
            self.sent = 0
        # Not self as the token: without a cycle, the last reference closes it at once.
        self._core.send_publish(command, None, read_answer)
        self._out = self._core.data_to_send()

    def wait(self, until: float, data: bytes | int | None = None) -> Answer | None:
        """Write the rest of the command and return the answer, or None if the time is over.

        If the connection ``is_ended`` afterwards, or if this raises NSQError, close it.

        Args:
            data: the answer of an ``exchange()``.
        """
        core = self._core
        while True:
            if data is not None:
                self._receive(data)
                answer = self._take_answer()
                if core.state is State.READY and core.has_data_to_send():  # NOP to a heartbeat
                    self._out += core.data_to_send()
                if answer is not None:
                    self._send_rest()
                    return answer
            left = max(0.0, until - time.monotonic())
            self.sent, data = exchange(self.fd, self._out, self.sent, left)
            if data is None:
                return None

    def _receive(self, data: bytes | int) -> None:
        if self._error is None and isinstance(data, int):
            assert self._transport is not None
            raise self._transport.lost(OSError(data, os.strerror(data)))
        if isinstance(data, int) or not data:
            raise self._error or ConnectionLostError(self.address, "closed by the peer")
        self.heard_at = time.monotonic()
        self._core.receive_data(data)

    def _take_answer(self) -> Answer | None:
        for event in self._core.take_events():
            if isinstance(event, Published):
                return Answer(None, event.answer)
            if isinstance(event, (FatalError, PublishFailed)):
                self.is_ended = self.is_ended or isinstance(event, FatalError)
                return Answer(event.error)
        return None

    def _send_rest(self) -> None:
        """Send the NOP to a heartbeat that arrived with the answer, without waiting."""
        rest = memoryview(self._out)[self.sent:]
        if rest and not self.is_ended:
            assert self._transport is not None
            try:
                self.is_ended = self._transport.send_some(rest) < len(rest)
            except ConnectionLostError:
                self.is_ended = True

    # -- between two publishes

    def look(self) -> bool:
        """Answer heartbeats and return True if the connection is alive. Does not block."""
        core = self._core
        try:
            self._out, self.sent = b"", 0
            while True:
                self.sent, data = exchange(self.fd, self._out, self.sent, 0.0)
                if data is None:
                    return not self.is_ended and self.sent == len(self._out)
                self._receive(data)
                core.take_events()
                if core.state is not State.READY:
                    return False
                self._out += core.data_to_send()  # the NOP to a heartbeat
        except NSQError as exc:
            logger.debug("%s: lost while it was idle: %s", self.address, exc,
                         extra=log_fields(nsqd=self.address))
            return False

    # -- from any thread

    def has_unread(self) -> bool:
        """True if bytes, or the end of the stream, can be received."""
        with self._lock:
            return not self.is_closed and self._transport is not None \
                and self._transport.has_input()

    def cut(self, reason: str) -> None:
        """Shut the connection down; a waiting publish raises ConnectionLostError."""
        with self._lock:
            if self._error is None:
                self._error = ConnectionLostError(self.address, reason)
            self.is_ended = True
            if not self.is_closed:
                self._shut_down()

    def close(self) -> None:
        """Close the socket. Idempotent. Not from other threads."""
        with self._lock:
            self.is_ended: bool = True
            if not self.is_closed:
                self._shut_down()
                if self._transport is not None:
                    self._transport.close()
                self.fd = -1
                self.is_closed = True

    def abandon(self) -> None:
        self.is_closed, self.fd = True, -1
        super().abandon()
