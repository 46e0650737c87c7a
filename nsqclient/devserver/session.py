"""The connection of one client: executes its commands, and sends answers and messages.

Messages are written at once: ``output_buffer_timeout`` is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from nsqclient.devserver.auth import Authorizer
from nsqclient.devserver.command_handler import AuthResult, CommandHandler, NegotiatedLayers
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.protocol.commands import CommandError, Dpub, Event, OpenTopic, Pub, Sub
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.runtime.addresses import format_address

if TYPE_CHECKING:
    import ssl

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

_NEVER = float("inf")
#: With more unsent bytes than this no commands are read: nsqd blocks while it cannot write.
_MAX_UNSENT = 1024 * 1024
#: Received bytes that are decoded at once: deflate expands them up to a thousandfold.
_PIECE = 16 * 1024
#: Longest turn of a client in seconds. Before its next turn, other clients are served.
_TURN = 0.01
#: Seconds that a connection stays half open after its last answer: closing it with unread bytes
#: resets it, and the reset may overtake an error.
_LINGER = 0.5
#: SO_LINGER on, zero seconds: close() sends a reset.
_RESET = struct.pack("ii", 1, 0)


HandlerFactory = Callable[[int, NegotiatedLayers], CommandHandler]


class SessionConfig(NamedTuple):
    make_handler: HandlerFactory
    tls: ssl.SSLContext | None = None
    auth_http_addresses: Sequence[str] = ()
    #: Called with the topic of each PUB, MPUB, DPUB and SUB before it is executed. May block.
    prepare: Callable[[str], None] = lambda topic: None


class Session(asyncio.Protocol):
    """Serves one client. Threads: that of its event loop; ``drop`` and ``wake`` from any.

    Args:
        call: runs a function in the event loop.
        on_close: called after the end of the connection.
    """

    def __init__(
        self,
        engine: Engine[Any],
        faults: Faults,
        config: SessionConfig,
        address: str,
        number: int,
        call: Callable[[Callable[[], None]], object],
        on_close: Callable[[Session], None],
    ) -> None:
        self.address = address
        self.number = number
        self.connected_at: float = time.time()
        self.layers: NegotiatedLayers = NegotiatedLayers(config.tls)
        self.authorizer: Authorizer = Authorizer(
            config.auth_http_addresses,
            address.rpartition(":")[0].strip("[]"),
            lambda: (self.layers.is_secure, self.layers.common_name()),
        )
        # guarded by the engine
        self.handler: CommandHandler = config.make_handler(number, self.layers)
        self.handler.wake = self.wake
        self.core: ServerProtocol = self.handler.core
        self._engine = engine
        self._faults = faults
        self._config = config
        self._call = call
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False  # a call of _serve_woken() follows
        self._pieces: deque[bytes] = deque()  # received, not yet given to the core
        self._is_blocked = False  # the client does not read: its commands wait
        self._unsent = b""  # waits for the end of a pause
        self._is_pausing = False  # a fault delays writing
        self._written = self._sent = 0  # bytes given to the transport, and to the kernel
        self._last_command = self._last_progress = 0.0
        self._heartbeat_interval = 0.0
        self._next_heartbeat = _NEVER
        self._is_identified = False
        self._has_eof = False
        self._is_ending = False  # further bytes of the client are dropped
        self._is_dropped = False
        self._is_reset = False  # the connection ends with a TCP reset

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_MAX_UNSENT)
        if self._is_dropped:
            self._abort()
        self._last_command = self._last_progress = time.monotonic()
        self._set_heartbeat(self.core.settings.heartbeat_interval)
        self._serve()

    def data_received(self, data: bytes) -> None:
        if not self._is_ending:
            self._pieces += [data[start:start + _PIECE] for start in range(0, len(data), _PIECE)]
            self._serve()

    def eof_received(self) -> bool:
        self._has_eof = True
        if self._is_ending:
            self._abort()
        self.core.receive_eof()
        self._serve()
        return True  # the connection stays open for writing

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._serve()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_ending = True
        assert self._transport is not None
        with contextlib.suppress(OSError):  # the client has closed it
            sock = self._transport.get_extra_info("socket")
            if self._is_reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            else:  # a forked child may hold the socket open
                sock.shutdown(socket.SHUT_RDWR)
        self._transport = None
        if exc is not None:
            logger.info("client(%s) %s", self.address, exc)
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._unsubscribe()
        except BaseException:  # a SystemExit of an observer must not end the loop
            logger.exception("%s: client failed", self.address)
        logger.info("client(%s) is gone", self.address)
        self._on_close(self)

    def drop(self, reset: bool = False) -> bool:
        if self._is_dropped:
            return False
        self._is_dropped = self._is_ending = True
        self._call(lambda: self._abort(reset))
        return True

    def wake(self) -> None:
        """Send messages and answers that are ready. Any thread."""
        if not self._is_woken:
            self._is_woken = True
            self._call(self._serve_woken)

    def _serve_woken(self) -> None:
        self._is_woken = False
        self._serve()

    def _abort(self, reset: bool = False) -> None:
        if self._transport is not None:
            self._is_reset = self._is_reset or reset
            self._transport.abort()

    def _unsubscribe(self) -> None:
        with self._engine as broker:
            self.handler.unsubscribe(broker)

    def _serve(self) -> None:
        """Execute the received commands, and write what is ready."""
        if self._transport is None or self._is_ending:
            return
        try:
            # The commands need not wake it: messages are taken afterwards.
            was_woken, self._is_woken = self._is_woken, True
            has_more = self._run_commands()
            self._is_woken = was_woken
            if has_more:
                self.wake()
            if not self.core.is_closed:  # nothing may follow a fatal error
                self._take_messages()
                self._run_due_tasks(time.monotonic())
            self._log_errors()
            if self._is_dropped:
                self._abort()
            elif self.core.is_closed:
                self._end()
            else:
                self._write()
                self._schedule()
        except OSError as exc:
            logger.debug("%s: %s", self.address, exc)
            self._abort()
        except BaseException:
            logger.exception("%s: client failed", self.address)
            self._abort()

    def _run_commands(self) -> bool:
        """Execute received commands for one turn. True if there may be more."""
        assert self._transport is not None
        end = time.monotonic() + _TURN
        while not self._is_blocked:
            if events := self.core.take_events():
                self._execute(events, self._authorize(events))
                self._last_command = time.monotonic()
            elif self._pieces:
                self.core.receive_data(self._pieces.popleft())
            else:
                self._transport.resume_reading()
                return False
            if time.monotonic() >= end:
                self._transport.pause_reading()
                return True
        return False

    def _execute(self, events: list[Event], auth_results: list[AuthResult]) -> None:
        with self._engine as broker:
            for event, auth_result in zip(events, auth_results):
                self.handler.handle(event, broker, self._engine.now, auth_result)
                if self.core.is_closed:
                    break
        settings = self.handler.pump_settings
        if settings is not None and not self._is_identified:
            self._is_identified = True
            self._set_heartbeat(settings.heartbeat_interval)

    def _log_errors(self) -> None:
        errors, self.core.sent_errors = self.core.sent_errors, []
        for error in errors:
            text = printable(error.decode("utf-8", "replace"), LONGEST_TEXT)
            logger.error("[%s] - %s", self.address, text)

    def _authorize(self, events: list[Event]) -> list[AuthResult]:
        """Authorize the commands up to the first error, and prepare their topics."""
        results: list[AuthResult] = []
        for event in events:
            try:
                results.append(self.authorizer.check(event))
            except CommandError as error:
                return [*results, error]
            if isinstance(event, (Pub, OpenTopic, Dpub, Sub)):
                self._config.prepare(event.topic)
        return results

    def _take_messages(self) -> None:
        consumer = self.handler.consumer  # only this thread sets it
        if consumer is None or self._count_unsent() > _MAX_UNSENT:
            return
        if consumer.outbox or consumer.is_ended:  # a later change wakes this session
            with self._engine:
                messages = self.handler.take_outbox(_MAX_UNSENT)
                has_more = bool(consumer.outbox)
            if has_more:
                self.wake()
            for message in messages:
                self.core.send_message(*message)

    def _schedule(self) -> None:
        """Call ``_serve()`` again when something is due."""
        if self._timer is not None:
            self._timer.cancel()
        due = min(self._next_heartbeat, self.layers.handshake_due())
        interval = self._heartbeat_interval
        if interval:
            due = min(due, self._last_command + 2 * interval)
            if self._count_unsent():
                due = min(due, self._last_progress + interval)
        held = self.handler.next_due()
        if held is not None:
            due = min(due, held)
        self._timer = None
        if due != _NEVER:
            self._timer = asyncio.get_running_loop().call_at(due, self._serve)

    def _run_due_tasks(self, now: float) -> None:
        self.handler.release(now)
        if now >= self.layers.handshake_due():
            assert self._transport is not None
            local = format_address(*self._transport.get_extra_info("sockname")[:2])
            self.core.fail_handshake(f"read tcp {local}->{self.address}: i/o timeout")
            return
        interval = self._heartbeat_interval
        if not interval:
            return
        unsent = self._count_unsent()
        sent = self._written + len(self._unsent) - unsent
        if sent != self._sent or not unsent:
            self._sent, self._last_progress = sent, now
        # First: while a client does not read, its commands are not read either.
        if now >= self._last_progress + interval:
            logger.info("client(%s) does not read", self.address)
            self._is_dropped = True
        elif now >= self._last_command + 2 * interval:
            logger.info("client(%s) sent nothing for two heartbeat intervals", self.address)
            self._is_dropped = True
        elif now >= self._next_heartbeat:
            self._next_heartbeat = max(self._next_heartbeat + interval, now)
            if not self._faults.heartbeats_withheld:
                self.core.send_heartbeat()

    def _set_heartbeat(self, interval_ms: int) -> None:
        self._heartbeat_interval = interval_ms / 1000
        self._next_heartbeat = (
            time.monotonic() + self._heartbeat_interval if interval_ms else _NEVER)

    def _count_unsent(self) -> int:
        assert self._transport is not None
        return len(self._unsent) + self._transport.get_write_buffer_size()

    def _write(self) -> None:
        assert self._transport is not None
        self._unsent += self.core.data_to_send()
        while self._unsent and not self._is_pausing:
            size, pause = self._faults.next_piece(self.number, len(self._unsent))
            piece, self._unsent = self._unsent[:size], self._unsent[size:]
            self._written += len(piece)
            self._transport.write(piece)
            if pause:
                self._is_pausing = True
                asyncio.get_running_loop().call_later(pause, self._end_pause)

    def _end_pause(self) -> None:
        self._is_pausing = False
        self._serve()

    def _end(self) -> None:
        """Send the last answers, and close the connection when the client has."""
        assert self._transport is not None
        self._is_ending = True
        # First: messages delivered to it from now on would wait for their timeout.
        self._unsubscribe()
        self._transport.write(self._unsent + self.core.data_to_send())
        if self._faults.reset_after_error or self.core.ends_with_reset:
            self._abort(reset=True)
            return
        if self._has_eof:
            self._transport.close()
        else:
            self._transport.resume_reading()
            with contextlib.suppress(OSError):  # the client has closed it
                self._transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER, self._abort)
