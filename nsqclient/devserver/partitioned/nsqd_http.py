"""The part of a partitioned nsqd's HTTP API that tests and operators need."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import Any

from nsqclient.devserver.engine import Engine
from nsqclient.devserver.http_server import TEXT, HTTPError, HTTPServer, Request, Response
from nsqclient.devserver.nsqd_http import read_binary, read_lines
from nsqclient.devserver.partitioned.queue import NO_POSITION, LogMessage, PartitionChannel
from nsqclient.devserver.partitioned.state import ClusterState, Partition, Topic
from nsqclient.devserver.protocol.commands import CommandError, NewMessage, ServerLimits
from nsqclient.devserver.protocol.partitioned import PARTITIONED_VERSION
from nsqclient.errors import ConfigError
from nsqclient.protocol.partitioned.selection import StartPosition
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import parse_uint

#: Codes that are answered with 404; the others are 400.
_NOT_FOUND = ("E_TOPIC_NOT_EXIST",)


class NsqdHTTP(HTTPServer):
    """The HTTP side of one nsqd. ``tcp_port``: the port of its TCP side."""

    def __init__(
        self, nsqd: int, engine: Engine[ClusterState], host: str, port: int, tcp_port: int
    ) -> None:
        super().__init__("devserver-nsqd-http", host, port, [
            ("GET", "/ping", lambda request: Response(200, b"OK", TEXT)),
            ("GET", "/info", self._info),
            ("GET", "/stats", self._stats),
            ("POST", "/pub", self._pub),
            ("POST", "/mpub", self._mpub),
            ("POST", "/channel/create", self._create_channel),
            ("POST", "/channel/setoffset", self._set_offset),
            ("POST", "/channel/pause", partial(self._pause_channel, True)),
            ("POST", "/channel/unpause", partial(self._pause_channel, False)),
            ("POST", "/channel/empty", self._empty_channel),
            ("POST", "/channel/delete", self._delete_channel),
        ])
        self._nsqd = nsqd
        self._host = host
        self._tcp_port = tcp_port
        self._started_at = int(time.time())
        self._engine = engine

    def _info(self, _request: Request) -> object:
        return {
            "version": PARTITIONED_VERSION, "broadcast_address": self._host,
            "hostname": socket.gethostname(), "http_port": self.port,
            "tcp_port": self._tcp_port, "start_time": self._started_at,
        }

    def _stats(self, request: Request) -> object:
        """The partitions with a copy here, in JSON whatever format was asked for."""
        only = request.get("topic")
        with self._engine as state:
            topics = [
                self._partition_stats(topic, partition)
                for topic in state.topics.values() if only in ("", topic.name)
                for partition in topic.partitions.values() if self._nsqd in partition.replicas
            ]
        return {
            "version": PARTITIONED_VERSION, "health": "OK", "start_time": self._started_at,
            "topics": topics,
        }

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
                 "client_count": len(channel.consumers), "paused": channel.is_paused}
                for name, channel in sorted(log.channels.items())
            ],
        }

    def _pub(self, request: Request) -> object:
        self._publish(request, [NewMessage(_read_message(request))])
        return "OK"

    def _mpub(self, request: Request) -> object:
        limits = ServerLimits()
        read = read_binary if request.get("binary") == "true" else read_lines
        bodies = read(request.read_body(limits.max_body_size, "BODY_TOO_BIG"), limits.max_msg_size)
        if bodies:
            self._publish(request, list(map(NewMessage, bodies)))
        return "OK"

    def _publish(self, request: Request, messages: list[NewMessage]) -> list[LogMessage]:
        topic, partition = request.get("topic"), _partition(request.get("partition"))
        with self._engine as state:
            try:
                state.check_serves(self._nsqd, state.find(self._nsqd, topic, partition)[1])
                return state.publish(
                    self._nsqd, topic, partition, messages, time.time_ns(), self._engine.now)
            except CommandError as exc:
                raise _http_error(exc) from None

    def _create_channel(self, request: Request) -> None:
        if not is_valid_name(request.require("channel")):
            raise HTTPError(400, "INVALID_ARG_CHANNEL")
        with self._engine as state:
            topic, partition = self._find_led(state, request)
            if topic.meta.channels_are_registered:
                raise HTTPError(403, f"channel {request.require('channel')} not registered. channel"
                                " should be initialized before use.")
            state.open_channel(topic, partition, request.require("channel"))

    def _find_led(self, state: ClusterState, request: Request) -> tuple[Topic, Partition]:
        """Return the partition of a request, which this nsqd must lead."""
        try:
            topic, partition = state.find(
                self._nsqd, request.require("topic"), _partition(request.get("partition")))
            state.check_serves(self._nsqd, partition)
        except CommandError as exc:
            raise _http_error(exc) from None
        return topic, partition

    def _find_channel(
        self, state: ClusterState, request: Request
    ) -> tuple[PartitionChannel, Topic, Partition]:
        topic, partition = self._find_led(state, request)
        channel = partition.log.channels.get(request.require("channel"))
        if channel is None:
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        return channel, topic, partition

    def _pause_channel(self, is_paused: bool, request: Request) -> None:
        with self._engine as state:
            channel, _, _ = self._find_channel(state, request)
            channel.is_paused = is_paused
            channel.flow(self._engine.now)

    def _empty_channel(self, request: Request) -> None:
        with self._engine as state:
            self._find_channel(state, request)[0].empty()

    def _delete_channel(self, request: Request) -> None:
        """As at a real nsqd, a channel that does not exist is deleted, too."""
        request.require("channel")
        with self._engine as state:
            topic, partition = self._find_led(state, request)
            if topic.meta.channels_are_registered:
                raise HTTPError(403, f"topic {topic.name} has channel auto create disabled")
            channel = partition.log.channels.pop(request.require("channel"), None)
            if channel is not None:
                channel.end_consumers(self._engine.now)

    def _set_offset(self, request: Request) -> None:
        """The body is a ``StartPosition``. The channel moves even if it has consumers."""
        try:
            body = request.read_body(100, "INVALID_OFFSET")
            start = StartPosition.parse(body.decode("ascii", "replace"))
        except ConfigError:
            raise HTTPError(400, "INVALID_OFFSET") from None
        with self._engine as state:
            channel, _, _ = self._find_channel(state, request)
            if not channel.has_position(start):
                raise HTTPError(500, NO_POSITION)
            channel.set_position(start, self._engine.now)


def _read_message(request: Request) -> bytes:
    body = request.read_body(ServerLimits().max_msg_size, "MSG_TOO_BIG")
    if not body:
        raise HTTPError(406, "MSG_EMPTY")
    return body


def _partition(text: str) -> int | None:
    if text in ("", "-1"):
        return None
    number = parse_uint(text, 19)  # an int64 of Go
    if number is None:
        raise HTTPError(400, "INVALID_ARG_PARTITION")
    return number


def _http_error(error: CommandError) -> HTTPError:
    return HTTPError(404 if error.code in _NOT_FOUND else 400, error.code)
