"""Executes the commands of one client on the broker, and starts the layers that it negotiated."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from nsqclient.devserver.broker import Broker, BrokerError
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.protocol.commands import (
    Auth, ClientSettings, Cls, CommandError, Dpub, Event, Fin, Identify, Mpub, OpenTopic, Pub, Rdy,
    Req, Sub, Touch,
)
from nsqclient.devserver.protocol.commands import encode_json
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.devserver.queues import Channel, Consumer
from nsqclient.protocol.frames import CLOSE_WAIT, OK, RawMessage

if TYPE_CHECKING:
    import ssl

    from nsqclient.devserver.partitioned.queue import PartitionChannel
    from nsqclient.protocol.tls import TLSLayer

#: The result of authorizing a command: an error, the response to an AUTH, or None.
AuthResult = Union[CommandError, dict[str, Any], None]


#: Milliseconds: nsqd takes a ``--msg-timeout`` of 0 or less, and messages time out at once.
_LEAST_TIMEOUT = 1
#: Seconds that a TLS handshake may take: nsqd's.
HANDSHAKE_TIMEOUT = 5.0


class NegotiatedLayers:
    """TLS and compression of one client; ``context`` is None for a server without a certificate."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._tls: TLSLayer | None = None
        self._due = float("inf")

    def apply(self, core: ServerProtocol, settings: ClientSettings) -> None:
        """Start the layers that IDENTIFY granted, in nsqd's order, with an OK inside each."""
        if settings.tls and self._context is not None:
            from nsqclient.protocol.tls import TLSLayer

            self._due = time.monotonic() + HANDSHAKE_TIMEOUT
            self._tls = TLSLayer(self._context, server_side=True)
            core.start_layer(self._tls)
            core.respond(OK)
        if settings.snappy:
            from nsqclient.protocol.layers import SnappyLayer

            core.start_layer(SnappyLayer())
            core.respond(OK)
        if settings.deflate:
            from nsqclient.protocol.layers import DeflateLayer

            core.start_layer(DeflateLayer(settings.deflate_level))
            core.respond(OK)

    @property
    def is_secure(self) -> bool:
        return self._tls is not None and self._tls.is_established

    def handshake_due(self) -> float:
        """Deadline of the TLS handshake, on the monotonic clock; infinite if none is pending."""
        return float("inf") if self._tls is None or self._tls.is_established else self._due

    def common_name(self) -> str:
        certificate = self._tls.tls.getpeercert() if self._tls and self.is_secure else None
        if not certificate:
            return ""
        fields: Any = certificate.get("subject", ())  # ((("commonName", "x"),), ...)
        return next((value for field in fields for key, value in field if key == "commonName"), "")

    def stats(self) -> dict[str, Any]:
        version = suite = ""
        if self._tls is not None and self.is_secure:
            version = (self._tls.tls.version() or "").replace("TLSv", "TLS")
            suite = (self._tls.tls.cipher() or ("",))[0]
        return {
            "tls": self.is_secure,
            "tls_cipher_suite": suite,
            "tls_version": "TLS1.0" if version == "TLS1" else version,
            "tls_negotiated_protocol": "",
            # Always true in nsqd.
            "tls_negotiated_protocol_is_mutual": self.is_secure,
        }


class _Answer(NamedTuple):
    """An answer that a fault delays; ``code`` is None for a response."""

    due: float
    code: str | None
    data: bytes
    settings: ClientSettings | None  # set if it answers IDENTIFY


class CommandHandler:
    """Executes one client's commands. All methods but ``release`` need the engine's lock."""

    def __init__(
        self, core: ServerProtocol, faults: Faults, number: int, layers: NegotiatedLayers
    ) -> None:
        self.core = core
        self.number = number
        self._layers = layers
        self.consumer: Consumer | None = None
        self.wake: Callable[[], None] = lambda: None
        self.channel: Channel | PartitionChannel | None = None
        self.pub_counts: dict[str, int] = {}
        #: Settings of the first IDENTIFY. nsqd answers a second one, but its message pump keeps
        #: the timers of the first.
        self.pump_settings: ClientSettings | None = None
        self._faults = faults
        self._held: deque[_Answer] = deque()

    def handle(
        self, event: Event, broker: Broker, now: float, auth_result: AuthResult = None
    ) -> None:
        failure = self._faults.receive(self.number, event)
        if failure is not None:
            self._answer(event, now, failure.code, failure.text)
            return
        if isinstance(auth_result, CommandError):
            self._answer(event, now, auth_result.code, auth_result.text)
            return
        if isinstance(event, Auth):
            self._answer(event, now, None, encode_json(auth_result))
            return
        try:
            self._execute(event, broker, now)
        except BrokerError as exc:
            self._fail(event, now, str(exc))
        except OSError as exc:
            self._fail(event, now, exc.strerror or str(exc))

    def take_outbox(self, size: int) -> list[RawMessage]:
        """Remove and return messages for this client, up to ``size`` bytes and one more."""
        consumer = self.consumer
        if consumer is None:
            return []
        if consumer.is_ended:
            consumer.outbox = []
            self.core.close()
        outbox = consumer.outbox
        for index, message in enumerate(outbox):
            size -= len(message[3])
            if size < 0:
                consumer.outbox = outbox[index + 1:]
                return outbox[:index + 1]
        consumer.outbox = []
        return outbox

    def unsubscribe(self, broker: Broker) -> None:
        channel, self.channel = self.channel, None
        if isinstance(channel, Channel) and self.consumer is not None:
            broker.unsubscribe(channel, self.consumer)

    def next_due(self) -> float | None:
        return self._held[0].due if self._held else None

    def release(self, now: float) -> None:
        while self._held and self._faults.may_leave(self._held[0].due, now):
            answer = self._held.popleft()
            self._send(answer.code, answer.data, answer.settings)

    def _execute(self, event: Event, broker: Broker, now: float) -> None:
        if isinstance(event, (Fin, Req, Touch)):
            reason = self._respond_to_message(event, now)
            if reason is not None:
                self._fail(event, now, reason)
        elif isinstance(event, (Pub, Dpub, Mpub)):
            bodies = event.bodies if isinstance(event, Mpub) else [event.body]
            deferral = event.delay_ms / 1000 if isinstance(event, Dpub) else 0.0
            broker.publish(event.topic, bodies, now, time.time_ns(), deferral)
            self.pub_counts[event.topic] = self.pub_counts.get(event.topic, 0) + len(bodies)
            self._answer(event, now, None, OK)
        elif isinstance(event, (Rdy, Cls)):
            self._set_ready(event, now)
        elif isinstance(event, OpenTopic):
            broker.open_topic(event.topic)
        elif isinstance(event, Identify):
            if self.pump_settings is None:
                self.pump_settings = event.settings
            self._answer(event, now, None, event.response, event.settings)
        elif isinstance(event, Sub):
            self._subscribe(event, broker, now)

    def _subscribe(self, event: Sub, broker: Broker, now: float) -> None:
        settings = self.core.settings if self.pump_settings is None else self.pump_settings
        consumer = Consumer(
            self.number, max(settings.msg_timeout, _LEAST_TIMEOUT) / 1000, settings.sample_rate)
        consumer.wake = self.wake
        self.channel = broker.subscribe(event.topic, event.channel, consumer, now)
        self.consumer = consumer
        self._answer(event, now, None, OK)

    def _respond_to_message(self, event: Fin | Req | Touch, now: float) -> str | None:
        channel, consumer = self.channel, self.consumer
        if channel is None or consumer is None:
            return "ID not in flight"  # a fault failed SUB with a code that is not fatal
        if isinstance(event, Fin):
            return channel.finish(consumer, event.message_id, now)
        if isinstance(event, Req):
            return channel.requeue(consumer, event.message_id, event.delay_ms / 1000, now)
        return channel.touch(consumer, event.message_id, now)

    def _set_ready(self, event: Rdy | Cls, now: float) -> None:
        if self.channel is not None and self.consumer is not None:
            level = event.level if isinstance(event, Rdy) else 0
            self.channel.set_ready(self.consumer, level, now)
        if isinstance(event, Cls):
            # Messages already delivered go out before CLOSE_WAIT, and none after it.
            if self.consumer is not None:
                for message in self.consumer.outbox:
                    self.core.send_message(*message)
                self.consumer.outbox = []
            self._answer(event, now, None, CLOSE_WAIT)

    def _fail(self, event: Event, now: float, reason: str) -> None:
        name = "MPUB" if isinstance(event, OpenTopic) else type(event).__name__.upper()
        what = name.encode()
        if isinstance(event, (Fin, Req, Touch)):
            what += b" " + event.message_id
        self._answer(event, now, f"E_{name}_FAILED", b"%b failed %b" % (what, reason.encode()))

    def _answer(
        self,
        event: Event,
        now: float,
        code: str | None,
        data: bytes,
        settings: ClientSettings | None = None,
    ) -> None:
        due = self._faults.answer_due(event, now)
        if due is not None or self._held:
            self._held.append(_Answer(0.0 if due is None else due, code, data, settings))
        else:
            self._send(code, data, settings)

    def _send(self, code: str | None, data: bytes, settings: ClientSettings | None) -> None:
        if self._faults.heartbeat_before_answers:
            self.core.send_heartbeat()
        if code is None:
            self.core.respond(data)
        else:
            self.core.fail(code, data)
        if settings is not None:
            self._layers.apply(self.core, settings)
