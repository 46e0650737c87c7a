"""The part of a partitioned nsqd's HTTP API that tests and operators need."""

from __future__ import annotations

import socket
import time
from typing import Any

from nsqclient.devserver.engine import Engine
from nsqclient.devserver.http_message import BodyError, Request, Response
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
)
from nsqclient.devserver.nsqd_http import read_binary, read_lines
from nsqclient.devserver.partitioned.queue import NO_POSITION, LogMessage, PartitionChannel
from nsqclient.devserver.partitioned.state import ClusterState, Partition, Topic
from nsqclient.devserver.protocol.commands import CommandError, NewMessage, ServerLimits
from nsqclient.devserver.protocol.partitioned import PARTITIONED_VERSION
from nsqclient.errors import ConfigError
from nsqclient.partitions.start_position import StartPosition
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import parse_uint

#: Codes that are answered with 404; the others are 400.
_NOT_FOUND = ("E_TOPIC_NOT_EXIST",)


class NsqdHTTP(HTTPServer):
    """The HTTP side of one nsqd. ``tcp_port``: that of its TCP side."""

    def __init__(
        self, nsqd: int, engine: Engine[ClusterState], host: str, port: int, tcp_port: int
    ) -> None:
        super().__init__("devserver-nsqd-http", host, port)
        self._nsqd = nsqd
        self._host = host
        self._tcp_port = tcp_port
        self._started_at = int(time.time())
        self._engine = engine
        for method, path, handler in (
            ("GET", "/ping", self._ping),
            ("GET", "/info", self._info),
            ("GET", "/stats", self._stats),
            ("POST", "/pub", self._pub),
            ("POST", "/pubtrace", self._pub_trace),
            ("POST", "/mpub", self._mpub),
            ("POST", "/channel/create", self._create_channel),
            ("POST", "/channel/setorder", self._set_order),
            ("POST", "/channel/setoffset", self._set_offset),
        ):
            self.router.add(method, path, handler)

    def _ping(self, _request: Request, _part: str) -> Response:
        return plain_response(200, "OK")

    def _info(self, _request: Request, _part: str) -> Response:
        return json_response({
            "version": PARTITIONED_VERSION, "broadcast_address": self._host,
            "hostname": socket.gethostname(), "http_port": self.port,
            "tcp_port": self._tcp_port, "start_time": self._started_at,
        })

    def _stats(self, request: Request, _part: str) -> Response:
        """The partitions with a copy here, in JSON whatever format was asked for."""
        params = read_params(request)
        only = params.get("topic")
        with self._engine as state:
            topics = [
                self._partition_stats(topic, partition)
                for topic in state.topics.values() if only in (None, "", topic.name)
                for partition in topic.partitions.values() if self._nsqd in partition.replicas
            ]
        return json_response({
            "version": PARTITIONED_VERSION, "health": "OK", "start_time": self._started_at,
            "topics": topics,
        })

    def _partition_stats(self, topic: Topic, partition: Partition) -> dict[str, Any]:
        log, meta = partition.log, topic.meta
        return {
            "topic_name": topic.name, "topic_full_name": f"{topic.name}-{log.number}",
            "topic_partition": str(log.number), "is_leader": partition.leader == self._nsqd,
            "is_multi_ordered": meta.ordered, "is_ext": meta.extended,
            "message_count": len(log.messages),
            "depth": log.end, "backend_depth": log.end, "backend_start": 0,
            "channel_num": len(log.channels),
            "channels": [
                {"channel_name": name, "depth": channel.depth(),
                 "in_flight_count": len(channel.in_flight), "client_num": len(channel.consumers),
                 "client_count": len(channel.consumers)}
                for name, channel in sorted(log.channels.items())
            ],
        }

    def _pub(self, request: Request, _part: str) -> Response:
        params = read_query(request)
        self._publish(params, [NewMessage(_read_message(request))])
        return text_response("OK")

    def _pub_trace(self, request: Request, _part: str) -> Response:
        params = read_query(request)
        trace_id = parse_uint(params.get("trace_id") or "0", 20)
        if trace_id is None or trace_id >= 2**64:
            raise HTTPError(400, "INVALID_TRACE_ID")
        stored = self._publish(params, [NewMessage(_read_message(request), trace_id)])[0]
        return json_response({
            "status": "OK", "id": stored.ids.internal_id, "trace_id": str(trace_id),
            "queue_offset": stored.offset, "rawsize": stored.size,
        })

    def _mpub(self, request: Request, _part: str) -> Response:
        params, limits = read_query(request), ServerLimits()
        read = read_binary if params.get("binary") == "true" else read_lines
        bodies = read(request.body, limits.max_msg_size, limits.max_body_size)
        if bodies:
            self._publish(params, list(map(NewMessage, bodies)))
        return text_response("OK")

    def _publish(self, params: Params, messages: list[NewMessage]) -> list[LogMessage]:
        topic, partition = params.get("topic"), _partition(params.get("partition"))
        if topic is None:
            raise HTTPError(404, "E_TOPIC_NOT_EXIST")
        with self._engine as state:
            try:
                state.check_serves(self._nsqd, state.find(self._nsqd, topic, partition)[1])
                return state.publish(
                    self._nsqd, topic, partition, messages, time.time_ns(), self._engine.now)
            except CommandError as exc:
                raise _http_error(exc) from None

    def _create_channel(self, request: Request, _part: str) -> Response:
        params = read_params(request)
        if not is_valid_name(params.require("channel")):
            raise HTTPError(400, "INVALID_ARG_CHANNEL")
        with self._engine as state:
            topic, partition = self._find_led(state, params)
            if topic.meta.channels_are_registered:
                raise HTTPError(403, f"channel {params.require('channel')} not registered. channel"
                                " should be initialized before use.")
            state.open_channel(topic, partition, params.require("channel"))
        return empty_response()

    def _find_led(self, state: ClusterState, params: Params) -> tuple[Topic, Partition]:
        """Return the partition of a request, which this nsqd must lead."""
        try:
            topic, partition = state.find(
                self._nsqd, params.require("topic"), _partition(params.get("partition")))
            state.check_serves(self._nsqd, partition)
        except CommandError as exc:
            raise _http_error(exc) from None
        return topic, partition

    def _find_channel(self, state: ClusterState, params: Params) -> PartitionChannel:
        _, partition = self._find_led(state, params)
        channel = partition.log.channels.get(params.require("channel"))
        if channel is None:
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        return channel

    def _set_order(self, request: Request, _part: str) -> Response:
        params = read_params(request)
        with self._engine as state:
            channel = self._find_channel(state, params)
            channel.is_ordered = params.require("order") == "true"
            channel.flow(self._engine.now)
        return empty_response()

    def _set_offset(self, request: Request, _part: str) -> Response:
        """The body is that of ``StartPosition``. Whatever consumers the channel has, it moves."""
        params = read_query(request)
        try:
            start = StartPosition.parse(request.body.read(100).decode("ascii", "replace"))
        except (BodyError, ConfigError):
            raise HTTPError(400, "INVALID_OFFSET") from None
        with self._engine as state:
            channel = self._find_channel(state, params)
            if not channel.has_position(start):
                raise HTTPError(500, NO_POSITION)
            channel.set_position(start, self._engine.now)
        return empty_response()


def _read_message(request: Request) -> bytes:
    try:
        body = request.body.read(ServerLimits().max_msg_size + 1)
    except BodyError:
        raise HTTPError(500, "INTERNAL_ERROR") from None
    if not body:
        raise HTTPError(406, "MSG_EMPTY")
    return body


def _partition(text: str | None) -> int | None:
    if text is None or text == "-1":
        return None
    number = parse_uint(text, 19)  # an int64 of Go
    if number is None:
        raise HTTPError(400, "INVALID_ARG_PARTITION")
    return number


def _http_error(error: CommandError) -> HTTPError:
    return HTTPError(404 if error.code in _NOT_FOUND else 400, error.code)
