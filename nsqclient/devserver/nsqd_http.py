"""nsqd's HTTP API.

Left out: ``/debug/*`` (Go's profiler), HTTPS.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

from nsqclient.devserver import nsqd_config, nsqd_stats
from nsqclient.devserver.broker import BrokerError, ChannelNotFound, TopicNotFound
from nsqclient.devserver.http_message import BodyError, Request, Response
from nsqclient.devserver.http_router import (
    HTTPError,
    Params,
    empty_answer,
    json_answer,
    plain_answer,
    read_params,
    read_query,
    text_answer,
    tls_required_answer,
)
from nsqclient.devserver.http_server import HTTPServer
from nsqclient.devserver.log_level import LEVELS
from nsqclient.devserver.mpub_body import read_binary, read_lines
from nsqclient.devserver.options import TLSPolicy
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.peer_json import InvalidJson, read_json

if TYPE_CHECKING:  # nsqd owns this server and imports it
    from nsqclient.devserver.nsqd import Nsqd

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

logger = logging.getLogger("nsqclient.devserver")


class NsqdHTTPServer(HTTPServer):
    """The HTTP side of one nsqd.

    Args:
        nsqd: what it speaks about.
        host, port: where it listens; port 0 takes a free one.
    """

    def __init__(self, nsqd: Nsqd, host: str, port: int) -> None:
        super().__init__("nsqd-http", host, port)
        self._nsqd = nsqd
        if nsqd.options.tls_policy is TLSPolicy.REQUIRED:
            self.router.refusal = tls_required_answer()
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

    # -- looking

    def _ping(self, _request: Request, _part: str) -> Response:
        health = self._nsqd.health()
        return plain_answer(200 if health == "OK" else 500, health)

    def _info(self, _request: Request, _part: str) -> Response:
        return json_answer(self._nsqd.info())

    def _stats(self, request: Request, _part: str) -> Response:
        params = read_params(request)
        stats = self._nsqd.stats(
            params.get("topic") or "", params.get("channel") or "",
            _flag(params, "include_clients"),
        )
        started = self._nsqd.start_time
        include_memory = _flag(params, "include_mem")
        answer = nsqd_stats.build(stats, self._nsqd.health(), started, include_memory)
        if params.get("format") == "json":
            return json_answer(answer)
        return text_answer(nsqd_stats.to_text(answer, started, time.time()))

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
        # Checked after the topic was made: so does nsqd.
        if defer_ms is None or not 0 <= defer_ms / 1000 <= self._nsqd.options.max_req_timeout:
            raise HTTPError(400, "INVALID_DEFER")
        self._publish(topic, [body], defer_ms / 1000)
        return text_answer("OK")

    def _mpub(self, request: Request, _part: str) -> Response:
        options = self._nsqd.options
        if request.content_length > options.max_body_size:
            raise HTTPError(413, "BODY_TOO_BIG")
        params = read_query(request)
        topic = self._open_topic(params)
        binary = params.get("binary")
        # Anything that is not clearly false means binary, an empty value too.
        is_binary = binary is not None and _BOOLEANS.get(binary, True)
        read = read_binary if is_binary else read_lines
        bodies = read(request.body, options.max_msg_size, options.max_body_size)
        if bodies:
            self._publish(topic, bodies, 0.0)
        return text_answer("OK")

    def _publish(self, topic: str, bodies: list[bytes], defer: float) -> None:
        try:
            self._nsqd.publish_many(topic, bodies, defer)
        except (BrokerError, OSError) as exc:
            logger.error("failed to publish to %s - %s", topic, exc)
            raise HTTPError(503, "EXITING") from None

    def _open_topic(self, params: Params) -> str:
        """Make the topic of /pub, /mpub and /topic/create, whatever else may be wrong."""
        topic = _valid_topic(params)
        try:
            self._nsqd.create_topic(topic)
        except BrokerError:
            raise HTTPError(503, "EXITING") from None
        return topic

    # -- topics and channels

    def _create_topic(self, request: Request, _part: str) -> Response:
        self._open_topic(read_query(request))
        return empty_answer()

    def _delete_topic(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        with _NotFound():
            self._nsqd.delete_topic(topic)
        return empty_answer()

    def _empty_topic(self, request: Request, _part: str) -> Response:
        topic = _valid_topic(read_params(request))
        with _NotFound():
            self._nsqd.empty_topic(topic)
        return empty_answer()

    def _pause_topic(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        with _NotFound():
            if request.path.endswith("/unpause"):
                self._nsqd.unpause_topic(topic)
            else:
                self._nsqd.pause_topic(topic)
        return empty_answer()

    def _change_channel(self, request: Request, _part: str) -> Response:
        topic, channel = read_params(request).topic_and_channel()
        change = {
            "create": self._nsqd.create_channel,
            "delete": self._nsqd.delete_channel,
            "empty": self._nsqd.empty_channel,
            "pause": self._nsqd.pause_channel,
            "unpause": self._nsqd.unpause_channel,
        }[request.path.rpartition("/")[2]]
        with _NotFound():
            change(topic, channel)
        return empty_answer()

    # -- options

    def _get_config(self, _request: Request, option: str) -> Response:
        if option == "log_level":
            return json_answer(self._nsqd.log_level.number)
        if option == "nsqlookupd_tcp_addresses":
            return json_answer(self._nsqd.lookupd_tcp_addresses)
        info = self._nsqd.info()
        values = nsqd_config.values(self._nsqd.options) | {
            "tcp_address": self._nsqd.tcp_address,
            "http_address": self.address,
            "broadcast_tcp_port": info["tcp_port"],
            "broadcast_http_port": info["http_port"],
        }
        if option not in values:
            raise HTTPError(400, "INVALID_OPTION")
        value = values[option]
        return text_answer(value) if isinstance(value, str) else json_answer(value)

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


class _NotFound:
    """Turns the broker's complaints into 404s."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, exc: BaseException | None, _traceback: object) -> None:
        if isinstance(exc, TopicNotFound):
            raise HTTPError(404, "TOPIC_NOT_FOUND") from None
        if isinstance(exc, ChannelNotFound):
            raise HTTPError(404, "CHANNEL_NOT_FOUND") from None
        if isinstance(exc, BrokerError):
            raise HTTPError(503, "EXITING") from None


def _valid_topic(params: Params) -> str:
    topic = params.require("topic")
    if not is_valid_name(topic):
        raise HTTPError(400, "INVALID_TOPIC")
    return topic


def _flag(params: Params, name: str) -> bool:
    """A flag that is true unless it is clearly false."""
    return _BOOLEANS.get(params.get(name) or "", True)


def _read_body(request: Request, limit: int) -> bytes:
    try:
        return request.body.read(limit)
    except BodyError:
        raise HTTPError(500, "INTERNAL_ERROR") from None


def _parse_int(text: str | None) -> int | None:
    """The number, 0 when there is no text, None when it is no number."""
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
