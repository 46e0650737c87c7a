"""nsqd's HTTP API, without ``/debug/*`` (Go's profiler) and ``/config/*``; ``/stats`` is JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nsqclient.devserver.broker import Broker, BrokerError, ChannelNotFound, TopicNotFound
from nsqclient.devserver.http_server import TEXT, Handler, HTTPError, HTTPServer, Request, Response
from nsqclient.devserver.protocol.commands import NSQD_VERSION
from nsqclient.devserver.protocol.server import ServerState
from nsqclient.devserver.queues import Channel, Topic
from nsqclient.devserver.session import Session
from nsqclient.protocol.names import is_valid_name

if TYPE_CHECKING:
    import ssl

    from nsqclient.devserver.options import NsqdOptions

logger: logging.Logger = logging.getLogger("nsqclient.devserver")


class NsqdHTTPServer(HTTPServer):
    """The HTTP side of one :class:`~nsqclient.devserver.Nsqd`, whose module imports this one."""

    def __init__(
        self, nsqd: Any, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        options: NsqdOptions = nsqd.options
        super().__init__("nsqd-http", host, port, [
            ("GET", "/ping", self._ping),
            ("GET", "/info", lambda request: nsqd.info()),
            ("GET", "/stats", self._stats),
            ("POST", "/pub", self._pub),
            ("POST", "/mpub", self._mpub),
            ("POST", "/topic/create", self._create_topic),
            ("POST", "/topic/delete", self._on_topic(nsqd.delete_topic)),
            ("POST", "/topic/empty", self._on_topic(nsqd.empty_topic)),
            ("POST", "/topic/pause", self._on_topic(nsqd.pause_topic)),
            ("POST", "/topic/unpause", self._on_topic(nsqd.unpause_topic)),
            ("POST", "/channel/create", self._on_channel(nsqd.create_channel)),
            ("POST", "/channel/delete", self._on_channel(nsqd.delete_channel)),
            ("POST", "/channel/empty", self._on_channel(nsqd.empty_channel)),
            ("POST", "/channel/pause", self._on_channel(nsqd.pause_channel)),
            ("POST", "/channel/unpause", self._on_channel(nsqd.unpause_channel)),
        ], tls, max(options.max_msg_size, options.max_body_size))
        self._nsqd = nsqd

    def _ping(self, _request: Request) -> object:
        health = self._nsqd.health()
        return Response(200 if health == "OK" else 500, health.encode(), TEXT)

    def _stats(self, request: Request) -> object:
        found = self._nsqd.stats(
            request.get("topic"), request.get("channel"), _flag(request, "include_clients"))
        return {
            "version": NSQD_VERSION,
            "health": self._nsqd.health(),
            "start_time": int(self._nsqd.start_time),
            "topics": found["topics"],
            # null, not [], if no client has published.
            "producers": found["producers"] or None,
        }

    def _pub(self, request: Request) -> object:
        options = self._nsqd.options
        body = request.read_body(options.max_msg_size, "MSG_TOO_BIG")
        if not body:
            raise HTTPError(400, "MSG_EMPTY")
        topic = self._open_topic(request)
        try:
            defer = int(request.get("defer", "0")) / 1000
        except ValueError:
            defer = -1.0
        # After the topic was created, as in nsqd.
        if not 0 <= defer <= options.max_req_timeout:
            raise HTTPError(400, "INVALID_DEFER")
        self._publish(topic, [body], defer)
        return "OK"

    def _mpub(self, request: Request) -> object:
        options = self._nsqd.options
        body = request.read_body(options.max_body_size, "BODY_TOO_BIG")
        topic = self._open_topic(request)
        # All values but "false" and "0" mean binary, also an empty value.
        is_binary = "binary" in request.params and _flag(request, "binary")
        bodies = (read_binary if is_binary else read_lines)(body, options.max_msg_size)
        if bodies:
            self._publish(topic, bodies, 0.0)
        return "OK"

    def _publish(self, topic: str, bodies: list[bytes], defer: float) -> None:
        try:
            self._nsqd.publish_many(topic, bodies, defer)
        except (BrokerError, OSError) as exc:
            logger.error("failed to publish to %s - %s", topic, exc)
            raise HTTPError(503, "EXITING") from None

    def _open_topic(self, request: Request) -> str:
        """Create the topic of /pub, /mpub and /topic/create before other checks."""
        topic = request.require("topic")
        if not is_valid_name(topic):
            raise HTTPError(400, "INVALID_TOPIC")
        with _broker_errors():
            self._nsqd.create_topic(topic)
        return topic

    def _create_topic(self, request: Request) -> None:
        self._open_topic(request)

    @staticmethod
    def _on_topic(change: Callable[[str], None]) -> Handler:
        def handler(request: Request) -> None:
            with _broker_errors():
                change(request.require("topic"))

        return handler

    @staticmethod
    def _on_channel(change: Callable[[str, str], None]) -> Handler:
        def handler(request: Request) -> None:
            with _broker_errors():
                change(*request.topic_and_channel())

        return handler


@contextmanager
def _broker_errors() -> Iterator[None]:
    try:
        yield
    except TopicNotFound:
        raise HTTPError(404, "TOPIC_NOT_FOUND") from None
    except ChannelNotFound:
        raise HTTPError(404, "CHANNEL_NOT_FOUND") from None
    except BrokerError:
        raise HTTPError(503, "EXITING") from None


def _flag(request: Request, name: str) -> bool:
    return request.get(name) not in ("false", "0")


# -- the bodies of /mpub: all messages of a body, or none


def read_lines(body: bytes, max_msg_size: int) -> list[bytes]:
    messages = [line for line in body.split(b"\n") if line]
    if any(len(line) > max_msg_size for line in messages):
        raise HTTPError(413, "MSG_TOO_BIG")
    return messages


def read_binary(body: bytes, max_msg_size: int) -> list[bytes]:
    """Return the messages of ``[4 B count]`` and ``[4 B size][message]`` for each."""
    if len(body) < 4 or (count := _int32(body, 0)) <= 0:
        raise HTTPError(413, "BAD_BODY")
    messages: list[bytes] = []
    end = 4
    while len(messages) < count:
        start = end + 4
        size = _int32(body, end)
        end = start + size
        if not 0 < size <= max_msg_size or end > len(body):
            raise HTTPError(413, "BAD_MESSAGE")
        messages.append(body[start:end])
    return messages


def _int32(body: bytes, at: int) -> int:
    return int.from_bytes(body[at:at + 4], "big", signed=True)


# -- /stats: the numbers with nsqd's keys in nsqd's order


#: nsqd's value without --e2e-processing-latency-percentile.
_NOT_MEASURED = {"count": 0, "percentiles": None}
#: nsqd's numbers for the states of a client.
_STATES = {
    ServerState.INIT: 0,
    ServerState.SUBSCRIBED: 3,
    ServerState.CLOSING: 4,
    ServerState.CLOSED: 1,
}


def topic_stats(
    broker: Broker, sessions: dict[int, Session], topic: str, channel: str, include_clients: bool
) -> list[dict[str, Any]] | None:
    """Return all topics, or one, or one with one channel; None if the topic does not exist."""
    if topic and topic not in broker.topics:
        return None
    wanted = [broker.topics[topic]] if topic else list(broker.topics.values())
    if channel:
        wanted = [each for each in wanted if channel in each.channels]
    wanted.sort(key=lambda each: each.name)
    return [_one_topic(each, sessions, topic, channel, include_clients) for each in wanted]


def producer_stats(sessions: Iterable[Session], topic: str) -> list[dict[str, Any]]:
    return [_client_stats(session, topic) for session in sessions if session.handler.pub_counts]


def _client_stats(session: Session, topic: str = "") -> dict[str, Any]:
    """Return one connection's numbers, with the publish counts of one topic or of all."""
    settings = session.core.settings
    consumer = session.handler.consumer
    is_known = session.handler.pump_settings is not None
    host = session.address.rpartition(":")[0]
    counts = [
        {"topic": name, "count": count}
        for name, count in session.handler.pub_counts.items()
        if not topic or name == topic
    ]
    return {
        "client_id": settings.client_id if is_known else host,
        "hostname": settings.hostname if is_known else host,
        "version": "V2",
        "remote_address": session.address,
        "state": _STATES[session.core.state],
        "ready_count": 0 if consumer is None else consumer.ready,
        "in_flight_count": 0 if consumer is None else consumer.in_flight,
        "message_count": 0 if consumer is None else consumer.message_count,
        "finish_count": 0 if consumer is None else consumer.finish_count,
        "requeue_count": 0 if consumer is None else consumer.requeue_count,
        "connect_ts": int(session.connected_at),
        "sample_rate": settings.sample_rate,
        "deflate": settings.deflate,
        "snappy": settings.snappy,
        "user_agent": settings.user_agent,
        **session.authorizer.stats(),
        **({"pub_counts": counts} if counts else {}),
        **session.layers.stats(),
    }


def _one_topic(
    topic: Topic, sessions: dict[int, Session], asked: str, channel: str, include_clients: bool
) -> dict[str, Any]:
    names = [channel] if channel else sorted(topic.channels)
    return {
        "topic_name": topic.name,
        "channels": [
            _one_channel(topic.channels[name], sessions, asked, include_clients) for name in names
        ],
        "depth": len(topic.queue),
        "backend_depth": topic.queue.backend.depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": _NOT_MEASURED,
    }


def _one_channel(
    channel: Channel, sessions: dict[int, Session], topic: str, include_clients: bool
) -> dict[str, Any]:
    clients = None
    if include_clients:
        clients = [
            _client_stats(sessions[number], topic)
            for number in channel.consumers if number in sessions
        ]
    return {
        "channel_name": channel.name,
        "depth": len(channel.queue),
        "backend_depth": channel.queue.backend.depth,
        "in_flight_count": len(channel.in_flight),
        "deferred_count": len(channel.deferred),
        "message_count": channel.message_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.consumers),
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": _NOT_MEASURED,
    }
