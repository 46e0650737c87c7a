"""``Connection``: one socket to one nsqd, its protocol state, and its reader thread.

``_lock`` guards the protocol core and is held for microseconds only. While it is held, nothing is
sent and the delegate is not called. ``docs/topics/threads.rst`` describes threads and locks.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from nsqclient.config import Config
from nsqclient.connection.handshake import Subscribe
from nsqclient.connection.opening import NsqdSocket
from nsqclient.connection.reader import ConnectionDelegate, SharedReader
from nsqclient.errors import (
    ConnectionLostError,
    NSQConnectionError,
    NSQError,
    ReentrantCallError,
    ServerError,
)
from nsqclient.log_records import log_fields
from nsqclient.protocol.client import ClientProtocol, State
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread

logger: logging.Logger = logging.getLogger("nsqclient.connection")


class InterruptedSendError(ConnectionLostError):
    """A signal handler raised an exception while bytes were sent; nsqd is not the cause."""


class Connection(NsqdSocket):
    """A connection to one nsqd: the low-level API below Consumer and Producer.

    It opens, sends commands and reports events. Reconnecting, retries and RDY are left to Consumer
    and Producer, so most programs do not need it.

    Args:
        address: ``host:port`` of nsqd.
        config: the options for dialing, IDENTIFY, TLS and timeouts.
        delegate: receives the events, on the reader thread.

    Life: created (no socket yet); ``open()`` dials and negotiates in the calling thread;
    ``start()`` starts the reader thread; ``close()`` ends both. It is not opened again.

    Threads: ``send``, ``flush`` and ``close`` may be called from any thread.
    """

    def __init__(self, address: str, config: Config, delegate: ConnectionDelegate) -> None:
        super().__init__(address, config)
        self._delegate = delegate
        # Without heartbeats silence means nothing; TCP's keepalive has to suffice.
        timeout = float("inf")
        if config.heartbeat_interval > 0:
            timeout = min(config.read_timeout, 2 * config.heartbeat_interval)
        self._reader = SharedReader(
            self, self._core, self._lock, self._flush_as_reader, delegate, timeout
        )
        self._error: NSQError | None = None  # why it ended, the first reason; by _lock
        self._thread: LibraryThread | None = None
        self._is_open = False  # open() succeeded; written under _lock
        self._is_finished = False  # on_closed was called; written under _lock

    @property
    def local_host(self) -> str:
        """The local address; empty when the connection is not open."""
        return "" if self._transport is None else self._transport.local_host

    @property
    def is_closed(self) -> bool:
        """Return whether the connection is closed or being closed."""
        return self.is_ended or self._core.state is State.CLOSED

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
        try:
            self._dial(subscribe, deadline)
            self._is_open = True
        except BaseException:
            if self._transport is not None:
                self._transport.shutdown()
                self._transport.close()
            raise

    def start(self) -> None:
        """Start the reader thread; from now on the delegate is called.

        If the connection has ended, because of ``close()`` or a write that failed, no
        thread is started, and ``on_closed`` is called from here.

        Raises:
            RuntimeError: there is no thread for the reader; close the connection.
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
        """Return whether there is a reader thread, which calls ``on_closed``."""
        return self._thread is not None and self._thread.ident is not None

    # -- sending

    def send(self, queue: Callable[[ClientProtocol], None], *, waits: bool = True) -> bool:
        """Let ``queue`` put commands into the core, and write them; False where bytes are left.

        Any exception that ends this in the middle ends the connection: a signal handler may raise
        one anywhere, and how much was queued or sent is not known then.

        Args:
            waits: False: return where the socket accepts no bytes; call ``flush`` later.

        Blocks: while the kernel accepts no bytes, at most ``write_timeout``.

        Raises:
            ClosedError: the connection ended before; nothing was queued.
            ConnectionLostError, WriteTimeoutError: it ended while writing.
            LocalProtocolError: the command is not possible now; nothing was queued.
            ReentrantCallError: this thread is in the middle of another call; nothing was queued.
        """
        try:
            with self._lock:
                queue(self._core)
            is_written = self._writer.flush(waits)
            if self._reader.is_paused and self._core.awaits_answer():
                # Reentrant: the call of this thread that was interrupted does it.
                with contextlib.suppress(ReentrantCallError):
                    self._reader.wake()
            return is_written
        except NSQConnectionError as exc:
            self._fail(exc)
            raise
        except NSQError:
            raise
        except BaseException:
            self.interrupt()
            raise

    def flush(self) -> None:
        """Write what is queued. Blocks and raises like ``send``."""
        self.send(lambda core: None)

    def receive_messages(self, until: float) -> None:
        """Receive messages in place of the reader, for a worker that would wait for the next one.

        This saves waking the reader and the worker. The delegate is called from this thread. If the
        reader is receiving, this method returns at once, and the reader stops receiving after the
        next event.

        Blocks: until messages arrive, or until ``until`` on ``time.monotonic()``; then the reader
        receives again.
        """
        self._reader.receive_messages(until)

    def wake_reader(self) -> None:
        """Make the reader receive, if no other thread does."""
        self._reader.wake()

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
            self._reader.attach(self._transport)
            self._reader.run()
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

    def join(self, deadline: Deadline) -> bool:
        """Wait for its reader to end; True when it has. Call ``close()`` first."""
        reader = self._thread
        if reader is None or reader is threading.current_thread():
            return True
        reader.join(deadline.remaining())
        return not reader.is_alive()

    def _fail(self, error: NSQError) -> None:
        """Note why the connection ends, and wake the reader."""
        with self._lock:
            self.is_ended: bool = True
            if self._error is None:
                self._error = error
        self._shut_down()
        self._reader.wake()

    def _finish(self, error: NSQError) -> None:
        """Close the socket and call ``on_closed``. Runs once."""
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
