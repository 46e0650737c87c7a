"""One client's connection: its thread reads commands, has them carried out, and writes.

Reading and writing happen in this one thread; other threads only ring its bell. Messages are
written as soon as the thread gets to them: output_buffer_timeout has no effect here.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nsqclient.devserver.auth import AuthRefused, Gate
from nsqclient.devserver.bell import Bell
from nsqclient.devserver.dialogue import Dialogue, Verdict
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.upgrades import Upgrades
from nsqclient.errors import NSQConnectionError
from nsqclient.protocol.server import ServerProtocol
from nsqclient.protocol.server_events import Dpub, Event, OpenTopic, Pub, Sub
from nsqclient.protocol.server_identify import ServerLimits
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import Transport, format_address

logger = logging.getLogger("nsqclient.devserver")

_NEVER = float("inf")
#: While more than this many bytes wait for the client, no commands are read and no messages
#: are encoded, as nsqd's threads wait when they cannot write.
_MAX_UNSENT = 1024 * 1024
#: How long a connection stays half open after a fatal error, in seconds: closing it with
#: unread bytes would reset it, and the reset may overtake the error.
_LINGER = 0.5
#: SO_LINGER on, zero seconds: close() sends a reset.
_RESET = struct.pack("ii", 1, 0)


class SessionRules(NamedTuple):
    """What is the same for all clients: limits, the server's certificate, auth servers."""

    limits: ServerLimits
    tls: ssl.SSLContext | None
    auth_http_addresses: Sequence[str]


class Session:
    """Serves one client. Life: created, :meth:`run` in its own thread; over when that returns.

    Args:
        prepare: called, without any lock, with the topic of each command before it is carried
            out; it may block.
    """

    def __init__(
        self,
        engine: Engine[Any],
        faults: Faults,
        rules: SessionRules,
        sock: socket.socket,
        address: str,
        number: int,
        prepare: Callable[[str], None],
    ) -> None:
        self.address = address
        self.number = number
        self.connected_at = time.time()
        self.core = self._make_core(rules)
        self.upgrades = Upgrades(rules.tls)
        self.gate = Gate(
            rules.auth_http_addresses,
            address.rpartition(":")[0].strip("[]"),
            lambda: (self.upgrades.is_secure, self.upgrades.common_name()),
        )
        # guarded by the engine
        self.dialogue = self._make_dialogue(faults)
        self._engine = engine
        self._faults = faults
        self._prepare = prepare
        self._sock = sock
        self._transport = Transport(sock, address)
        self._bell = Bell()
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._interest = 0
        self._unsent = memoryview(b"")
        self._has_more = False  # the outbox was not taken as a whole
        self._not_before = 0.0  # a fault lets nothing out before
        self._heartbeat_interval = 0.0
        self._next_heartbeat = _NEVER
        self._last_command = 0.0
        self._last_progress = 0.0  # of writing
        self._is_identified = False
        self._is_dropped = False
        self._is_reset = False

    def _make_core(self, rules: SessionRules) -> ServerProtocol:
        return ServerProtocol(rules.limits)

    def _make_dialogue(self, faults: Faults) -> Dialogue:
        return Dialogue(self.core, faults, self.number, self.upgrades)

    def run(self) -> None:
        """Serve the client. Blocks until the connection has ended; the caller closes it."""
        now = time.monotonic()
        self._last_command = self._last_progress = now
        self._set_heartbeat(self.core.settings.heartbeat_interval, now)
        self._engine.attach(self.number, self._bell.ring)
        try:
            self._loop()
            # Out of the channel first: what it gets from now on would only wait for a timeout.
            self._leave()
            self._finish()
        except NSQConnectionError as exc:
            logger.info("client(%s) %s", self.address, exc.reason)
        finally:
            self._leave()
            self._bell.close()

    def drop(self, reset: bool = False) -> bool:
        """End the connection now, without a frame; False if it was ending anyway. Any thread."""
        if self._is_dropped:
            return False
        self._is_reset = reset
        self._is_dropped = True
        if not reset:
            self._transport.shutdown()
        self._bell.ring()
        return True

    def wake(self) -> None:
        """Let the thread look at the faults again. Any thread."""
        self._bell.ring()

    def _leave(self) -> None:
        self._engine.detach(self.number)
        with self._engine as broker:
            self.dialogue.leave(broker)

    # -- the loop

    def _loop(self) -> None:
        while not self.core.is_closed:  # or else nothing may follow the error
            self._bell.arm()
            now = time.monotonic()
            if not self._is_behind():
                self._last_progress = now
            self._take_messages()
            self._keep_time(now)
            self._write(now)
            if self.core.is_closed or self._is_dropped:
                return
            readable = self._sleep(now)
            self._bell.disarm()
            if readable and not self._is_dropped:
                data = self._transport.recv()
                if data == b"":
                    self.core.receive_eof()
                elif data is not None:
                    self.core.receive_data(data)
                self._handle_commands()

    def _handle_commands(self) -> None:
        while events := self.core.take_events():
            self._last_command = time.monotonic()
            verdicts = list(self._judge(events))
            with self._engine as broker:
                for event, verdict in zip(events, verdicts):
                    self.dialogue.handle(event, broker, self._engine.now, verdict)
                    if self.core.is_closed:
                        break
            settings = self.dialogue.pump_settings
            if settings is not None and not self._is_identified:
                self._is_identified = True
                self._set_heartbeat(settings.heartbeat_interval, time.monotonic())

    def _judge(self, events: list[Event]) -> Iterator[Verdict]:
        """Ask the gate, and prepare the topics; may block. Ends at a command that is refused."""
        for event in events:
            try:
                verdict = self.gate.check(event)
            except AuthRefused as refused:
                yield refused
                return
            if isinstance(event, (Pub, OpenTopic, Dpub, Sub)):
                self._prepare(event.topic)
            yield verdict

    def _take_messages(self) -> None:
        consumer = self.dialogue.consumer  # only this thread sets it
        if consumer is None or len(self._unsent) > _MAX_UNSENT:
            return
        with self._engine:
            messages = self.dialogue.take_outbox(_MAX_UNSENT)
            self._has_more = bool(consumer.outbox)
        send = self.core.send_message
        for message in messages:
            send(*message)

    def _sleep(self, now: float) -> bool:
        """Wait for the socket, the bell or the next due time; True when there is data."""
        interest = select.POLLIN if len(self._unsent) <= _MAX_UNSENT else 0
        if now >= self._not_before and self._is_behind():
            interest |= select.POLLOUT
        if interest != self._interest:
            self._interest = interest
            self._poll.register(self._sock, interest)
        due = self._next_due(now)
        # Rounded up, so that we never wake just before the time.
        timeout = None if due == _NEVER else max(0, int((due - now) * 1000) + 1)
        for descriptor, event in self._poll.poll(timeout):
            if descriptor != self._bell.fileno() and event & ~select.POLLOUT:
                return True
        return False

    # -- time

    def _next_due(self, now: float) -> float:
        due = min(self._next_heartbeat, self.upgrades.handshake_due())
        interval = self._heartbeat_interval
        if interval:
            due = min(due, self._last_command + 2 * interval)
            if self._is_behind():
                due = min(due, self._last_progress + interval)
        if len(self._unsent) and self._not_before > now:
            due = min(due, self._not_before)
        held = self.dialogue.next_due()
        return due if held is None else min(due, held)

    def _keep_time(self, now: float) -> None:
        """Send what is due: held answers, a heartbeat; end a connection that is silent."""
        self.dialogue.release(now)
        if now >= self.upgrades.handshake_due():
            ours = format_address(*self._sock.getsockname()[:2])
            self.core.fail_handshake(f"read tcp {ours}->{self.address}: i/o timeout")
            return
        interval = self._heartbeat_interval
        if not interval:
            return
        if now >= self._last_command + 2 * interval:
            logger.info("client(%s) sent nothing for two heartbeat intervals", self.address)
            self._is_dropped = True
        elif self._is_behind() and now >= self._last_progress + interval:
            logger.info("client(%s) does not read", self.address)
            self._is_dropped = True
        elif now >= self._next_heartbeat:
            self._next_heartbeat = max(self._next_heartbeat + interval, now)
            if not self._faults.heartbeats_withheld:
                self.core.send_heartbeat()

    def _set_heartbeat(self, interval_ms: int, now: float) -> None:
        self._heartbeat_interval = interval_ms / 1000
        self._next_heartbeat = now + self._heartbeat_interval if interval_ms else _NEVER

    # -- writing

    def _is_behind(self) -> bool:
        """Tell whether something waits for the client to read."""
        return self._has_more or len(self._unsent) > 0

    def _write(self, now: float) -> None:
        """Send what the kernel takes, in the pieces that the faults ask for."""
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
        """Send the last answers, then end the stream so that they arrive."""
        rest = bytes(self._unsent) + self.core.data_to_send()
        while rest and not self._is_dropped:
            rest = rest[self._transport.send_some(rest):]
            if rest:
                self._transport.wait_writable(_LINGER)
        if self._is_reset or (self._faults.reset_after_error and not self._is_dropped):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return
        if not self._is_dropped:
            self._linger()
        self._transport.shutdown()

    def _linger(self) -> None:
        """End our half, and read away what the client still sends, for a short time."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the client was faster
        deadline = Deadline(_LINGER)
        while not deadline.expired() and not self._is_dropped:
            if self._transport.wait(deadline.remaining()) and self._transport.recv() == b"":
                return
