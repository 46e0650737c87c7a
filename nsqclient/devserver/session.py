"""The connection of one client: its thread reads commands, executes them, and writes.

One thread reads and writes; other threads only wake it. Messages are written at once:
``output_buffer_timeout`` has no effect here.
"""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nsqclient.devserver.auth import Authorizer
from nsqclient.devserver.command_handler import AuthResult, CommandHandler
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.protocol.commands import CommandError, Dpub, Event, OpenTopic, Pub, Sub
from nsqclient.devserver.protocol.identify import to_log
from nsqclient.devserver.tls_compression import NegotiatedLayers
from nsqclient.errors import NSQConnectionError
from nsqclient.protocol.frames import MAGIC_V2
from nsqclient.runtime.addresses import format_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import RECV_SIZE, Transport
from nsqclient.sanitize import LONGEST_TEXT, printable

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger("nsqclient.devserver")

_NEVER = float("inf")
#: With more unsent bytes than this no commands are read and no messages are encoded, as nsqd
#: blocks while it cannot write.
_MAX_UNSENT = 1024 * 1024
#: Bytes that are asked for at once where few come: a large buffer costs page faults, which are a
#: quarter of the time of a publish.
_SMALL_READ = 16 * 1024
#: How long a connection stays half open after a fatal error, in seconds: closing it with
#: unread bytes would reset it, and the reset may overtake the error.
_LINGER = 0.5
#: SO_LINGER on, zero seconds: close() sends a reset.
_RESET = struct.pack("ii", 1, 0)


class Waker:
    """Wakes a thread that waits in ``poll``.

    Waking a thread that does not wait costs no system call. The thread that waits calls
    ``arm()``, looks for work once more, polls, and calls ``disarm()``.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._lock = threading.Lock()
        self._is_idle = True  # guarded by _lock; woken already, or not armed
        self._is_closed = False  # guarded by _lock

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Wake the thread that waits. Any thread; does nothing after ``close()``."""
        with self._lock:
            if not self._is_idle:
                self._is_idle = True
                self._writer.send(b"!")

    def arm(self) -> None:
        """From now on ``wake()`` has an effect."""
        with self._lock:
            self._is_idle = self._is_closed

    def disarm(self) -> None:
        """End the effect of ``wake()``, and remove the byte of an earlier one."""
        with self._lock:
            was_woken, self._is_idle = self._is_idle, True
            if was_woken:
                self._reader.recv(1)

    def close(self) -> None:
        """Close the descriptors."""
        with self._lock:
            self._is_idle = self._is_closed = True
            self._reader.close()
            self._writer.close()


#: Makes the command handler of a session, from its number and its layers.
HandlerFactory = Callable[[int, NegotiatedLayers], CommandHandler]


class SessionConfig(NamedTuple):
    """The configuration of all sessions of a server."""

    make_handler: HandlerFactory
    tls: ssl.SSLContext | None = None
    auth_http_addresses: Sequence[str] = ()
    #: Called without any lock, with the topic of each command before it is executed; may block.
    prepare: Callable[[str], None] | None = None


class Session:
    """Serves one client. Life: created, then :meth:`run` in its own thread until it returns."""

    def __init__(
        self,
        engine: Engine[Any],
        faults: Faults,
        config: SessionConfig,
        sock: socket.socket,
        address: str,
        number: int,
    ) -> None:
        self.address = address
        self.number = number
        self.connected_at = time.time()
        self.layers = NegotiatedLayers(config.tls)
        self.authorizer = Authorizer(
            config.auth_http_addresses,
            address.rpartition(":")[0].strip("[]"),
            lambda: (self.layers.is_secure, self.layers.common_name()),
        )
        # guarded by the engine
        self.handler = config.make_handler(number, self.layers)
        self.core = self.handler.core
        self._engine = engine
        self._faults = faults
        self._prepare = config.prepare
        self._sock = sock
        self._transport = Transport(sock, address)
        self._waker = Waker()
        self._poll = select.poll()
        self._poll.register(self._waker, select.POLLIN)
        self._interest = 0
        self._unsent = memoryview(b"")
        self._has_more = False  # of the outbox
        self._not_before = 0.0  # a fault delays writing until then
        self._heartbeat_interval = 0.0
        self._next_heartbeat = _NEVER
        self._last_command = 0.0
        self._last_progress = 0.0  # of writing
        self._is_begun = False  # its magic was logged
        self._is_identified = False
        self._is_dropped = False
        self._is_reset = False

    def run(self) -> None:
        """Serve the client. Blocks until the connection has ended; the caller closes it."""
        now = time.monotonic()
        self._last_command = self._last_progress = now
        self._set_heartbeat(self.core.settings.heartbeat_interval, now)
        self._engine.attach(self.number, self._waker.wake)
        try:
            self._loop()
            self._log_events()
            # First: messages delivered to it from now on would wait for their timeout.
            self._unsubscribe()
            self._finish()
        except NSQConnectionError as exc:
            logger.info("client(%s) %s", self.address, exc.reason)
        finally:
            self._unsubscribe()
            self._waker.close()
            self._log_end()

    def drop(self, reset: bool = False) -> bool:
        """End the connection now, without a frame; False if it was ending anyway. Any thread."""
        if self._is_dropped:
            return False
        self._is_reset = reset
        self._is_dropped = True
        if not reset:
            self._transport.shutdown()
        self._waker.wake()
        return True

    def wake(self) -> None:
        """Make the thread check the faults again. Any thread."""
        self._waker.wake()

    def _unsubscribe(self) -> None:
        self._engine.detach(self.number)
        with self._engine as broker:
            self.handler.unsubscribe(broker)

    # -- the loop

    def _loop(self) -> None:
        size = _SMALL_READ
        while not self.core.is_closed:  # nothing may follow a fatal error
            self._waker.arm()
            now = time.monotonic()
            if not self._has_unsent_data():
                self._last_progress = now
            self._take_messages()
            self._run_due_tasks(now)
            self._log_events()
            self._write(now)
            if self.core.is_closed or self._is_dropped:
                return
            readable = self._wait(now)
            self._waker.disarm()
            if readable and not self._is_dropped:
                data = self._transport.recv(size)
                size = RECV_SIZE if data is not None and len(data) == size else _SMALL_READ
                if data == b"":
                    self.core.receive_eof()
                elif data is not None:
                    self.core.receive_data(data)
                self._handle_commands()

    def _handle_commands(self) -> None:
        while events := self.core.take_events():
            self._last_command = time.monotonic()
            auth_results = list(self._authorize(events))
            with self._engine as broker:
                for event, auth_result in zip(events, auth_results):
                    self.handler.handle(event, broker, self._engine.now, auth_result)
                    if self.core.is_closed:
                        break
            settings = self.handler.pump_settings
            if settings is not None and not self._is_identified:
                self._is_identified = True
                self._set_heartbeat(settings.heartbeat_interval, time.monotonic())

    def _log_events(self) -> None:
        """Log what the client sent first, and the errors that it gets, in nsqd's words."""
        core = self.core
        if not self._is_begun and core.magic is not None:
            self._is_begun = True
            magic = printable(core.magic.decode("latin-1"))
            logger.info("CLIENT(%s): desired protocol magic '%s'", self.address, magic)
            if core.magic != MAGIC_V2:
                logger.error("client(%s) bad protocol magic '%s'", self.address, magic)
                core.sent_errors.clear()
        while core.identified:
            payload = printable(to_log(core.identified.pop(0)), LONGEST_TEXT)
            logger.info("[%s] IDENTIFY: %s", self.address, payload)
        while core.sent_errors:
            text = core.sent_errors.pop(0).decode("utf-8", "replace")
            logger.error("[%s] - %s", self.address, printable(text, LONGEST_TEXT))

    def _log_end(self) -> None:
        if not self._is_begun:
            logger.error("client(%s) failed to read protocol version", self.address)
        elif self.core.magic == MAGIC_V2:
            logger.info("PROTOCOL(V2): [%s] exiting ioloop", self.address)

    def _authorize(self, events: list[Event]) -> Iterator[AuthResult]:
        """Authorize the commands and prepare their topics; ends at an error. May block."""
        for event in events:
            try:
                auth_result = self.authorizer.check(event)
            except CommandError as error:
                yield error
                return
            if self._prepare is not None and isinstance(event, (Pub, OpenTopic, Dpub, Sub)):
                self._prepare(event.topic)
            yield auth_result

    def _take_messages(self) -> None:
        consumer = self.handler.consumer  # only this thread sets it
        if consumer is None or len(self._unsent) > _MAX_UNSENT:
            return
        if not (consumer.outbox or consumer.is_ended):  # a later change wakes this thread
            self._has_more = False
            return
        with self._engine:
            messages = self.handler.take_outbox(_MAX_UNSENT)
            self._has_more = bool(consumer.outbox)
        send = self.core.send_message
        for message in messages:
            send(*message)

    def _wait(self, now: float) -> bool:
        """Wait for the socket, a wake-up or the next due time; True when there is data."""
        interest = select.POLLIN if len(self._unsent) <= _MAX_UNSENT else 0
        if now >= self._not_before and self._has_unsent_data():
            interest |= select.POLLOUT
        if interest != self._interest:
            self._interest = interest
            self._poll.register(self._sock, interest)
        due = self._next_due(now)
        # Rounded up, never to return just before the time.
        timeout = None if due == _NEVER else max(0, int((due - now) * 1000) + 1)
        for descriptor, event in self._poll.poll(timeout):
            if descriptor != self._waker.fileno() and event & ~select.POLLOUT:
                return True
        return False

    # -- time

    def _next_due(self, now: float) -> float:
        due = min(self._next_heartbeat, self.layers.handshake_due())
        interval = self._heartbeat_interval
        if interval:
            due = min(due, self._last_command + 2 * interval)
            if self._has_unsent_data():
                due = min(due, self._last_progress + interval)
        if len(self._unsent) and self._not_before > now:
            due = min(due, self._not_before)
        held = self.handler.next_due()
        return due if held is None else min(due, held)

    def _run_due_tasks(self, now: float) -> None:
        """Send held answers and heartbeats that are due; end a silent connection."""
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

    # -- writing

    def _has_unsent_data(self) -> bool:
        """Whether something waits for the client to read."""
        return self._has_more or len(self._unsent) > 0

    def _write(self, now: float) -> None:
        """Send as much as the kernel accepts, in the pieces that the faults ask for."""
        new = self.core.data_to_send()
        if new:
            if not len(self._unsent):
                self._not_before = max(self._not_before, now + self._faults.join_delay)
            self._unsent = memoryview(bytes(self._unsent) + new)
        while len(self._unsent) and now >= self._not_before:
            size, pause = self._faults.next_piece(self.number, len(self._unsent))
            sent = self._transport.send_some(self._unsent[:size])
            if not sent:
                return
            self._unsent = self._unsent[sent:]
            self._last_progress = now
            self._not_before = now + pause

    def _finish(self) -> None:
        """Send the last answers, and end the stream so that they arrive."""
        rest = bytes(self._unsent) + self.core.data_to_send()
        while rest and not self._is_dropped:
            rest = rest[self._transport.send_some(rest):]
            if rest:
                self._transport.wait_writable(_LINGER)
        is_reset = self._faults.reset_after_error or self.core.ends_with_reset
        if self._is_reset or (is_reset and not self._is_dropped):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return
        if not self._is_dropped:
            self._linger()
        self._transport.shutdown()

    def _linger(self) -> None:
        """Shut down writing, then read and drop what the client still sends for a short time."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the client has closed it
        deadline = Deadline(_LINGER)
        while not deadline.expired() and not self._is_dropped:
            if self._transport.wait(deadline.remaining()) and self._transport.recv() == b"":
                return


class Sessions:
    """The running sessions of one server. Threads: every method, any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # taken inside the engine's, never around it
        self._sessions: dict[int, Session] = {}  # guarded by _lock

    def run(self, session: Session) -> None:
        """Run a session, which is one of these until it ends."""
        with self._lock:
            self._sessions[session.number] = session
        try:
            session.run()
        finally:
            with self._lock:
                del self._sessions[session.number]

    def by_number(self) -> dict[int, Session]:
        """Return the sessions by their numbers."""
        with self._lock:
            return dict(self._sessions)

    def wake(self) -> None:
        """Make all threads check the faults again."""
        for session in self.by_number().values():
            session.wake()

    def drop(self, client_id: str | None, reset: bool) -> int:
        """End sessions, all or those of a client_id or address; return how many."""
        return sum([
            session.drop(reset) for session in self.by_number().values()
            if client_id in (None, session.core.settings.client_id, session.address)
        ])
