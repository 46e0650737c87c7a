"""The connection of one client: reads commands, executes them, and writes. Never blocks.

Messages are written at once: ``output_buffer_timeout`` is ignored.
"""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from nsqclient.devserver.auth import Authorizer
from nsqclient.devserver.command_handler import AuthResult, CommandHandler
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.protocol.commands import CommandError, Dpub, Event, OpenTopic, Pub, Sub
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.devserver.command_handler import NegotiatedLayers
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.errors import NSQConnectionError, WriteTimeoutError
from nsqclient.runtime.addresses import format_address
from nsqclient.runtime.transport import RECV_SIZE, Transport

if TYPE_CHECKING:
    import ssl

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

_NEVER = float("inf")
#: With more unsent bytes than this no commands are read: nsqd blocks while it cannot write.
_MAX_UNSENT = 1024 * 1024
#: Size of a read after a small one: a large buffer costs page faults.
_SMALL_READ = 16 * 1024
#: Seconds to wait for space in the socket for the last answers. The connection then stays half open
#: for as long: closing it with unread bytes would reset it, and the reset may overtake an error.
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


class _Phase(Enum):
    """FLUSHING: the last answers are sent. LINGERING: the client has to close the connection."""

    NEW = auto()
    SERVING = auto()
    FLUSHING = auto()
    LINGERING = auto()
    OVER = auto()


class Session:
    """Serves one client. Its loop calls :meth:`step` until ``is_over``, then :meth:`close`.

    Threads: its loop's; ``drop`` and ``wake`` from any.
    """

    def __init__(
        self,
        engine: Engine[Any],
        faults: Faults,
        config: SessionConfig,
        sock: socket.socket,
        address: str,
        number: int,
        wake: Callable[[Session], object],
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
        #: The events of the socket to wait for.
        self.interest: int = selectors.EVENT_READ
        self._engine = engine
        self._faults = faults
        self._config = config
        self._sock = sock
        self._transport = Transport(sock, address)
        self._wake = wake
        self._on_close = on_close
        self._phase = _Phase.NEW
        self._read_size = _SMALL_READ
        self._is_reading = False  # no wake-up is needed: messages are taken afterwards
        self._unsent = memoryview(b"")
        self._has_more = False  # the outbox has messages that were not encoded
        self._not_before = 0.0  # a fault delays writing until then
        self._heartbeat_interval = 0.0
        self._next_heartbeat = _NEVER
        self._last_command = 0.0
        self._last_progress = 0.0  # when bytes were last written
        self._end_due = _NEVER  # deadline for the last bytes
        self._is_identified = False
        self._is_dropped = False
        self._is_reset = False

    def is_over(self) -> bool:
        return self._phase is _Phase.OVER

    def fileno(self) -> int:
        return self._sock.fileno()

    def step(self, is_readable: bool) -> None:
        """Read once if there is input, execute the commands, write.

        Blocks only during a request to an auth server or an nsqlookupd.
        """
        try:
            if self._phase is _Phase.NEW:
                self._begin()
            if self._phase is _Phase.SERVING:
                self._serve(is_readable)
            elif self._phase is not _Phase.OVER:
                self._continue_end(is_readable)
        except NSQConnectionError as exc:
            logger.info("client(%s) %s", self.address, exc.reason)
            self.abort()

    def abort(self) -> None:
        self._phase = _Phase.OVER

    def close(self) -> None:
        try:
            self._unsubscribe()
            logger.info("client(%s) is gone", self.address)
        finally:
            self._sock.close()
            self._on_close(self)

    def drop(self, reset: bool = False) -> bool:
        if self._is_dropped:
            return False
        self._is_reset = reset
        self._is_dropped = True
        if not reset:
            self._transport.shutdown()
        self._wake(self)
        return True

    def wake(self) -> None:
        """Make the loop look at it again. Any thread."""
        if not self._is_reading:
            self._wake(self)

    def _unsubscribe(self) -> None:
        with self._engine as broker:
            self.handler.unsubscribe(broker)

    def _begin(self) -> None:
        now = time.monotonic()
        self._last_command = self._last_progress = now
        self._set_heartbeat(self.core.settings.heartbeat_interval, now)
        self._phase = _Phase.SERVING

    def _serve(self, is_readable: bool) -> None:
        self._is_reading = True
        if not self._is_dropped:
            if is_readable:
                self._receive()
            while events := self.core.take_events():
                self._execute(events, self._authorize(events))
                self._last_command = time.monotonic()
        self._is_reading = False
        now = time.monotonic()
        if not self.core.is_closed:  # nothing may follow a fatal error
            if not self._has_unsent_data():
                self._last_progress = now
            self._take_messages()
            self._run_due_tasks(now)
            self._log_errors()
            self._write(now)
        if self.core.is_closed or self._is_dropped:
            self._begin_end()
        else:
            self.interest = self._serving_interest(now)

    def _receive(self) -> None:
        data = self._transport.recv(self._read_size)
        is_full = data is not None and len(data) == self._read_size
        self._read_size = RECV_SIZE if is_full else _SMALL_READ
        if data == b"":
            self.core.receive_eof()
        elif data is not None:
            self.core.receive_data(data)

    def _execute(self, events: list[Event], auth_results: list[AuthResult]) -> None:
        with self._engine as broker:
            for event, auth_result in zip(events, auth_results):
                self.handler.handle(event, broker, self._engine.now, auth_result)
                if self.core.is_closed:
                    break
        settings = self.handler.pump_settings
        if settings is not None and not self._is_identified:
            self._is_identified = True
            self._set_heartbeat(settings.heartbeat_interval, time.monotonic())

    def _log_errors(self) -> None:
        while self.core.sent_errors:
            text = self.core.sent_errors.pop(0).decode("utf-8", "replace")
            logger.error("[%s] - %s", self.address, printable(text, LONGEST_TEXT))

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
        if consumer is None or len(self._unsent) > _MAX_UNSENT:
            return
        if not (consumer.outbox or consumer.is_ended):  # a later change wakes this session
            self._has_more = False
            return
        with self._engine:
            messages = self.handler.take_outbox(_MAX_UNSENT)
            self._has_more = bool(consumer.outbox)
        send = self.core.send_message
        for message in messages:
            send(*message)

    def _serving_interest(self, now: float) -> int:
        interest = selectors.EVENT_READ if len(self._unsent) <= _MAX_UNSENT else 0
        if now >= self._not_before and self._has_unsent_data():
            interest |= selectors.EVENT_WRITE
        return interest

    def next_due(self) -> float:
        """When the next step is due without input and wake-ups, on the monotonic clock."""
        if self._phase is not _Phase.SERVING:
            return self._end_due
        due = min(self._next_heartbeat, self.layers.handshake_due())
        interval = self._heartbeat_interval
        if interval:
            due = min(due, self._last_command + 2 * interval)
            if self._has_unsent_data():
                due = min(due, self._last_progress + interval)
        if self._has_unsent_data() and not self.interest & selectors.EVENT_WRITE:
            due = min(due, self._not_before)
        held = self.handler.next_due()
        return due if held is None else min(due, held)

    def _run_due_tasks(self, now: float) -> None:
        self.handler.release(now)
        if now >= self.layers.handshake_due():
            local = format_address(*self._sock.getsockname()[:2])
            self.core.fail_handshake(f"read tcp {local}->{self.address}: i/o timeout")
            return
        interval = self._heartbeat_interval
        if not interval:
            return
        # First: while a client does not read, its commands are not read either.
        if self._has_unsent_data() and now >= self._last_progress + interval:
            logger.info("client(%s) does not read", self.address)
            self._is_dropped = True
        elif now >= self._last_command + 2 * interval:
            logger.info("client(%s) sent nothing for two heartbeat intervals", self.address)
            self._is_dropped = True
        elif now >= self._next_heartbeat:
            self._next_heartbeat = max(self._next_heartbeat + interval, now)
            if not self._faults.heartbeats_withheld:
                self.core.send_heartbeat()

    def _set_heartbeat(self, interval_ms: int, now: float) -> None:
        self._heartbeat_interval = interval_ms / 1000
        self._next_heartbeat = now + self._heartbeat_interval if interval_ms else _NEVER

    def _has_unsent_data(self) -> bool:
        return self._has_more or len(self._unsent) > 0

    def _write(self, now: float) -> None:
        new = self.core.data_to_send()
        if new:
            self._unsent = memoryview(bytes(self._unsent) + new)
        while len(self._unsent) and now >= self._not_before:
            size, pause = self._faults.next_piece(self.number, len(self._unsent))
            sent = self._transport.send_some(self._unsent[:size])
            if not sent:
                return
            self._unsent = self._unsent[sent:]
            self._last_progress = now
            self._not_before = now + pause

    def _begin_end(self) -> None:
        self._log_errors()
        # First: messages delivered to it from now on would wait for their timeout.
        self._unsubscribe()
        self._unsent = memoryview(bytes(self._unsent) + self.core.data_to_send())
        self._phase = _Phase.FLUSHING
        self._continue_end(False)

    def _continue_end(self, is_readable: bool) -> None:
        now = time.monotonic()
        if self._phase is _Phase.FLUSHING:
            if not self._flush(now):
                return
            is_reset = self._faults.reset_after_error or self.core.ends_with_reset
            if self._is_reset or (is_reset and not self._is_dropped):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._phase = _Phase.OVER
                return
            self._begin_to_linger(now)
            is_readable = True
        is_due = self._is_dropped or now >= self._end_due
        # Further bytes of the client are dropped.
        if is_due or (is_readable and self._transport.recv() == b""):
            self._transport.shutdown()
            self._phase = _Phase.OVER

    def _flush(self, now: float) -> bool:
        """Send the pending output; False while the socket takes no more."""
        while len(self._unsent) and not self._is_dropped:
            sent = self._transport.send_some(self._unsent)
            if not sent:
                self._end_due = min(self._end_due, now + _LINGER)
                if now >= self._end_due:
                    raise WriteTimeoutError(self.address, f"took no bytes for {_LINGER:g} s")
                self.interest = selectors.EVENT_WRITE
                return False
            self._unsent = self._unsent[sent:]
            self._end_due = _NEVER
        return True

    def _begin_to_linger(self, now: float) -> None:
        self._phase = _Phase.LINGERING
        self.interest = selectors.EVENT_READ
        self._end_due = now + _LINGER
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._end_due = now  # the client has closed it
