"""One nsqd of an embedded cluster: a TCP port with the partitioned dialect, and an HTTP port."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import cast

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults, ReceivedCommand
from nsqclient.devserver.http_message import BodyError, Request, Response
from nsqclient.devserver.http_router import (
    Params,
    HTTPError,
    empty_answer,
    json_answer,
    plain_answer,
    read_params,
    read_query,
    text_answer,
)
from nsqclient.devserver.http_server import HTTPServer
from nsqclient.devserver.partitioned.dialogue import PartitionDialogue
from nsqclient.devserver.partitioned.queue import PartitionChannel
from nsqclient.devserver.partitioned.state import ClusterState, Refusal
from nsqclient.devserver.session import Session, SessionRules
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.partition_events import NewMessage
from nsqclient.protocol.partition_server import PARTITIONED_VERSION, PartitionServerProtocol
from nsqclient.protocol.server_identify import ServerLimits
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.digits import read_digits

#: Codes that the HTTP API answers with 404; the others are 400.
_NOT_FOUND = ("E_TOPIC_NOT_EXIST",)


class _PartitionSession(Session):
    """A client of one nsqd of the cluster."""

    nsqd = 0  # set by the subclass that each nsqd makes

    def _make_core(self, rules: SessionRules) -> PartitionServerProtocol:
        return PartitionServerProtocol(rules.limits)

    def _make_dialogue(self, faults: Faults) -> PartitionDialogue:
        core = cast(PartitionServerProtocol, self.core)
        return PartitionDialogue(core, faults, self.number, self.upgrades, self.nsqd)


class PartitionedNsqd:
    """One nsqd of a cluster; made and started by it. Ports stay the same after a restart.

    Threads: every method, any thread.
    """

    def __init__(
        self,
        number: int,
        engine: Engine[ClusterState],
        limits: ServerLimits,
        next_session: Callable[[], int],
        host: str,
        tcp_port: int,
        http_port: int,
    ) -> None:
        self.number = number
        self._engine = engine
        self._rules = SessionRules(limits, None, ())
        self._next_session = next_session
        self._host = host
        self._ports = (tcp_port, http_port)
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}  # guarded by _lock
        #: Test controls, see :class:`~nsqclient.devserver.faults.Faults`.
        self.faults = Faults(self._wake_clients, self._drop_clients)
        self._session_class = type("PartitionSession", (_PartitionSession,), {"nsqd": number})
        self._acceptor: Acceptor | None = None
        self._http: HTTPServer | None = None

    @property
    def tcp_address(self) -> str:
        """``host:port`` of the TCP protocol; known once started."""
        return f"{self._host}:{self._ports[0]}"

    @property
    def http_address(self) -> str:
        """``host:port`` of the HTTP API; known once started."""
        return f"{self._host}:{self._ports[1]}"

    @property
    def is_running(self) -> bool:
        """Whether it listens."""
        return self._acceptor is not None

    @property
    def commands(self) -> list[ReceivedCommand]:
        """The commands that clients sent, oldest first (the last 10,000)."""
        return self.faults.commands

    def start(self) -> None:
        """Listen on both ports, on those of before where it ran before.

        Raises:
            OSError: a port is taken.
        """
        acceptor = Acceptor("devserver-nsqd", self._host, self._ports[0], self._serve)
        acceptor.listen()
        http = _NsqdHTTP(self.number, self._engine, self._host, self._ports[1])
        try:
            http.start()
        except OSError:
            acceptor.stop()
            raise
        self._ports = (acceptor.port, http.port)
        acceptor.start()
        self._acceptor, self._http = acceptor, http

    def stop(self, deadline: Deadline | None = None) -> None:
        """Close both ports and all connections, without a word. Idempotent."""
        acceptor, self._acceptor = self._acceptor, None
        http, self._http = self._http, None
        if acceptor is not None:
            acceptor.stop(deadline)
        if http is not None:
            http.stop(deadline)

    def producer(self) -> dict[str, object]:
        """What nsqlookupd says of it."""
        tcp_port, http_port = self._ports
        return {
            "id": self.tcp_address, "remote_address": self.tcp_address,
            "hostname": socket.gethostname(), "broadcast_address": self._host,
            "tcp_port": tcp_port, "http_port": http_port, "version": PARTITIONED_VERSION,
            "distributed_id": f"{self._host}:{tcp_port}:{self.number}",
        }

    def _serve(self, sock: socket.socket, address: str) -> None:
        number = self._next_session()
        session = self._session_class(
            self._engine, self.faults, self._rules, sock, address, number, lambda topic: None
        )
        with self._lock:
            self._sessions[number] = session
        try:
            session.run()
        finally:
            with self._lock:
                del self._sessions[number]

    def _all_sessions(self) -> list[Session]:
        with self._lock:
            return list(self._sessions.values())

    def _wake_clients(self) -> None:
        for session in self._all_sessions():
            session.wake()

    def _drop_clients(self, client_id: str | None, reset: bool) -> int:
        return sum([
            session.drop(reset) for session in self._all_sessions()
            if client_id in (None, session.core.settings.client_id, session.address)
        ])


class _NsqdHTTP(HTTPServer):
    """What tests and operators need of an nsqd's HTTP API."""

    def __init__(
        self, nsqd: int, engine: Engine[ClusterState], host: str, port: int
    ) -> None:
        super().__init__("devserver-nsqd-http", host, port)
        self._nsqd = nsqd
        self._engine = engine
        for method, path, handler in (
            ("GET", "/ping", self._ping),
            ("GET", "/info", self._info),
            ("POST", "/pub", self._pub),
            ("POST", "/channel/create", self._create_channel),
            ("POST", "/channel/setorder", self._set_order),
            ("POST", "/channel/setoffset", self._set_offset),
        ):
            self.router.add(method, path, handler)

    def _ping(self, _request: Request, _part: str) -> Response:
        return plain_answer(200, "OK")

    def _info(self, _request: Request, _part: str) -> Response:
        return json_answer({"version": PARTITIONED_VERSION})

    def _pub(self, request: Request, _part: str) -> Response:
        params = read_query(request)
        topic, partition = params.require("topic"), _partition(params.get("partition"))
        try:
            body = request.body.read(ServerLimits().max_msg_size + 1)
        except BodyError:
            raise HTTPError(500, "INTERNAL_ERROR") from None
        if not body:
            raise HTTPError(406, "MSG_EMPTY")
        with self._engine as state:
            try:
                state.publish(self._nsqd, topic, partition, [NewMessage(body)], time.time_ns(),
                              self._engine.now)
            except Refusal as refusal:
                raise _http_error(refusal) from None
        return text_answer("OK")

    def _create_channel(self, request: Request, _part: str) -> Response:
        params = read_params(request)
        if not is_valid_name(params.require("channel")):
            raise HTTPError(400, "INVALID_ARG_CHANNEL")
        with self._engine as state:
            self._open_channel(state, params)
        return empty_answer()

    def _open_channel(self, state: ClusterState, params: Params) -> PartitionChannel:
        """The channel that a request names, made where it is not there yet."""
        try:
            topic, partition = state.find(
                self._nsqd, params.require("topic"), _partition(params.get("partition")))
            return state.open_channel(topic, partition, params.require("channel"))
        except Refusal as refusal:
            raise _http_error(refusal) from None

    def _set_order(self, request: Request, _part: str) -> Response:
        params = read_params(request)
        with self._engine as state:
            channel = self._open_channel(state, params)
            channel.is_ordered = params.require("order") == "true"
            channel.flow(self._engine.now)
        return empty_answer()

    def _set_offset(self, request: Request, _part: str) -> Response:
        """Body ``virtual_queue:<offset>``, ``timestamp:<seconds>``, or ``special:-1``: the end."""
        params = read_query(request)
        try:
            kind, _, text = request.body.read(100).decode("ascii", "replace").partition(":")
            value = int(text)
        except (BodyError, ValueError):
            raise HTTPError(400, "INVALID_OFFSET") from None
        with self._engine as state:
            channel = self._open_channel(state, params)
            if kind == "virtual_queue":
                channel.set_position(lambda message: message.offset < value, self._engine.now)
            elif kind == "timestamp":
                channel.set_position(
                    lambda message: message.timestamp < value * 10**9, self._engine.now)
            elif kind == "special" and value == -1:
                channel.set_position(lambda message: True, self._engine.now)
            else:
                raise HTTPError(400, "INVALID_OFFSET")
        return empty_answer()


def _partition(text: str | None) -> int | None:
    if text is None or text == "-1":
        return None
    number = read_digits(text, 19)  # an int64 of Go
    if number is None:
        raise HTTPError(400, "INVALID_ARG_PARTITION")
    return number


def _http_error(refusal: Refusal) -> HTTPError:
    return HTTPError(404 if refusal.code in _NOT_FOUND else 400, refusal.code)
