"""The embedded nsqlookupd: a registry with a TCP side for nsqd and an HTTP API."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import Any, BinaryIO

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.http_server import TEXT, HTTPError, HTTPServer, Request, Response
from nsqclient.devserver.options import ANY_HOST
from nsqclient.devserver.protocol.commands import NSQD_VERSION, CommandError
from nsqclient.devserver.protocol.lookupd import (
    MAGIC_V1, Identity, read_command, read_identity, sized, topic_and_channel,
)
from nsqclient.devserver.protocol.lookupd import PeerInfo, Registry
from nsqclient.display import printable
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.deadline import Deadline

logger: logging.Logger = logging.getLogger("nsqclient.devserver")


class Nsqlookupd:
    """An nsqlookupd in this process, for tests and first steps.

    Lifecycle: created, :meth:`start`, :meth:`stop`; or a ``with`` block. Keeps nothing on disk, as
    the real one.

    Args:
        tcp_port: for nsqd; 0 takes a free one.
        http_port: for clients and users; 0 takes a free one.
        broadcast_address: the address that nsqd uses for HTTP requests; None for ``host``, or
            the host's name when that is 0.0.0.0.
        inactive_producer_timeout: seconds without PING after which a producer is hidden.
        tombstone_lifetime: seconds that a tombstone hides a producer from /lookup.
        http_host: the host of the HTTP port, if not ``host``.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        tcp_port: int = 0,
        http_port: int = 0,
        *,
        broadcast_address: str | None = None,
        inactive_producer_timeout: float = 300.0,
        tombstone_lifetime: float = 45.0,
        http_host: str | None = None,
    ) -> None:
        if broadcast_address is None:
            broadcast_address = socket.gethostname() if host in ANY_HOST else host
        self._broadcast_address = broadcast_address
        self._lock = threading.Lock()  # guards the registry and its peers
        self._registry = Registry(inactive_producer_timeout, tombstone_lifetime)
        self._acceptor = Acceptor("lookupd-tcp", host, tcp_port, self._serve)
        self._http = HTTPServer(
            "lookupd-http", host if http_host is None else http_host, http_port, [
                ("GET", "/ping", lambda request: Response(200, b"OK", TEXT)),
                ("GET", "/info", lambda request: {"version": NSQD_VERSION}),
                ("GET", "/lookup", self._lookup),
                ("GET", "/topics", self._topics),
                ("GET", "/channels", self._channels),
                ("GET", "/nodes", self._nodes),
                ("POST", "/topic/create", self._create_topic),
                ("POST", "/topic/delete", self._delete_topic),
                ("POST", "/topic/tombstone", self._tombstone),
                ("POST", "/channel/create", self._create_channel),
                ("POST", "/channel/delete", self._delete_channel),
            ])

    @property
    def tcp_address(self) -> str:
        """``host:port`` for ``nsqd --lookupd-tcp-address``."""
        return self._acceptor.address

    @property
    def http_address(self) -> str:
        """``host:port`` for ``lookupd_http_addresses`` of a consumer."""
        return self._http.address

    def start(self) -> None:
        """Listen on both ports and serve. Raises OSError."""
        self._acceptor.listen()
        try:
            self._http.start()
        except OSError:
            self._acceptor.stop()
            raise
        self._acceptor.start()
        logger.info("TCP: listening on %s", self.tcp_address)
        logger.info("HTTP: listening on %s", self.http_address)

    def stop(self, timeout: float | None = None) -> None:
        """Close both ports and all connections. Idempotent. Any thread.

        Blocks: until all threads have ended, or ``timeout`` seconds.
        """
        deadline = Deadline(timeout)
        self._acceptor.stop(deadline)
        self._http.stop(deadline)

    def __enter__(self) -> Nsqlookupd:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def drop_producers(self) -> None:
        """Cut the connection of every nsqd now; each is unregistered until it comes back."""
        self._acceptor.drop_clients()

    def _identity(self) -> Identity:
        return Identity(
            broadcast_address=self._broadcast_address,
            hostname=socket.gethostname(),
            http_port=self._http.port,
            tcp_port=self._acceptor.port,
            version=NSQD_VERSION,
        )

    def _serve(self, sock: socket.socket, address: str) -> None:
        logger.info("TCP: new client(%s)", address)
        peers: list[PeerInfo] = []  # one at most, after IDENTIFY
        try:
            with sock.makefile("rb") as stream:
                self._serve_commands(sock, stream, address, peers)
        except CommandError as error:
            text = b" " + error.text if error.text else b""
            sock.sendall(sized(error.code.encode() + text))
        finally:
            with self._lock:
                for peer in peers:
                    self._registry.drop(peer)
            logger.info("TCP: client(%s) is gone", address)

    def _serve_commands(
        self, sock: socket.socket, stream: BinaryIO, address: str, peers: list[PeerInfo]
    ) -> None:
        magic = stream.read(len(MAGIC_V1))
        if len(magic) == len(MAGIC_V1) and magic != MAGIC_V1:
            raise CommandError("E_BAD_PROTOCOL")
        while (words := read_command(stream)) is not None:
            command, *params = words
            answer = b"OK"
            if command == "IDENTIFY":
                if peers:
                    raise CommandError("E_INVALID", "cannot IDENTIFY again")
                peers.append(PeerInfo(address, read_identity(stream), time.time()))
                with self._lock:
                    self._registry.identify(peers[0])
                answer = self._identity().to_json()
            elif command == "PING":
                for peer in peers:
                    peer.last_update = time.time()
            elif command in ("REGISTER", "UNREGISTER"):
                if not peers:
                    raise CommandError("E_INVALID", "client must IDENTIFY")
                topic, channel = topic_and_channel(command, params)
                with self._lock:
                    change = (self._registry.register if command == "REGISTER"
                              else self._registry.unregister)
                    change(peers[0], topic, channel)
            else:
                raise CommandError("E_INVALID", f"invalid command {command}")
            logger.debug("DB: client(%s) %s", address, printable(" ".join(words)))
            # The registry first: an nsqd that has read OK must be found in /lookup.
            sock.sendall(sized(answer))

    def _topics(self, _request: Request) -> object:
        with self._lock:
            return {"topics": self._registry.topics()}

    def _channels(self, request: Request) -> object:
        topic = request.require("topic")
        with self._lock:
            return {"channels": self._registry.channels(topic)}

    def _lookup(self, request: Request) -> object:
        topic = request.require("topic")
        with self._lock:
            found = self._registry.lookup(topic, time.time())
        if found is None:
            raise HTTPError(404, "TOPIC_NOT_FOUND")
        channels, producers = found
        return {"channels": channels, "producers": [_producer(peer) for peer in producers]}

    def _nodes(self, _request: Request) -> object:
        with self._lock:
            nodes = self._registry.nodes(time.time())
        producers = [
            _producer(peer) | {"tombstones": list(topics.values()), "topics": list(topics)}
            for peer, topics in nodes
        ]
        return {"producers": producers}

    def _create_topic(self, request: Request) -> None:
        topic = request.require("topic")
        if not is_valid_name(topic):
            raise HTTPError(400, "INVALID_ARG_TOPIC")
        with self._lock:
            self._registry.create(topic)

    def _delete_topic(self, request: Request) -> None:
        topic = request.require("topic")
        with self._lock:
            self._registry.delete_topic(topic)

    def _tombstone(self, request: Request) -> None:
        topic, node = request.require("topic"), request.require("node")
        with self._lock:
            self._registry.tombstone(topic, node, time.time())

    def _create_channel(self, request: Request) -> None:
        topic, channel = request.topic_and_channel()
        with self._lock:
            self._registry.create(topic, channel)

    def _delete_channel(self, request: Request) -> None:
        topic, channel = request.topic_and_channel()
        with self._lock:
            deleted = self._registry.delete_channel(topic, channel)
        if not deleted:
            raise HTTPError(404, "CHANNEL_NOT_FOUND")


def _producer(peer: PeerInfo) -> dict[str, Any]:
    identity = peer.identity
    return {
        "remote_address": peer.id,
        "hostname": identity.hostname,
        "broadcast_address": identity.broadcast_address,
        "tcp_port": identity.tcp_port,
        "http_port": identity.http_port,
        "version": identity.version,
    }
