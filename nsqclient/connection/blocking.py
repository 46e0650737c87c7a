"""``BlockingConnection``: one socket to one nsqd that serves one publish at a time.

The thread that publishes writes the command and reads its response; the socket blocks, without a
timeout. The deadline is another thread's: it shuts the connection down when that has passed.
``docs/topics/threads.rst`` says why that is not left to SO_RCVTIMEO.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time

from nsqclient.config import Config
from nsqclient.connection.opening import NsqdSocket
from nsqclient.errors import ConnectionLostError, NegotiationError, NSQError, ServerError
from nsqclient.log_records import log_fields
from nsqclient.protocol.client import State
from nsqclient.protocol.events import FatalError, Published, PublishFailed
from nsqclient.protocol.extensions import StoredPosition
from nsqclient.protocol.frames import OK, FrameType, encode_frame
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import is_of_system

logger: logging.Logger = logging.getLogger("nsqclient.connection")

#: The response to a publish that is stored, as it nearly always comes: alone.
_STORED = encode_frame(FrameType.RESPONSE, OK)
#: Bytes that are asked for at once: a heartbeat and a response are far less.
_READ = 16 * 1024
#: Bytes of a large command that are written at once, so that its progress can be seen.
_PIECE = 256 * 1024


#: One command that waits for its response. ``pop("until", None)`` is the claim for which the owner,
#: when it has the response, and the timer, when the time is over, race: whichever gets None does
#: nothing more to the connection. The other entries are the timer's: ``began``, ``check_at``,
#: ``pause``, and ``seen``, the progress at the last check.
Exchange = dict[str, float]


def need_real_sockets() -> None:
    """Raise NegotiationError where another library has replaced the sockets of Python."""
    if socket.socket.__module__ != "socket":
        raise NegotiationError(
            f"the module socket is patched by {socket.socket.__module__}: nsqclient needs"
            " threads and sockets that block; do not patch it, or publish in another process")


class BlockingConnection(NsqdSocket):
    """A connection to one nsqd for publishes, each of which has it to itself.

    Args:
        address: ``host:port`` of nsqd.
        config: the options for dialing, IDENTIFY and TLS.

    Life: created (no socket yet); ``open()``; any number of ``exchange()``; ``close()``, or the
    end of the last reference.

    Threads: one at a time, which took it from a pool; ``cut()``, ``close()`` and
    ``has_unread()`` from any.
    """

    def __init__(self, address: str, config: Config) -> None:
        super().__init__(address, config)
        self._error: NSQError | None = None  # why the timer cut it; written under _lock
        #: The socket was given back.
        self.is_closed: bool = False  # written under _lock
        self._has_layers = False
        #: The command that waits for its response; an empty one between two.
        self.exchange_under_way: Exchange = {}
        #: When it was opened, when a publish used it last, and when something else came from nsqd.
        self.opened_at: float = 0.0
        self.used_at: float = 0.0
        self.heard_at: float = 0.0
        #: Pieces of large commands that were written.
        self.pieces: int = 0
        #: Where the last publish was stored, if it was traced.
        self.stored: StoredPosition | None = None

    def __del__(self) -> None:
        if not self.is_closed:  # lost by a thread that was interrupted
            self.close()

    def __str__(self) -> str:
        return self.address

    @property
    def is_cut(self) -> bool:
        """Return whether the timer ended it."""
        return self._error is not None

    def open(self, deadline: Deadline) -> None:
        """Dial, negotiate, and authenticate if requested. Blocks and raises as Connection.open."""
        need_real_sockets()
        try:
            self._dial(None, deadline)
            with self._lock:
                self._need_not_ended()
                assert self._transport is not None
                self._send, self._recv = self._transport.make_blocking()
        except BaseException:
            self.close()
            raise
        self._has_layers = self._core.has_layers
        self.opened_at = self.used_at = self.heard_at = time.monotonic()

    # -- one command at a time, on the thread that took the connection

    def begin(self, exchange: Exchange) -> None:
        """Show the timer what the publish waits for; ``exchange()`` comes next."""
        self.exchange_under_way = exchange

    def exchange(self, command: bytes, traced: bool = False) -> ServerError | None:
        """Send a publish and return nsqd's error, None where it is stored.

        Call ``begin`` before. Whatever is raised, the outcome is unknown, and the
        connection is to be closed. It is also to be closed where it ``is_ended`` afterwards.

        Blocks: until the response, the end of the connection, or ``cut()``.

        Raises:
            NSQError: the connection ended, was cut, or the response is none.
        """
        core = self._core
        is_plain = not self._has_layers
        try:
            if is_plain and len(command) <= _PIECE:
                self._send(command)
            elif is_plain:
                self._write(command)
            else:
                core.send_publish(command, self, traced)
                self._write(core.data_to_send())
            data = self._recv(_READ, 0)
        except OSError as exc:
            data = self._rest_after(exc)
        if is_plain:
            if data == _STORED:
                self.stored = None
                return self._finish(None)
            core.send_publish(command, self, traced)  # it has not seen the command
            core.data_to_send()
        return self._read_answer(data)

    def _read_answer(self, data: bytes) -> ServerError | None:
        """Read until the response is whole; answer heartbeats that come before it."""
        core = self._core
        while True:
            if not data and not core.has_buffered_input:
                raise self._error or ConnectionLostError(self.address, "closed by the peer")
            self.heard_at = time.monotonic()
            core.receive_data(data)
            events = core.take_events()
            if core.state is State.READY and core.has_data_to_send():  # the NOP to a heartbeat
                try:
                    self._write(core.data_to_send())
                except OSError as exc:
                    raise self._lost(exc) from exc
            for event in events:
                if isinstance(event, Published):
                    self.stored = event.stored
                    return self._finish(None)
                if isinstance(event, FatalError):
                    self.is_ended = True
                if isinstance(event, (FatalError, PublishFailed)):
                    return self._finish(event.error)
            try:
                data = b"" if core.has_buffered_input else self._recv(_READ, 0)
            except OSError as exc:
                data = self._rest_after(exc)

    def _finish(self, error: ServerError | None) -> ServerError | None:
        if self.exchange_under_way.pop("until", None) is None:
            self.is_ended = True  # the timer is about to shut it down, or has
        return error

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            self._send(view[start:start + _PIECE])
            self.pieces += 1

    def _rest_after(self, exc: OSError) -> bytes:
        """Return what nsqd has sent before a system call failed: perhaps it says why."""
        data = None
        if self._error is None and is_of_system(exc):
            assert self._transport is not None
            with contextlib.suppress(ConnectionLostError):
                data = self._transport.recv(_READ)
        if not data:
            raise self._lost(exc) from exc
        return data

    def _lost(self, exc: OSError) -> NSQError:
        """Return what a system call that failed means; raise what a signal handler raised."""
        if not is_of_system(exc):
            raise exc
        assert self._transport is not None
        return self._error or self._transport.lost(exc)

    # -- between two commands

    def look(self) -> bool:
        """Take what has come, answer a heartbeat; return whether the connection is alive.

        Does not block. Only for the thread that took it.
        """
        core, transport = self._core, self._transport
        assert transport is not None
        try:
            while True:
                data = b"" if core.has_buffered_input else transport.recv(_READ)
                if data is None:
                    return not self.is_ended
                if not data and not core.has_buffered_input:
                    return False
                self.heard_at = time.monotonic()
                core.receive_data(data)
                core.take_events()
                if core.state is not State.READY:
                    return False
                answer = core.data_to_send()  # the NOP to a heartbeat
                if answer and transport.send_some(answer) < len(answer):
                    return False
        except NSQError as exc:
            logger.debug("%s: lost while it was idle: %s", self.address, exc,
                         extra=log_fields(nsqd=self.address))
            return False

    # -- from any thread

    def exchanges(self) -> list[Exchange]:
        """Return what publishes wait for."""
        exchange = self.exchange_under_way
        return [exchange] if "until" in exchange else []

    def has_unread(self) -> bool:
        """Return whether something waits in the socket, or the end of the stream."""
        with self._lock:
            return not self.is_closed and self._transport is not None \
                and self._transport.has_input()

    def cut(self, error: NSQError, exchange: Exchange | None = None) -> bool:
        """Shut it down, so that its owner gets this error; return whether that was done.

        Args:
            exchange: not where this command has its response; None: whatever the owner does.
        """
        if exchange is not None and exchange.pop("until", None) is None:
            return False
        with self._lock:
            if self._error is None:
                self._error = error
            self.is_ended = True
            if not self.is_closed:
                self._shut_down()
        return True

    def close(self) -> None:
        """Shut it down and give the socket back; not while its owner receives. Idempotent."""
        with self._lock:
            self.is_ended: bool = True
            if not self.is_closed:
                self._shut_down()
                if self._transport is not None:
                    self._transport.close()
                self.is_closed = True

    def abandon(self) -> None:
        """As that of every connection."""
        self.is_closed = True
        super().abandon()
