"""nsqlookupd's HTTP API."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from nsqclient.devserver.http_message import Request, Response
from nsqclient.devserver.http_router import (
    HTTPError,
    empty_answer,
    json_answer,
    plain_answer,
    read_params,
)
from nsqclient.devserver.http_server import HTTPServer
from nsqclient.devserver.registry import Peer, Registry
from nsqclient.devserver.release import NSQ_VERSION
from nsqclient.protocol.names import is_valid_name

#: What Go prints for a time that was never set, in ns.
_NEVER = -6795364578871345152


class NsqlookupdHTTPServer(HTTPServer):
    """Questions about, and changes to, a registry.

    Args:
        registry: what it speaks about.
        lock: guards the registry.
        clock: seconds since the epoch.
        host, port: where it listens.
    """

    def __init__(
        self,
        registry: Registry,
        lock: threading.Lock,
        clock: Callable[[], float],
        host: str,
        port: int,
    ) -> None:
        super().__init__("lookupd-http", host, port)
        self._registry = registry
        self._lock = lock
        self._clock = clock
        for method, path, handler in (
            ("GET", "/ping", self._ping),
            ("GET", "/info", self._info),
            ("GET", "/debug", self._debug),
            ("GET", "/lookup", self._lookup),
            ("GET", "/topics", self._topics),
            ("GET", "/channels", self._channels),
            ("GET", "/nodes", self._nodes),
            ("POST", "/topic/create", self._create_topic),
            ("POST", "/topic/delete", self._delete_topic),
            ("POST", "/topic/tombstone", self._tombstone),
            ("POST", "/channel/create", self._create_channel),
            ("POST", "/channel/delete", self._delete_channel),
        ):
            self.router.add(method, path, handler)

    def _ping(self, _request: Request, _part: str) -> Response:
        return plain_answer(200, "OK")

    def _info(self, _request: Request, _part: str) -> Response:
        return json_answer({"version": NSQ_VERSION})

    def _topics(self, _request: Request, _part: str) -> Response:
        with self._lock:
            return json_answer({"topics": self._registry.topics()})

    def _channels(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        with self._lock:
            return json_answer({"channels": self._registry.channels(topic)})

    def _lookup(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        with self._lock:
            found = self._registry.lookup(topic, self._clock())
        if found is None:
            raise HTTPError(404, "TOPIC_NOT_FOUND")
        producers = [_producer(peer) for peer in found.producers]
        return json_answer({"channels": found.channels, "producers": producers})

    def _nodes(self, _request: Request, _part: str) -> Response:
        with self._lock:
            nodes = self._registry.nodes(self._clock())
        producers = [
            _producer(node.peer) | {"tombstones": node.tombstones, "topics": node.topics}
            for node in nodes
        ]
        return json_answer({"producers": producers})

    def _debug(self, _request: Request, _part: str) -> Response:
        answer: dict[str, list[dict[str, Any]]] = {}
        with self._lock:
            for key, entries in sorted(self._registry.entries(), key=lambda item: item[0]):
                for entry in entries:
                    facts = _debug_facts(entry.peer)
                    at = entry.tombstoned_at
                    facts["tombstoned"] = at is not None
                    facts["tombstoned_at"] = _NEVER if at is None else int(at * 1e9)
                    answer.setdefault(":".join(key), []).append(dict(sorted(facts.items())))
        return json_answer(answer)

    def _create_topic(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        if not is_valid_name(topic):
            raise HTTPError(400, "INVALID_ARG_TOPIC")
        with self._lock:
            self._registry.create(topic)
        return empty_answer()

    def _delete_topic(self, request: Request, _part: str) -> Response:
        topic = read_params(request).require("topic")
        with self._lock:
            self._registry.delete_topic(topic)
        return empty_answer()

    def _tombstone(self, request: Request, _part: str) -> Response:
        params = read_params(request)
        topic, node = params.require("topic"), params.require("node")
        with self._lock:
            self._registry.tombstone(topic, node, self._clock())
        return empty_answer()

    def _create_channel(self, request: Request, _part: str) -> Response:
        topic, channel = read_params(request).topic_and_channel()
        with self._lock:
            self._registry.create(topic, channel)
        return empty_answer()

    def _delete_channel(self, request: Request, _part: str) -> Response:
        topic, channel = read_params(request).topic_and_channel()
        with self._lock:
            deleted = self._registry.delete_channel(topic, channel)
        if not deleted:
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        return empty_answer()


def _producer(peer: Peer) -> dict[str, Any]:
    """A producer as /lookup and /nodes show it; keys in the order of the real one."""
    identity = peer.identity
    return {
        "remote_address": peer.id,
        "hostname": identity.hostname,
        "broadcast_address": identity.broadcast_address,
        "tcp_port": identity.tcp_port,
        "http_port": identity.http_port,
        "version": identity.version,
    }


def _debug_facts(peer: Peer) -> dict[str, Any]:
    facts = _producer(peer)
    facts["id"] = facts.pop("remote_address")
    facts["last_update"] = int(peer.last_update * 1e9)
    return facts
