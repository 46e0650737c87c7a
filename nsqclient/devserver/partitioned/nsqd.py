"""One nsqd of an embedded cluster: a TCP port with the partitioned dialect, and an HTTP port."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.command_handler import AuthResult, CommandHandler
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults, ReceivedCommand
from nsqclient.devserver.http_server import TEXT, HTTPError, HTTPServer, Request, Response
from nsqclient.devserver.nsqd_http import read_binary, read_lines
from nsqclient.devserver.partitioned.queue import read_ext_filter
from nsqclient.devserver.partitioned.queue import (
    NO_POSITION, LogMessage, PartitionChannel, PartitionConsumer,
)
from nsqclient.devserver.partitioned.state import ClusterState, Partition, Topic
from nsqclient.devserver.protocol.commands import (
    CommandError, Event, NewMessage, OpenPartition, PartitionPub, PartitionSub, Rdy, ServerLimits,
)
from nsqclient.devserver.protocol.partitioned import (
    PARTITIONED_VERSION, PartitionServerProtocol, check_header, has_trace, read_start,
)
from nsqclient.devserver.queues import Channel, Consumer
from nsqclient.devserver.session import SessionConfig
from nsqclient.devserver.session_loop import SessionLoop, Sessions
from nsqclient.devserver.command_handler import NegotiatedLayers
from nsqclient.errors import ConfigError
from nsqclient.protocol.frames import OK
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.partitioned.extensions import MessageFormat, StoredPosition
from nsqclient.runtime.addresses import parse_uint
from nsqclient.runtime.deadline import Deadline

#: Codes that are answered with 404; the others are 400.
_NOT_FOUND = ("E_TOPIC_NOT_EXIST",)


class PartitionCommandHandler(CommandHandler):
    """Executes one client's commands. All methods but ``release`` need the engine's lock."""

    def __init__(
        self,
        core: PartitionServerProtocol,
        faults: Faults,
        number: int,
        layers: NegotiatedLayers,
        nsqd: int,
        engine: Engine[ClusterState],
    ) -> None:
        super().__init__(core, faults, number, layers)
        self._partition_core = core
        self._nsqd = nsqd
        self._engine = engine
        #: A publish that hangs.
        self._hung: PartitionPub | None = None
        #: Later commands, which wait for it.
        self._behind: deque[tuple[Event, AuthResult]] = deque()

    def handle(
        self, event: Event, broker: Any, now: float, auth_result: AuthResult = None
    ) -> None:
        """Execute one command, or keep it while a publish before it hangs."""
        if self._hung is None:
            super().handle(event, broker, now, auth_result)
        else:
            self._behind.append((event, auth_result))

    def release(self, now: float) -> None:
        super().release(now)
        if self._hung is not None:
            with self._engine as state:
                self._execute_hung(state, now)

    def _execute_hung(self, state: ClusterState, now: float) -> None:
        if self._hung is None:
            return
        event, self._hung = self._hung, None
        self._execute(event, state, now)
        while self._behind and self._hung is None and not self.core.is_closed:
            behind, auth_result = self._behind.popleft()
            self.handle(behind, state, now, auth_result)

    def unsubscribe(self, broker: Any) -> None:
        channel, self.channel = self.channel, None
        if isinstance(channel, PartitionChannel) and isinstance(self.consumer, PartitionConsumer):
            channel.remove_consumer(self.consumer, time.monotonic())

    def _execute(self, event: Event, broker: Any, now: float) -> None:
        state: ClusterState = broker
        try:
            if isinstance(event, OpenPartition):
                state.find(self._nsqd, event.topic, event.partition)
            elif isinstance(event, PartitionPub):
                self._publish(event, state, now)
            elif isinstance(event, PartitionSub):
                self._subscribe_to(event, state, now)
            elif isinstance(event, Rdy) and self.channel is None:
                return
            else:
                super()._execute(event, broker, now)
        except CommandError as exc:
            self._answer(event, now, exc.code, exc.text)

    def _publish(self, event: PartitionPub, state: ClusterState, now: float) -> None:
        topic, partition = state.find(self._nsqd, event.topic, event.partition)
        messages = event.messages
        if event.command in ("PUB_EXT", "MPUB_EXT") and not topic.meta.extended:
            raise CommandError(
                "E_EXT_NOT_SUPPORT", f"ext content not supported in topic {topic.name}")
        if event.command == "PUB_EXT" and not messages[0].header:
            raise CommandError("E_INVALID_JSON_HEADER", "empty json header")
        messages = [
            new._replace(trace_id=check_header(new.header)) if new.header else new
            for new in messages
        ]
        state.check_serves(self._nsqd, partition)
        if partition.is_writable and partition.is_hung:
            self._hung = event
            return
        stored = state.publish(
            self._nsqd, event.topic, event.partition, messages, time.time_ns(), now
        )
        count = self.pub_counts.get(event.topic, 0)
        self.pub_counts[event.topic] = count + len(messages)
        self._answer(event, now, None, _answer_to(event, stored))

    def _subscribe_to(self, event: PartitionSub, state: ClusterState, now: float) -> None:
        core = self._partition_core
        settings = core.settings if self.pump_settings is None else self.pump_settings
        ordered = event.command == "SUB_ORDERED"
        form = MessageFormat(core.extend_support, event.command != "SUB")
        topic, partition = state.find(self._nsqd, event.topic, event.partition)
        state.check_serves(self._nsqd, partition)
        # A plain topic drops the tag without an error.
        consumer = PartitionConsumer(
            self.number, settings.msg_timeout / 1000, settings.sample_rate, form,
            core.desired_tag if topic.meta.extended else "",
            read_ext_filter(core.ext_filter) if topic.meta.extended else None,
        )
        consumer.wake = self.wake
        self.channel: Channel | PartitionChannel | None = state.subscribe(
            self._nsqd, event.topic, event.partition, event.channel, consumer, ordered,
            core.extend_support,
        )
        self.consumer: Consumer | None = consumer
        self._answer(event, now, None, OK)


def _answer_to(event: PartitionPub, stored: list[LogMessage]) -> bytes:
    first = stored[0]
    traced = event.command == "PUB_TRACE" or (
        event.command == "PUB_EXT" and has_trace(event.messages[0].header)
    )
    return StoredPosition(*first.ids, first.offset, first.size).pack() if traced else OK


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
        """The partitions with a copy here, always in JSON, whatever format is requested."""
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
            start = read_start(body.decode("ascii", "replace"))
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


class PartitionedNsqd:
    """One nsqd of a cluster, which creates and starts it. Threads: any."""

    def __init__(
        self,
        number: int,
        engine: Engine[ClusterState],
        loop: SessionLoop,
        limits: ServerLimits,
        session_numbers: Iterator[int],
        host: str,
        tcp_port: int,
        http_port: int,
    ) -> None:
        self.number = number
        self._engine = engine
        self._sessions = Sessions(loop, engine, session_numbers)
        #: Test controls, see :class:`~nsqclient.devserver.faults.Faults`.
        self.faults: Faults = self._sessions.faults
        self._sessions.config = SessionConfig(
            lambda session, layers: PartitionCommandHandler(
                PartitionServerProtocol(limits), self.faults, session, layers, number, engine)
        )
        self._host = host
        self._ports = (tcp_port, http_port)
        self._listener: Acceptor | None = None
        self._http: NsqdHTTP | None = None

    @property
    def tcp_address(self) -> str:
        """``host:port`` of the TCP protocol; known once started."""
        return f"{self._host}:{self._ports[0]}"

    @property
    def http_address(self) -> str:
        """``host:port`` of the HTTP API; known once started."""
        return f"{self._host}:{self._ports[1]}"

    @property
    def commands(self) -> list[ReceivedCommand]:
        """The commands that clients sent, oldest first (the last 10,000)."""
        return self.faults.commands

    def wake(self) -> None:
        """Make all connections look again at what hangs."""
        self._sessions.wake()

    def start(self) -> None:
        """Listen on both ports, after a restart on the same ones. Raises OSError."""
        listener = Acceptor(
            "devserver-nsqd", self._host, self._ports[0], self._sessions.serve,
            has_threads=False)
        listener.listen()
        http = NsqdHTTP(self.number, self._engine, self._host, self._ports[1], listener.port)
        try:
            http.start()
        except OSError:
            listener.stop()
            raise
        self._ports = (listener.port, http.port)
        listener.start()
        self._listener, self._http = listener, http

    def stop(self, deadline: Deadline | None = None) -> None:
        """Close both ports and all connections, without a frame. Idempotent."""
        listener, self._listener = self._listener, None
        http, self._http = self._http, None
        if listener is not None:
            listener.stop(deadline)
            self._sessions.end(deadline)
        if http is not None:
            http.stop(deadline)

    def producer(self) -> dict[str, object]:
        tcp_port, http_port = self._ports
        return {
            "id": self.tcp_address, "remote_address": self.tcp_address,
            "hostname": socket.gethostname(), "broadcast_address": self._host,
            "tcp_port": tcp_port, "http_port": http_port, "version": PARTITIONED_VERSION,
            "distributed_id": f"{self._host}:{tcp_port}:{self.number}",
        }
