"""``SocketReader``: receives from the socket, feeds the protocol core, calls the delegate."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from nsqclient.connection.exchange import RECEIVE_SIZE, receive
from nsqclient.errors import ConnectionLostError, NSQError, RemoteProtocolError, ServerError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import (
    CloseWait,
    CommandFailed,
    FatalError,
    Heartbeat,
    Messages,
    Published,
    PublishFailed,
)
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.transport import RECV_SIZE, Transport

#: A paused reader continues if no worker has received for this many seconds. This is far less than
#: a heartbeat interval.
_PAUSE = 0.05


class ConnectionDelegate(Protocol):
    """Receives the events of a Connection, on its reader thread. The methods must not block."""

    def on_messages(self, conn: Any, batch: list[RawMessage]) -> None:
        """Messages arrived, in this order."""
        ...

    def on_published(self, conn: Any, token: Any, error: ServerError | None) -> None:
        """nsqd responded to the publish with ``token``. It is stored if ``error`` is None."""
        ...

    def on_command_failed(self, conn: Any, error: ServerError) -> None:
        """nsqd rejected a FIN, REQ or TOUCH, because the message had timed out."""
        ...

    def on_close_wait(self, conn: Any) -> None:
        """No more messages will come."""
        ...

    def on_closed(self, conn: Any, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended. Called once.

        Args:
            error: a ServerError if nsqd rejected a command; then it did not read later ones.
            unanswered: the tokens of publishes without a response.
        """
        ...


class SocketReader:
    """The receiving side of one connection: the reader thread or, while that pauses, one worker.

    With one message at a time, waking the reader thread and then a worker costs as much as the
    message itself. So a worker that would only wait for the next message receives it, and the
    reader thread pauses. It continues when it is woken, or soon after a worker last received.

    Args:
        core_lock: guards the core.
        flush: writes the core's own commands without waiting; returns True if bytes were left.
        timeout: seconds of silence after which the connection is lost.

    Threads: ``run`` on the reader thread; ``receive_messages`` and ``wake`` on any.
    """

    def __init__(
        self,
        conn: Any,
        core: ClientProtocol,
        core_lock: Lock,
        flush: Callable[[], bool],
        delegate: ConnectionDelegate,
        timeout: float,
    ) -> None:
        self._conn = conn
        self._core = core
        self._core_lock = core_lock
        self._flush = flush
        self._delegate = delegate
        self._timeout = timeout
        self._transport: Transport | None = None
        self._fd = -1
        self._last_read = 0.0  # when bytes last arrived, on time.monotonic()
        self._bytes_left = False  # to write when the socket accepts them
        self._is_flooded = False  # the last read was full: the next one does not wait
        self._failure: NSQError | None = None  # ends the connection after the events before it
        # Its holder receives. The reader has it from before it runs until after its end.
        self._receive_lock = threading.Lock()
        self._receive_lock.acquire()
        self._is_requested = False  # a worker wants to receive; no lock
        self._turns = 0  # number of turns in which workers received
        #: Workers may receive. Written by the reader, read without a lock.
        self.is_paused: bool = False
        self._wakeup = threading.Lock()  # released to wake the reader
        self._wakeup.acquire()

    def run(self, transport: Transport) -> None:
        """Receive until the connection ends; raise the reason, an NSQError."""
        self.attach(transport)
        while True:
            self._dispatch()  # responses that arrived before a failure count
            if self._failure is not None:
                raise self._failure
            if self._is_requested:
                self._pause()
            else:
                self._receive()

    def attach(self, transport: Transport) -> None:
        self._transport = transport
        self._fd = transport.fileno()
        self._last_read = time.monotonic()

    def receive_messages(self, until: float) -> None:
        """Receive messages in place of the reader, on a worker that would wait for the next one.

        The delegate is called from this thread. If the reader is receiving, this method returns at
        once, and the reader pauses after the next event.

        Blocks: until messages arrive, at most until ``until`` on ``time.monotonic()``; then the
        reader receives again.
        """
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
                self._receive(left)
                has_messages = self._dispatch(messages_only=True)
        except NSQError as exc:
            self._failure = exc  # the reader ends the connection
        except BaseException:  # such as that of a time limit: bytes may be lost
            self._failure = ConnectionLostError(self._conn.address, "messages were not taken")
            raise
        finally:
            self._receive_lock.release()
            if not has_messages or self._core.events or self._failure or self._bytes_left:
                self.wake()

    def wake(self) -> None:
        """Let the reader thread continue, if it pauses."""
        if self.is_paused:
            with contextlib.suppress(RuntimeError):  # it was woken already
                self._wakeup.release()

    def _pause(self) -> None:
        self._is_requested = False
        self.is_paused = True
        # After the flag is set: a thread that sends from now on wakes the reader.
        if not (self._core.awaits_answer() or self._bytes_left):
            self._receive_lock.release()
            while True:
                turns = self._turns
                woken = self._wakeup.acquire(timeout=_PAUSE)
                if (woken or self._turns == turns) and self._receive_lock.acquire(blocking=False):
                    break
        self.is_paused = False

    def _receive(self, longest: float = math.inf) -> None:
        """Wait for bytes, at most ``longest`` seconds, and pass them to the core."""
        transport = self._transport
        assert transport is not None
        if self._bytes_left:
            self._bytes_left = self._flush()
        until = self._last_read + self._timeout
        seconds = min(longest, max(0.0, until - time.monotonic()))
        if self._bytes_left:
            transport.wait(seconds, for_write=True)
            seconds = 0.0
        if self._is_flooded:
            data: bytes | int | None = transport.recv(RECV_SIZE)
        else:
            data = receive(self._fd, seconds)
        if data is None:
            # Checked after the read: if our process was suspended, nsqd was not silent.
            if not self._is_flooded and time.monotonic() >= until:
                raise ConnectionLostError(self._conn.address, f"silent for {self._timeout:g} s")
            self._is_flooded = False
            return
        if isinstance(data, int):
            raise transport.lost(OSError(data, os.strerror(data)))
        if not data:
            with self._core_lock:
                self._core.receive_eof()
            raise ConnectionLostError(self._conn.address, "closed by the peer")
        is_full = len(data) == (RECV_SIZE if self._is_flooded else RECEIVE_SIZE)
        self._is_flooded = is_full and not self._core.has_layers
        self._last_read = time.monotonic()
        with self._core_lock:
            try:
                self._core.receive_data(data)
            except RemoteProtocolError as exc:
                self._failure = exc
            has_data_to_send = self._core.has_data_to_send()
        if has_data_to_send:  # the NOP to a heartbeat
            self._bytes_left = self._flush()

    def _dispatch(self, messages_only: bool = False) -> bool:
        """Call the delegate with each event, in order; return True if there were messages.

        Args:
            messages_only: stop at the first event other than messages and heartbeats.
        """
        conn, delegate, events = self._conn, self._delegate, self._core.events
        has_messages = False
        while events:
            event = events[0]
            if messages_only and not isinstance(event, (Messages, Heartbeat)):
                break
            events.popleft()
            if isinstance(event, Messages):
                has_messages = True
                delegate.on_messages(conn, event.batch)
            elif isinstance(event, Published):
                delegate.on_published(conn, event.token, None)
            elif isinstance(event, CommandFailed):
                delegate.on_command_failed(conn, event.error)
            elif isinstance(event, CloseWait):
                delegate.on_close_wait(conn)
            elif isinstance(event, PublishFailed):
                delegate.on_published(conn, event.token, event.error)
            elif isinstance(event, FatalError):
                if event.token is not None:
                    delegate.on_published(conn, event.token, event.error)
                raise event.error
        return has_messages
