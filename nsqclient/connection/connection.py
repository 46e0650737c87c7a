"""``Connection``: one socket to one nsqd, its protocol state, and its reader thread.

``_lock`` guards the protocol core and is held for microseconds only. While it is held, nothing is
sent and the delegate is not called. ``docs/topics/threads.rst`` describes threads and locks.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
from collections.abc import Callable

from nsqclient.config import Config
from nsqclient.connection.delegate import ConnectionDelegate
from nsqclient.connection.handshake import Subscribe
from nsqclient.connection.opening import open_dialogue
from nsqclient.connection.reader import SocketReader
from nsqclient.connection.writer import BackgroundFlusher, SocketWriter
from nsqclient.errors import (
    ConnectError,
    ConnectionLostError,
    NSQConnectionError,
    NSQError,
    ReentrantCallError,
    ServerError,
)
from nsqclient.log_fields import log_fields
from nsqclient.protocol.client import ClientProtocol, State
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.frames import DEFAULT_MAX_FRAME_SIZE
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.threads import LibraryThread
from nsqclient.runtime.transport import Transport

logger: logging.Logger = logging.getLogger("nsqclient.connection")


class InterruptedSendError(ConnectionLostError):
    """A signal handler raised an exception while bytes were sent; nsqd is not the cause."""


class Connection:
    """A connection to one nsqd: the low-level API below Consumer and Producer.

    It opens, sends commands and reports events. Reconnecting, retries and RDY are left to Consumer
    and Producer, so most programs do not need it.

    Args:
        address: ``host:port`` of nsqd.
        config: the options for dialing, IDENTIFY, TLS and timeouts.
        delegate: receives the events, on the reader thread.

    Life: created (no socket yet); ``open()`` dials and negotiates in the calling thread;
    ``start()`` starts the reader thread; ``close()`` ends both. It is not opened again.

    Threads: ``send``, ``try_send`` and ``close`` may be called from any thread.
    """

    def __init__(self, address: str, config: Config, delegate: ConnectionDelegate) -> None:
        self.address = address
        self._config = config
        self._delegate = delegate
        self._lock = Lock()
        self._core = ClientProtocol(config.max_msg_size or DEFAULT_MAX_FRAME_SIZE)  # by _lock
        self._writer = SocketWriter(self._core, self._lock, config.write_timeout)
        self._background_flusher = BackgroundFlusher(self._writer, self._fail, address)
        # Without heartbeats silence means nothing; TCP's keepalive has to suffice.
        timeout = float("inf")
        if config.heartbeat_interval > 0:
            timeout = min(config.read_timeout, 2 * config.heartbeat_interval)
        self._socket_reader = SocketReader(
            self, self._core, self._lock, self._flush_as_reader, delegate, timeout
        )
        self._error: NSQError | None = None  # why it ended, the first reason; by _lock
        self._transport: Transport | None = None
        self._dialed: socket.socket | None = None  # before there is a transport; by _lock
        self._reader: LibraryThread | None = None
        self._closing = False  # written under _lock
        self._is_open = False  # open() succeeded; written under _lock
        self._is_finished = False  # on_closed was called; written under _lock

    @property
    def settings(self) -> ServerSettings:
        """The settings in nsqd's response to IDENTIFY."""
        return self._core.settings

    @property
    def is_partitioned(self) -> bool:
        """Return whether nsqd is partitioned; known after ``open()``."""
        return self._core.is_partitioned

    @property
    def local_host(self) -> str:
        """The local address; empty when the connection is not open."""
        return "" if self._transport is None else self._transport.local_host

    @property
    def is_closed(self) -> bool:
        """Return whether the connection is closed or being closed."""
        return self._closing or self._core.state is State.CLOSED

    @property
    def has_unread(self) -> bool:
        """Return whether something waits in the socket, such as answers for a process that was
        suspended."""
        return self._transport is not None and self._transport.has_input()

    @property
    def bytes_sent(self) -> int:
        """Number of bytes that the socket has accepted; it grows while nsqd reads."""
        return self._writer.sent

    def __repr__(self) -> str:
        return f"<Connection {self.address} {self._core.state.value}>"

    # -- opening, in the calling thread

    def open(
        self, deadline: Deadline, subscribe: Subscribe | tuple[str, str] | None = None
    ) -> None:
        """Dial, negotiate, authenticate if requested, and subscribe to (topic, channel).

        Blocks: until the deadline, the dial itself at most ``dial_timeout``.

        Raises:
            ConnectError: nsqd cannot be reached, or did not answer in time.
            ServerError: nsqd rejected a command.
            NegotiationError: a feature was not granted. TLSError: the TLS handshake failed.
            RemoteProtocolError: the server at this address is not an nsqd.
        """

        config = self._config
        dial = Deadline(deadline.at_most(config.dial_timeout))
        transport = Transport.connect(
            self.address, dial, config.local_addr or None, self._note_dialed
        )
        self._writer.attach(transport)
        with self._lock:
            self._transport = transport
        try:
            self._need_not_closed()
            self._socket_reader.events += open_dialogue(
                self._core, self._writer, transport, config, subscribe, deadline)
            with self._lock:
                self._need_not_closed()
                self._is_open = True
        except BaseException:
            transport.shutdown()
            transport.close()
            raise
        logger.info("%s: connected to nsqd %s", self.address, self.settings.version,
                    extra=log_fields(nsqd=self.address))

    def _note_dialed(self, sock: socket.socket) -> None:
        """Have ``close()`` end this dial."""
        with self._lock:
            self._need_not_closed()
            self._dialed = sock

    def _need_not_closed(self) -> None:
        if self._closing:
            raise ConnectError(self.address, "closed while it was being opened")

    def start(self) -> None:
        """Start the reader thread; from now on the delegate is called.

        If the connection has ended, because of ``close()`` or a write that failed, no
        thread is started, and ``on_closed`` is called from here.

        Raises:
            RuntimeError: there is no thread for the reader; close the connection.
        """
        with self._lock:
            error = self._error
            if not self._closing:
                self._reader = LibraryThread(
                    self._read_loop, f"nsq-reader-{self.address}", owner=self._delegate
                )
                self._reader.launch()
        if error is not None and self._is_open and not self.has_reader:
            self._finish(error)

    @property
    def has_reader(self) -> bool:
        """Return whether there is a reader thread, which calls ``on_closed``."""
        return self._reader is not None and self._reader.ident is not None

    # -- sending

    def send(
        self,
        queue: Callable[[ClientProtocol], None],
        until: float = math.inf,
        wake_reader: bool = True,
    ) -> None:
        """Let ``queue`` put commands into the core, and write them.

        Args:
            until: when to stop waiting, on ``time.monotonic()``.
            wake_reader: False: the caller calls ``receive_messages`` next.

        Blocks: while the kernel accepts no bytes, at most ``write_timeout``. If ``until`` is
        reached first, a thread writes the remaining bytes as soon as the kernel accepts them.

        Raises:
            ClosedError: the connection ended before; nothing was queued.
            ConnectionLostError, WriteTimeoutError: it ended while writing.
            LocalProtocolError: the command is not possible now; nothing was queued.
            ReentrantCallError: this thread is in the middle of another call; nothing was queued.
        """
        try:
            with self._lock:
                queue(self._core)
            is_written = self._writer.flush(True, until)
            if not is_written or wake_reader and self._socket_reader.is_paused:
                # Reentrant: the call of this thread that was interrupted does it.
                with contextlib.suppress(ReentrantCallError):
                    if not is_written:
                        self._background_flusher.wake()
                    self._socket_reader.wake()
        except BaseException as exc:
            self._on_failed_call(exc)
            raise

    def receive_messages(self, until: float) -> None:
        """Receive messages in place of the reader, for a worker that would wait for the next one.

        This saves waking the reader and the worker. The delegate is called from this thread. If the
        reader is receiving, this method returns at once, and the reader stops receiving after the
        next event.

        Blocks: until messages arrive, or until ``until`` on ``time.monotonic()``; then the reader
        receives again.
        """
        self._socket_reader.receive_messages(until)

    def wake_reader(self) -> None:
        """Make the reader receive, if no other thread does."""
        self._socket_reader.wake()

    def try_send(self, queue: Callable[[ClientProtocol], None]) -> bool:
        """Like ``send``, but does not wait. False if bytes are left: call ``flush`` later.

        For the timer thread.
        """
        try:
            with self._lock:
                queue(self._core)
            return self._writer.flush(False)
        except BaseException as exc:
            self._on_failed_call(exc)
            raise

    def flush(self) -> None:
        """Write what is queued. Blocks and raises like ``send``."""
        try:
            self._writer.flush(True)
        except BaseException as exc:
            self._on_failed_call(exc)
            raise

    def drain(self, timeout: float) -> bool:
        """Wait until all queued bytes are written; False if they were not, or cannot be.

        For the end: ``close()`` comes next. Others may be writing at the same time.
        """
        try:
            return not self.is_closed and self._writer.drain(timeout)
        except NSQError as exc:
            logger.debug("%s: not all was written: %s", self.address, exc,
                         extra=log_fields(nsqd=self.address))
            return False

    def _on_failed_call(self, error: BaseException) -> None:
        """A call ended in the middle: end the connection, unless nothing has happened to it.

        An exception of a signal handler may come anywhere. How much was queued or sent is not
        known then, and each response would be taken for that of another command.
        """
        if isinstance(error, NSQConnectionError):
            self._fail(error)
        elif not isinstance(error, NSQError):
            self.interrupt()

    def interrupt(self) -> None:
        """End it: an exception of a signal handler has ended a call in the middle."""
        self._fail(InterruptedSendError(self.address, "interrupted while sending"))

    def _flush_as_reader(self) -> bool:
        """Write without waiting; return whether bytes were left.

        A write that fails ends the connection. What nsqd has sent before, perhaps the reason, is
        still to be read: the end of the stream comes behind it.
        """
        try:
            return not self._writer.flush(False)
        except NSQError as exc:
            self._fail(exc)
            return False

    # -- reading

    def _read_loop(self) -> None:
        error: NSQError
        try:
            assert self._transport is not None
            self._socket_reader.attach(self._transport)
            self._socket_reader.run()
        except NSQError as exc:
            error = exc.with_traceback(None)  # its frames would keep the messages that came last
        except BaseException as exc:
            error = ConnectionLostError(self.address, f"internal error: {exc!r}")
            logger.error("%s: reader failed", self.address, exc_info=exc,
                         extra=log_fields(nsqd=self.address))
        finally:  # also where the log has no memory left
            self._finish(error)

    # -- the end

    def close(self, reason: str = "closed by us") -> None:
        """End the connection. Idempotent, any thread, does not block.

        ``on_closed`` is called once, from the reader thread, or from this thread if none was
        started.
        """
        error = ConnectionLostError(self.address, reason)
        self._fail(error)
        if self._is_open and not self.has_reader:
            self._finish(error)

    def abandon(self) -> None:
        """In a forked child: close the inherited socket without sending anything to nsqd.

        The parent's connection stays open: closing is not shutting down.
        """
        transport, dialed = self._transport, self._dialed
        if transport is not None:
            transport.close()
        elif dialed is not None:
            dialed.close()

    def join(self, deadline: Deadline) -> bool:
        """Wait for its threads to end; True when they have. Call ``close()`` first."""
        reader = self._reader
        if reader is None or reader is threading.current_thread():
            return True
        reader.join(deadline.remaining())
        return self._background_flusher.join(deadline) and not reader.is_alive()

    def _fail(self, error: NSQError) -> None:
        """Note why the connection ends, and wake the reader."""
        with self._lock:
            self._closing = True
            if self._error is None:
                self._error = error
            transport, dialed = self._transport, self._dialed
        if transport is not None:
            transport.shutdown()
        elif dialed is not None:
            with contextlib.suppress(OSError):  # it has failed meanwhile
                dialed.shutdown(socket.SHUT_RDWR)
        self._socket_reader.wake()

    def _finish(self, error: NSQError) -> None:
        """Close the socket and call ``on_closed``. Runs once."""
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = self._closing = True
            # A server's error explains more than the failed write or EOF that came with it.
            if self._error is None or isinstance(error, ServerError):
                self._error = error
            error = self._error
            self._core.receive_eof()
            unanswered = self._core.unanswered()
            transport = self._transport
        assert transport is not None
        transport.shutdown()
        self._writer.close()
        self._delegate.on_closed(self, error, unanswered)
