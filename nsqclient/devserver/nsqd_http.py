"""nsqd's HTTP API, without ``/debug/*`` (Go's profiler)."""

from __future__ import annotations

import logging
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nsqclient.devserver import stats
from nsqclient.devserver.broker import BrokerError, ChannelNotFound, TopicNotFound
from nsqclient.devserver.broker_facade import BrokerFacade
from nsqclient.devserver.http_message import BodyError, BodyReader, Request, Response
from nsqclient.devserver.http_server import (
    HTTPError,
    HTTPServer,
    Params,
    empty_response,
    json_response,
    plain_response,
    read_params,
    read_query,
    text_response,
    tls_required_response,
)
from nsqclient.devserver.options import LEVELS, config_values
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.peer_json import InvalidJson, read_json

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger("nsqclient.devserver")

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_size = struct.Struct(">i")


class NsqdHTTPServer(HTTPServer):
    """The HTTP side of one nsqd.

    Args:
        nsqd: the server.
        host, port: where it listens; port 0 takes a free one.
        tls: serve HTTPS with it.
    """

    def __init__(
        self, nsqd: BrokerFacade, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__("nsqd-http", host, port, tls)
        self._nsqd = nsqd
        for method, path, handler in (
            ("GET", "/ping", self._ping),
            ("GET", "/info", self._info),
            ("GET", "/stats", self._stats),
            ("POST", "/pub", self._pub),
            ("POST", "/mpub", self._mpub),
            ("POST", "/topic/create", self._create_topic),
            ("POST", "/topic/delete", self._delete_topic),
            ("POST", "/topic/empty", self._empty_topic),
            ("POST", "/topic/pause", self._pause_topic),
            ("POST", "/topic/unpause", self._pause_topic),
            ("POST", "/channel/create", self._change_channel),
            ("POST", "/channel/delete", self._change_channel),
            ("POST", "/channel/empty", self._change_channel),
            ("POST", "/channel/pause", self._change_channel),
            ("POST", "/channel/unpause", self._change_channel),
            ("GET", "/config/:opt", self._get_config),
            ("PUT", "/config/:opt", self._put_config),
        ):
            self.router.add(method, path, handler)

    def require_tls(self, https_port: int) -> None:
        """Answer every request with the port of HTTPS, 0 where there is none."""
        self.router.fixed_response = tls_required_response(https_port)

    # -- information

    def _ping(self, _request: Request, _part: str) -> Response:
        health = self._nsqd.health()
        return plain_response(200 if health == "OK" else 500, health)

    def _info(self, _request: Request, _part: str) -> Response:
        return json_response(self._nsqd.info())

    def _stats(self, request: Request, _part: str) -> Response:
        params = read_params(request)
        numbers = self._nsqd.stats(
            params.get("topic") or "", params.get("channel") or "",
            _flag(params, "include_clients"),
        )
        started = self._nsqd.start_time
        include_memory = _flag(params, "include_mem")
        answer = stats.build(numbers, self._nsqd.health(), started, include_memory)
        if params.get("format") == "json":
            return json_response(answer)
        return text_response(stats.to_text(answer, started, time.time()))

    # -- publishing

    def _pub(self, request: Request, _part: str) -> Response:
        limit = self._nsqd.options.max_msg_size
        if request.content_length > limit:
            raise HTTPError(413, "MSG_TOO_BIG")
        body = _read_body(request, limit + 1)
        if len(body) > limit:
            raise HTTPError(413, "MSG_TOO_BIG")
        if not body:
            raise HTTPError(400, "MSG_EMPTY")
        params = read_query(request)
        topic = self._open_topic(params)
        defer_ms = _parse_int(params.get("defer"))
        # After the topic was created, as in nsqd.
        if defer_ms is None or not 0 <= defer_ms / 1000 <= self._nsqd.options.max_req_timeout:
            raise HTTPError(400, "INVALID_DEFER")
        self._publish(topic, [body], defer_ms / 1000)
        return text_response("OK")

    def _mpub(self, request: Request, _part: str) -> Response:
        options = self._nsqd.options
        if request.content_length > options.max_body_size:
            raise HTTPError(413, "BODY_TOO_BIG")
        params = read_query(request)
        topic = self._open_topic(params)
        binary = params.get("binary")
        # All values but those of false mean binary, the empty one too.
        is_binary = binary is not None and _BOOLEANS.get(binary, True)
        read = read_binary if is_binary else read_lines
        bodies = read(request.body, options.max_msg_size, options.max_body_size)
        if bodies:
            self._publish(topic, bodies, 0.0)
        return text_response("OK")

    def _publish(self, topic: str, bodies: list[bytes], defer: float) -> None:
        try:
            self._nsqd.publish_many(topic, bodies, defer)
        except (BrokerError, OSError) as exc:
            logger.error("failed to publish to %s - %s", topic, exc)
            raise HTTPError(503, "EXITING") from None

    def _open_topic(self, params: Params) -> str:
        """Create the topic of /pub, /mpub and /topic/create before other checks."""
        topic = _valid_topic(params)
        try:
            self._nsqd.create_topic(topic)
        except BrokerError:
            raise HTTPError(503, "EXITING") from None
        return topic

    # -- topics and channels

    def _create_topic(self, request: Request, _part: str) -> Response:
        self._open_topic(read_query(request))
        return empty_response()

    def _delete_topic(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        with _broker_errors():
            self._nsqd.delete_topic(topic)
        return empty_response()

    def _empty_topic(self, request: Request, _part: str) -> Response:
        topic = _valid_topic(read_params(request))
        with _broker_errors():
            self._nsqd.empty_topic(topic)
        return empty_response()

    def _pause_topic(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        with _broker_errors():
            if request.path.endswith("/unpause"):
                self._nsqd.unpause_topic(topic)
            else:
                self._nsqd.pause_topic(topic)
        return empty_response()

    def _change_channel(self, request: Request, _part: str) -> Response:
        topic, channel = read_params(request).topic_and_channel()
        change = {
            "create": self._nsqd.create_channel,
            "delete": self._nsqd.delete_channel,
            "empty": self._nsqd.empty_channel,
            "pause": self._nsqd.pause_channel,
            "unpause": self._nsqd.unpause_channel,
        }[request.path.rpartition("/")[2]]
        with _broker_errors():
            change(topic, channel)
        return empty_response()

    # -- options

    def _get_config(self, _request: Request, option: str) -> Response:
        if option == "log_level":
            return json_response(self._nsqd.log_level.number)
        if option == "nsqlookupd_tcp_addresses":
            return json_response(self._nsqd.lookupd_tcp_addresses)
        info, options = self._nsqd.info(), self._nsqd.options
        values = config_values(options) | {
            "tcp_address": self._nsqd.tcp_address,
            "http_address": self._nsqd.http_address,
            "https_address": self._nsqd.https_address,
            "broadcast_tcp_port": options.broadcast_tcp_port or info["tcp_port"],
            "broadcast_http_port": options.broadcast_http_port or info["http_port"],
        }
        if option not in values:
            raise HTTPError(400, "INVALID_OPTION")
        value = values[option]
        return text_response(value) if isinstance(value, str) else json_response(value)

    def _put_config(self, request: Request, option: str) -> Response:
        limit = self._nsqd.options.max_msg_size
        body = _read_body(request, limit + 1)
        if not body or len(body) > limit:
            raise HTTPError(413, "INVALID_VALUE")
        if option == "nsqlookupd_tcp_addresses":
            self._nsqd.set_lookupd_tcp_addresses(_parse_addresses(body))
        elif option == "log_level":
            level = body.decode("utf-8", "replace").lower()
            if level not in LEVELS:
                raise HTTPError(400, "INVALID_VALUE")
            self._nsqd.log_level.set(level)
        else:
            raise HTTPError(400, "INVALID_OPTION")
        return self._get_config(request, option)


@contextmanager
def _broker_errors() -> Iterator[None]:
    """Convert the errors of the broker into HTTP errors."""
    try:
        yield
    except TopicNotFound:
        raise HTTPError(404, "TOPIC_NOT_FOUND") from None
    except ChannelNotFound:
        raise HTTPError(404, "CHANNEL_NOT_FOUND") from None
    except BrokerError:
        raise HTTPError(503, "EXITING") from None


def _valid_topic(params: Params) -> str:
    topic = params.require("topic")
    if not is_valid_name(topic):
        raise HTTPError(400, "INVALID_TOPIC")
    return topic


def _flag(params: Params, name: str) -> bool:
    """Read a flag: true for all values but those of false."""
    return _BOOLEANS.get(params.get(name) or "", True)


def _read_body(request: Request, limit: int) -> bytes:
    try:
        return request.body.read(limit)
    except BodyError:
        raise HTTPError(500, "INTERNAL_ERROR") from None


def _parse_int(text: str | None) -> int | None:
    """Return the number, 0 without a text, None when it is no number."""
    if text is None:
        return 0
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None


def _parse_addresses(body: bytes) -> list[str]:
    try:
        addresses = read_json(body)
    except InvalidJson:
        addresses = False
    if addresses is None:
        return []
    if not isinstance(addresses, list) or not all(isinstance(each, str) for each in addresses):
        raise HTTPError(400, "INVALID_VALUE")
    return addresses


# -- the bodies of /mpub: all messages of a body, or none


def read_lines(body: BodyReader, max_msg_size: int, max_body_size: int) -> list[bytes]:
    """Return the lines, empty ones left out.

    Raises:
        HTTPError: 413 MSG_TOO_BIG or BODY_TOO_BIG, whichever is met first; 500 for a broken body.
    """
    try:
        data = body.read(max_body_size + 1)
    except BodyError:
        raise HTTPError(500, "INTERNAL_ERROR") from None
    messages = []
    read = 0
    for line in data.split(b"\n"):
        read += len(line) + 1
        if read > max_body_size:
            # The last line may end with the body, without a newline of its own.
            if len(data) > max_body_size:
                raise HTTPError(413, "BODY_TOO_BIG")
        if len(line) > max_msg_size:
            raise HTTPError(413, "MSG_TOO_BIG")
        if line:
            messages.append(line)
    return messages


def read_binary(body: BodyReader, max_msg_size: int, max_body_size: int) -> list[bytes]:
    """Return the messages of ``[4 B count]`` and ``[4 B size][message]`` for each.

    Bytes after the last message are ignored.

    Raises:
        HTTPError: 413, BAD_BODY for the count, BAD_MESSAGE for what follows.
    """
    count = _read_size(body, "BAD_BODY")
    # The most that fit: 4 bytes of count, then 4 bytes of size and 1 of message for each.
    if not 0 < count <= (max_body_size - 4) // 5:
        raise HTTPError(413, "BAD_BODY")
    messages = []
    for _ in range(count):
        size = _read_size(body, "BAD_MESSAGE")
        if not 0 < size <= max_msg_size:
            raise HTTPError(413, "BAD_MESSAGE")
        messages.append(_read(body, size, "BAD_MESSAGE"))
    return messages


def _read_size(body: BodyReader, code: str) -> int:
    size: int = _size.unpack(_read(body, _size.size, code))[0]
    return size


def _read(body: BodyReader, size: int, code: str) -> bytes:
    try:
        data = body.read(size)
    except BodyError:
        data = b""
    if len(data) < size:
        raise HTTPError(413, code)
    return data
