"""One nsqlookupd of an embedded cluster: its HTTP API and its faults."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from nsqclient.devserver.engine import Engine
from nsqclient.devserver.http_server import (
    JSON, TEXT, Handler, HTTPError, HTTPServer, Request, Response,
)
from nsqclient.devserver.partitioned.nsqd import PartitionedNsqd
from nsqclient.devserver.partitioned.state import ClusterState, Topic, TopicMeta
from nsqclient.devserver.protocol.commands import CommandError
from nsqclient.devserver.protocol.commands import encode_json
from nsqclient.devserver.protocol.partitioned import PARTITIONED_VERSION
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import parse_uint
from nsqclient.runtime.deadline import Deadline

#: The exact Accept header for responses without the wrapping of older servers.
_BARE = "application/vnd.nsq; version=1.0"
_NO_CHANNEL = "Topic has no channel, should init at least one for the new topic"


class LookupdMode(Enum):
    """How an nsqlookupd answers."""

    NORMAL = "normal"
    NO_COORDINATOR = "no coordinator"  #: empty /listlookup, no metadata
    NO_LIST = "no list"  #: 404 to /listlookup, as a stock one
    HANG = "hang"  #: no answer, until the mode changes or it stops


class PartitionedLookupd:
    """One nsqlookupd of a cluster, which creates and starts it. Threads: any."""

    def __init__(
        self,
        number: int,
        engine: Engine[ClusterState],
        nsqds: Sequence[PartitionedNsqd],
        leader: Callable[[], int],
        lookupds: Callable[[], Sequence[PartitionedLookupd]],
        host: str,
        http_port: int,
    ) -> None:
        self.number = number
        self._engine = engine
        self._nsqds = nsqds
        self._leader = leader
        self._lookupds = lookupds
        self._host = host
        self._port = http_port
        self._changed = threading.Condition()
        self._mode = LookupdMode.NORMAL  # guarded by _changed
        self._frozen: ClusterState | None = None  # guarded by the engine
        self._http: HTTPServer | None = None

    @property
    def http_address(self) -> str:
        """``host:port`` for ``lookupd_http_addresses``; known once started."""
        return f"{self._host}:{self._port}"

    @property
    def is_running(self) -> bool:
        return self._http is not None

    def start(self) -> None:
        http = HTTPServer("lookupd-http", self._host, self._port, [
            (method, path, self._with_mode(handler)) for method, path, handler in (
                ("GET", "/ping", lambda request: Response(200, b"OK", TEXT)),
                ("GET", "/info", lambda request: {
                    "version": PARTITIONED_VERSION, "ha_support": True}),
                ("GET", "/listlookup", self._list_lookup), ("GET", "/lookup", self._lookup),
                ("GET", "/nodes", self._nodes), ("GET", "/topics", self._topics),
                ("GET", "/channels", self._channels), ("POST", "/topic/create", self._create),
                ("POST", "/topic/delete", self._delete),
                ("POST", "/topic/tombstone", self._tombstone),
            )
        ])
        http.start()
        self._port = http.port
        self._http = http

    def stop(self, deadline: Deadline | None = None) -> None:
        """Close the port: from now on connections are refused. Idempotent."""
        http, self._http = self._http, None
        self.set_mode(LookupdMode.NORMAL)  # end requests that hang
        if http is not None:
            http.stop(deadline)

    def set_mode(self, mode: LookupdMode) -> None:
        with self._changed:
            self._mode = mode
            self._changed.notify_all()

    def freeze(self) -> None:
        """Keep answering with the present state, so that nsqlookupds disagree after a change."""
        with self._engine as state:
            # Without the messages: responses are about leaders only.
            self._frozen = ClusterState(needs_channel=state.needs_channel)
            self._frozen.dead = set(state.dead)
            self._frozen.is_write_disabled = state.is_write_disabled
            for name, topic in state.topics.items():
                partitions = {number: copy.copy(one) for number, one in topic.partitions.items()}
                self._frozen.topics[name] = Topic(
                    name, topic.meta, partitions, set(topic.tombstones))

    def thaw(self) -> None:
        """Undo ``freeze()``."""
        with self._engine:
            self._frozen = None

    def _with_mode(self, handler: Callable[[Request], Any]) -> Handler:
        def answer(request: Request) -> object:
            with self._changed:
                self._changed.wait_for(lambda: self._mode is not LookupdMode.HANG)
            is_bare = request.headers.get("accept", "") == _BARE
            try:
                data = handler(request)
            except HTTPError as exc:
                if is_bare:
                    raise
                wrapped = {"status_code": 500, "status_txt": exc.code, "data": None}
                return Response(500, encode_json(wrapped), JSON)
            if is_bare or isinstance(data, Response):
                return data
            wrapped = {"status_code": 200, "status_txt": "OK", "data": data}
            return Response(200, encode_json(wrapped), JSON)

        return answer

    def _list_lookup(self, _request: Request) -> object:
        if self._mode is LookupdMode.NO_LIST:
            raise HTTPError(404, "NOT_FOUND")
        if self._mode is LookupdMode.NO_COORDINATOR:
            return None
        lookupds = self._lookupds()
        leader = self._leader()
        return {
            "lookupdleader": lookupds[leader].node(),
            "lookupdnodes": [lookupd.node() for lookupd in lookupds if lookupd.is_running],
        }

    def node(self) -> dict[str, object]:
        port = str(self._port)
        return {
            "ID": f"{self._host}:{port}:nsqlookup", "NodeIP": self._host, "TcpPort": "0",
            "HttpPort": port, "RpcPort": "0", "Epoch": 0,
        }

    def _lookup(self, request: Request) -> object:
        name = request.require("topic")
        access = request.get("access", "r")
        if access not in ("r", "w"):
            raise HTTPError(400, "INVALID_ACCESS_MODE")
        wants_meta = bool(request.get("metainfo"))
        only = request.get("partition")
        with self._engine as state:
            state = self._frozen or state
            topic = state.topics.get(name)
            if topic is None:
                return self._unknown(access, wants_meta)
            listed = state.listed(topic, access)
            if not listed and listed is not None and access == "w" and state.lacks_channels(topic):
                raise HTTPError(404, _NO_CHANNEL)
            channels, meta = state.channels_of(topic), topic.meta
        answer: dict[str, Any] = {"channels": channels}
        if wants_meta and self._mode is not LookupdMode.NO_COORDINATOR:
            answer["meta"] = _meta(meta)
        if listed is None:
            return answer | {"partitions": None, "producers": None}
        if only:
            listed = {number: nsqd for number, nsqd in listed.items() if str(number) == only}
        return answer | {
            "partitions": {str(number): self._nsqds[nsqd].producer()
                           for number, nsqd in sorted(listed.items())},
            "producers": [self._nsqds[nsqd].producer() for nsqd in sorted(set(listed.values()))],
        }

    def _unknown(self, access: str, wants_meta: bool) -> Any:
        has_coordinator = self._mode is not LookupdMode.NO_COORDINATOR
        if access == "w" and has_coordinator:
            raise HTTPError(404, "Key not found")
        answer: dict[str, Any] = {"channels": [], "partitions": {}, "producers": []}
        if wants_meta and has_coordinator:
            answer["meta"] = _meta(TopicMeta())
        return answer

    def _nodes(self, _request: Request) -> object:
        producers = []
        with self._engine as state:
            for nsqd in self._nsqds:
                if nsqd.number in state.dead:
                    continue
                led = {
                    topic.name: [str(number) for number, partition in topic.partitions.items()
                                 if partition.listed_r == nsqd.number]
                    for topic in state.topics.values()
                }
                led = {name: numbers for name, numbers in led.items() if numbers}
                producers.append(nsqd.producer() | {
                    "tombstones": [nsqd.number in state.topics[name].tombstones for name in led],
                    "topics": list(led), "partitions": led,
                })
        return {"producers": producers}

    def _topics(self, _request: Request) -> object:
        with self._engine as state:
            return {"topics": sorted(state.topics)}

    def _channels(self, request: Request) -> object:
        name = request.require("topic")
        with self._engine as state:
            topic = state.topics.get(name)
            return {"channels": [] if topic is None else state.channels_of(topic)}

    def _create(self, request: Request) -> None:
        name = request.require("topic")
        if not is_valid_name(name):
            raise HTTPError(400, "INVALID_ARG_TOPIC")
        if self._leader() != self.number:
            raise HTTPError(400, "E_FAILED_ON_NOT_LEADER")
        numbers = []
        for arg, code, most in (
            ("partition_num", "PARTITION_NUM", 255), ("replicator", "REPLICATOR", 5),
        ):
            if arg not in request.params:
                raise HTTPError(400, f"MISSING_ARG_TOPIC_{code}")
            number = parse_uint(request.get(arg), 19)  # an int64 of Go
            if number is None or not 1 <= number <= most:
                raise HTTPError(400, f"INVALID_ARG_TOPIC_{code}")
            numbers.append(number)
        has_many = "true" in (request.get("multipart"), request.get("orderedmulti"))
        if numbers[0] * numbers[1] > len(self._nsqds) and not has_many:
            raise HTTPError(400, "not enough nsqds: give multipart=true or orderedmulti=true")
        meta = TopicMeta(
            numbers[0], numbers[1], ordered=request.get("orderedmulti") == "true",
            extended=request.get("extend") == "true",
            multi_part=request.get("multipart") == "true",
            channels_are_registered=request.get("disable_channel_auto_create") == "true",
        )
        with self._engine as state:
            state.create_topic(name, meta, len(self._nsqds), ())

    def _delete(self, request: Request) -> None:
        name = request.require("topic")
        with self._engine as state:
            try:
                state.delete_topic(name, self._engine.now)
            except CommandError:
                raise HTTPError(404, "Key not found") from None

    def _tombstone(self, request: Request) -> None:
        name, node = request.require("topic"), request.require("node")
        numbers = [nsqd.number for nsqd in self._nsqds if nsqd.http_address == node]
        with self._engine as state:
            topic = state.topics.get(name)
            if topic is not None:
                if request.get("restore") == "true":
                    topic.tombstones.difference_update(numbers)
                else:
                    topic.tombstones.update(numbers)


def _meta(meta: TopicMeta) -> dict[str, object]:
    return {
        "disable_channel_auto_create": meta.channels_are_registered,
        "extend_support": meta.extended, "multi_part": meta.multi_part,
        "ordered": meta.ordered, "partition_num": meta.partition_num, "replica": meta.replica,
    }
