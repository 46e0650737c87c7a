"""nsqd's HTTP API, without ``/debug/*`` (Go's profiler) and ``/config/*``; ``/stats`` is JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nsqclient.devserver.broker import BrokerError, ChannelNotFound, TopicNotFound
from nsqclient.devserver.http_server import TEXT, Handler, HTTPError, HTTPServer, Request, Response
from nsqclient.devserver.protocol.commands import NSQD_VERSION
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
