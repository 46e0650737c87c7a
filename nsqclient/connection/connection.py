"""``Connection``: one socket to one nsqd, its protocol state, and its reader thread.

``docs/topics/threads.rst`` describes threads and locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from nsqclient.config import Config
from nsqclient.connection.handshake import NsqdSocket, Subscribe
from nsqclient.connection.reader import ConnectionDelegate, SocketReader
from nsqclient.errors import ConnectionLostError, NSQConnectionError, NSQError, ServerError
from nsqclient.log_records import log_fields
from nsqclient.protocol.client import ClientProtocol, State
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread

logger: logging.Logger = logging.getLogger("nsqclient.connection")


class InterruptedSendError(ConnectionLostError):
    """A signal handler raised an exception while bytes were sent."""


class Connection(NsqdSocket):
    """A connection to one nsqd: the low-level API below Consumer and Producer.

    Consumer and Producer reconnect, retry and send RDY. Most programs do not need this class.

    Args:
        address: ``host:port`` of nsqd.
        config: the options for dialing, IDENTIFY, TLS and timeouts.
        delegate: receives the events, on the reader thread.

    Lifecycle: created; ``open()`` dials and negotiates in the calling thread; ``start()`` starts
    the reader thread; ``close()`` ends both. It cannot be opened again.

    Threads: ``send``, ``flush`` and ``close`` may be called from any thread.
    """

    def __init__(self, address: str, config: Config, delegate: ConnectionDelegate) -> None:
        super().__init__(address, config)
        self._delegate = delegate
        # Without heartbeats, silence means nothing, and only TCP's keepalive detects a loss.
        timeout = float("inf")
        if config.heartbeat_interval > 0:
            timeout = min(config.read_timeout, 2 * config.heartbeat_interval)
        self.reader: SocketReader = SocketReader(
            self, self._core, self._lock, self._flush_as_reader, delegate, timeout
        )
        self._error: NSQError | None = None  # the first reason for the end; guarded by _lock
        self._thread: LibraryThread | None = None
        self._is_open = False  # open() succeeded
        self._is_finished = False  # on_closed was called; written under _lock

    @property
    def local_host(self) -> str:
        """The local address; empty if the connection is not open."""
        return "" if self._transport is None else self._transport.local_host

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed or being closed."""
        return self.is_ended or self._core.state is State.CLOSED

    @property
    def bytes_sent(self) -> int:
        """Bytes that the socket has accepted; grows while nsqd reads."""
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
            NegotiationError: nsqd did not grant a feature.
            TLSError: the TLS handshake failed.
            RemoteProtocolError: the server at this address is not an nsqd.
        """
        try:
            self._dial(subscribe, deadline)
            self._is_open = True
        except BaseException:
            if self._transport is not None:
                self._transport.shutdown()
                self._transport.close()
            raise

    def start(self) -> None:
        """Start the reader thread, which calls the delegate.

        If the connection has ended already, no thread is started, and ``on_closed`` is called from
        this one.

        Raises:
            RuntimeError: no thread can be started; close the connection.
        """
        with self._lock:
            error = self._error
            if not self.is_ended:
                self._thread = LibraryThread(
                    self._read_loop, f"nsq-reader-{self.address}", owner=self._delegate
                )
                self._thread.launch()
        if error is not None and self._is_open and not self.has_reader:
            self._finish(error)

    @property
    def has_reader(self) -> bool:
        """True if the reader thread was started, which calls ``on_closed``."""
        return self._thread is not None and self._thread.ident is not None

    # -- sending

    def send(self, queue: Callable[[ClientProtocol], None], *, waits: bool = True) -> bool:
        """Let ``queue`` put commands into the core, and write them; return False if bytes are left.

        If a signal handler raises an exception meanwhile, the connection ends, because nobody knows
        how much was queued or sent.

        Args:
            waits: False: return if the socket accepts no bytes; call ``flush`` later.

        Blocks: while the kernel accepts no bytes, at most ``write_timeout``.

        Raises:
            ClosedError: the connection had ended; nothing was queued.
            ConnectionLostError, WriteTimeoutError: it ended while writing.
            LocalProtocolError: the command is not possible now; nothing was queued.
            ReentrantCallError: this thread is in the middle of another call; nothing was queued.
        """
        try:
            with self._lock:
                queue(self._core)
            is_written = self._writer.flush(waits)
            if self.reader.is_paused and self._core.awaits_answer():
                self.reader.wake()
            return is_written
        except NSQConnectionError as exc:
            self._fail(exc)
            raise
        except NSQError:
            raise
        except BaseException:
            self._fail(InterruptedSendError(self.address, "interrupted while sending"))
            raise

    def flush(self) -> None:
        """Write the queued bytes, as ``send``."""
        self.send(lambda core: None)

    def drain(self, timeout: float) -> bool:
        """Wait until all queued bytes are written, by any thread; return True if they are."""
        try:
            return not self.is_ended and self._writer.drain(timeout)
        except NSQError as exc:
            logger.debug("%s: not all was written: %s", self.address, exc,
                         extra=log_fields(nsqd=self.address))
            return False

    def _flush_as_reader(self) -> bool:
        """Write without waiting; return True if bytes were left.

        A failed write does not raise: nsqd may have sent the reason, which is read next.
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
            self.reader.run(self._transport)
        except NSQError as exc:
            error = exc.with_traceback(None)  # its frames would keep the last messages alive
        except BaseException as exc:
            error = ConnectionLostError(self.address, f"internal error: {exc!r}")
            logger.error("%s: reader failed", self.address, exc_info=exc,
                         extra=log_fields(nsqd=self.address))
        finally:  # even if the log runs out of memory
            self._finish(error)

    # -- closing

    def close(self, reason: str = "closed by us") -> None:
        """End the connection. Idempotent, any thread, does not block.

        ``on_closed`` is called once, from the reader thread or, if that was not started, from this
        one.
        """
        error = ConnectionLostError(self.address, reason)
        self._fail(error)
        if self._is_open and not self.has_reader:
            self._finish(error)

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end of the reader thread, after ``close()``; return True if it has ended."""
        reader = self._thread
        if reader is None or reader is threading.current_thread():
            return True
        reader.join(deadline.remaining())
        return not reader.is_alive()

    def _fail(self, error: NSQError) -> None:
        with self._lock:
            self.is_ended: bool = True
            if self._error is None:
                self._error = error
        try:
            self._shut_down()
        finally:  # a signal handler may have raised
            self.reader.wake()

    def _finish(self, error: NSQError) -> None:
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = self.is_ended = True
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
