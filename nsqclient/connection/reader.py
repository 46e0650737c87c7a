"""``SocketReader``: receives from the socket, feeds the protocol core, calls the delegate.

The reader thread receives. A worker that waits for the next message of its partition may receive in
its place, since waking it costs as much as the message itself: the reader *pauses* meanwhile. It
continues when it is woken, and by itself soon after the last such worker. So heartbeats are
answered in time, whatever the workers do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

from nsqclient.errors import ConnectionLostError, NSQError, RemoteProtocolError, ServerError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import (
    CloseWait,
    CommandFailed,
    ExtendedMessages,
    FatalError,
    Heartbeat,
    Messages,
    Published,
    PublishFailed,
)
from nsqclient.protocol.extensions import MessageExtension, StoredPosition
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.transport import RECV_SIZE, SMALL_READ, Transport

#: Seconds without a read by another thread after which the reader continues: far less than a
#: heartbeat, and long enough to cost nothing while messages follow each other.
_PAUSE = 0.05


class ConnectionDelegate(Protocol):
    """Receives the events of a Connection. All calls come from its reader thread; do not block."""

    def on_messages(self, conn: Any, batch: list[RawMessage]) -> None:
        """Messages arrived, in this order."""
        ...

    def on_published(self, conn: Any, token: Any, error: ServerError | None) -> None:
        """nsqd responded to the publish with ``token``; None means that it is stored."""
        ...

    def on_command_failed(self, conn: Any, error: ServerError) -> None:
        """nsqd rejected a FIN, REQ or TOUCH, because the message had timed out."""
        ...

    def on_close_wait(self, conn: Any) -> None:
        """No more messages will come."""
        ...

    def on_closed(self, conn: Any, error: NSQError, unanswered: list[Any]) -> None:
        """The connection ended; called once. ``unanswered``: tokens of publishes without response.

        If ``error`` is a ServerError, nsqd rejected an earlier command and did not read these.
        """
        ...


class PartitionDelegate(ConnectionDelegate, Protocol):
    """Also receives the events of a connection that requested headers, positions or traces."""

    def on_extended_messages(
        self, conn: Any, batch: list[RawMessage], extensions: list[MessageExtension]
    ) -> None:
        """Messages arrived, with the additional fields of a partitioned nsqd."""
        ...

    def on_traced(self, conn: Any, token: Any, stored: StoredPosition) -> None:
        """A traced publish was stored, at this position."""
        ...


class SocketReader:
    """The receiving side of one connection.

    Args:
        conn: what the delegate is called with; its address is that of nsqd.
        core: takes the bytes; ``core_lock`` guards it.
        flush: writes what the core sends by itself, without waiting; True when bytes were left.
        delegate: called with each event, in order.
        timeout: seconds of silence after which nsqd counts as dead.

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
        self._receive_lock = threading.Lock()  # its holder receives; guards all below
        self._receive_lock.acquire()  # the reader's, from before it runs until after its end
        self._transport: Transport | None = None
        self._last_read = 0.0  # when bytes came last, on time.monotonic()
        self._bytes_left = False  # to be written when the socket takes them
        self._may_have_more = True  # there may be more to receive at once
        self._reads = 0
        self._failure: NSQError | None = None  # ends the connection, after the events before it
        self._is_requested = False  # another thread would receive; no lock
        #: Other threads may receive. Written by the reader; read without a lock.
        self.is_paused: bool = False
        self._wakeup = threading.Lock()  # released to wake the reader
        self._wakeup.acquire()
        self._wake_lock = Lock()  # held while one thread does that

    def attach(self, transport: Transport) -> None:
        """Set the socket, when the dialogue is open; before anything else."""
        self._transport = transport
        self._recv, _ = transport.functions()
        self._read_size = SMALL_READ if self._core.has_layers else RECV_SIZE
        self._last_read = time.monotonic()

    def run(self) -> None:
        """Receive until the stream ends; leaves by an exception.

        Raises:
            ConnectionLostError: the end, or silence. RemoteProtocolError: the bytes are not NSQ.
            ServerError: nsqd rejected something, and closes.
        """
        while True:
            self._dispatch()  # outcomes that came before a failure count
            if self._failure is not None:
                raise self._failure
            if self._is_requested:
                self._is_requested = False
                self._pause()
            else:
                self._receive(self._read_size, None)

    def receive_messages(self, until: float) -> None:
        """Receive messages for a worker that has nothing else to do, unless another thread does.

        The delegate is called with them from here. Other events are left to the reader, as are
        messages from ``until`` on.

        Blocks: until messages came, or the deadline, ``until`` on ``time.monotonic()``.
        """
        if not self._receive_lock.acquire(blocking=False):
            self._is_requested = True
            return
        has_messages = False
        try:
            while not (has_messages or self._core.events or self._failure):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._receive(self._read_size if self._may_have_more else SMALL_READ, left)
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
        """Let the reader receive again: a response is awaited that no other thread waits for."""
        with self._wake_lock:
            if self.is_paused and self._wakeup.locked():  # else it was woken already
                self._wakeup.release()

    def _pause(self) -> None:
        """Let other threads receive. On the reader, which holds the lock before and after."""
        self.is_paused = True
        # After the flag is set: a thread that sends from now on wakes the reader.
        if not (self._core.awaits_answer() or self._bytes_left):
            self._receive_lock.release()
            while True:
                reads = self._reads
                woken = self._wakeup.acquire(timeout=_PAUSE)
                if woken or self._reads == reads:
                    if self._receive_lock.acquire(blocking=False):
                        break
        self.is_paused = False

    # -- one read; all of these need _receive_lock

    def _wait(self, longest: float | None) -> bool:
        """Wait until there is something to receive; False when ``longest`` seconds were over."""
        if self._bytes_left:
            self._bytes_left = self._flush()
        until = self._last_read + self._timeout
        timeout = max(0.0, until - time.monotonic())
        if longest is not None and longest < timeout:
            timeout = longest
        assert self._transport is not None
        if self._transport.wait(timeout, for_write=self._bytes_left):
            return True
        # After a look: when our process did not run for a while, nsqd was not silent.
        if time.monotonic() >= until:
            raise ConnectionLostError(self._conn.address, f"silent for {self._timeout:g} s")
        return False

    def _receive(self, size: int, longest: float | None) -> None:
        """Take what comes; the events are in the core then, and ``_failure`` ends what follows.

        Blocks: at most ``longest`` seconds; None: until something comes.
        """
        if not (self._may_have_more or self._wait(longest)):
            return
        core = self._core
        self._reads += 1
        try:
            data = self._recv(size)
        except OSError as exc:
            assert self._transport is not None
            self._transport.need_lost(exc)
            self._may_have_more = False
            return
        if not data:
            with self._core_lock:
                core.receive_eof()
            raise ConnectionLostError(self._conn.address, "closed by the peer")
        self._may_have_more = len(data) == size  # less: the socket is empty now
        self._last_read = time.monotonic()
        with self._core_lock:
            try:
                core.receive_data(data)
            except RemoteProtocolError as exc:
                self._failure = exc
            has_data_to_send = core.has_data_to_send()
        if has_data_to_send:  # the NOP to a heartbeat
            self._bytes_left = self._flush()

    def _dispatch(self, messages_only: bool = False) -> bool:
        """Call the delegate with each event, in order; return whether there were messages.

        With ``messages_only`` no further than to the first event that is the reader's.

        Raises:
            ServerError: nsqd rejected something, and closes.
        """
        conn, delegate, events = self._conn, self._delegate, self._core.events
        has_messages = False
        while events:
            event = events[0]
            if messages_only and not isinstance(event, (Messages, ExtendedMessages, Heartbeat)):
                break
            events.popleft()
            if isinstance(event, Messages):
                has_messages = True
                delegate.on_messages(conn, event.batch)
            elif isinstance(event, Published):
                if event.stored is None:
                    delegate.on_published(conn, event.token, None)
                else:  # only a PartitionDelegate sends traced publishes
                    cast(PartitionDelegate, delegate).on_traced(conn, event.token, event.stored)
            elif isinstance(event, CommandFailed):
                delegate.on_command_failed(conn, event.error)
            elif isinstance(event, CloseWait):
                delegate.on_close_wait(conn)
            elif isinstance(event, ExtendedMessages):
                has_messages = True
                partitioned = cast(PartitionDelegate, delegate)
                partitioned.on_extended_messages(conn, event.batch, event.extensions)
            elif isinstance(event, PublishFailed):
                delegate.on_published(conn, event.token, event.error)
            elif isinstance(event, FatalError):
                if event.token is not None:
                    delegate.on_published(conn, event.token, event.error)
                raise event.error
        return has_messages
