"""The embedded nsqlookupd: a registry with a TCP side for nsqd and an HTTP side for users."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.nsqlookupd_http import NsqlookupdHTTPServer
from nsqclient.devserver.registry import Peer, Registry
from nsqclient.devserver.release import NSQ_VERSION
from nsqclient.protocol.lookupd import (
    Identity,
    LookupdServerCore,
    Pinged,
    Registered,
    ServerEvent,
)
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.devserver")

_RECV_SIZE = 64 * 1024
# Nobody can connect to these; a name has to stand in for them.
_ANY_HOST = ("", "0.0.0.0", "::")  # nosec B104 # compared with, never bound to


class Nsqlookupd:
    """A nsqlookupd in this process, for tests and first steps.

    Life: created, :meth:`start`, :meth:`stop`; or a ``with`` block. Keeps nothing on disk, as
    the real one.

    Args:
        host: where both ports listen.
        tcp_port: for nsqd; 0 takes a free one.
        http_port: for clients and users; 0 takes a free one.
        broadcast_address: what nsqd is told to use for HTTP questions; None for
            ``host``, or the host's name when that is 0.0.0.0.
        inactive_producer_timeout: seconds without PING after which a producer is hidden.
        tombstone_lifetime: seconds that a tombstone hides a producer from /lookup.
        http_host: where the HTTP port listens, if not on ``host``.
        clock: seconds since the epoch; tests that look at timeouts bring their own.
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
        clock: Callable[[], float] = time.time,
    ) -> None:
        if broadcast_address is None:
            broadcast_address = socket.gethostname() if host in _ANY_HOST else host
        self._broadcast_address = broadcast_address
        self._clock = clock
        self._lock = threading.Lock()  # guards the registry and its peers
        self._registry = Registry(inactive_producer_timeout, tombstone_lifetime)
        self._acceptor = Acceptor("lookupd-tcp", host, tcp_port, self._serve)
        self._http = NsqlookupdHTTPServer(
            self._registry, self._lock, clock, host if http_host is None else http_host, http_port
        )

    @property
    def tcp_address(self) -> str:
        """``host:port`` for ``nsqd --lookupd-tcp-address``."""
        return self._acceptor.address

    @property
    def http_address(self) -> str:
        """``host:port`` for ``lookupd_http_addresses`` of a consumer."""
        return self._http.address

    def start(self) -> None:
        """Listen on both ports and serve.

        Raises:
            OSError: a port is taken or not allowed; the other one is free again.
        """
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
        """Close both ports and all connections; any thread, any number of times.

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
            version=NSQ_VERSION,
        )

    def _serve(self, sock: socket.socket, address: str) -> None:
        """Hold the dialogue with one nsqd."""
        logger.info("TCP: new client(%s)", address)
        core = LookupdServerCore(self._identity())
        peer: Peer | None = None
        try:
            while not core.is_closed:
                data = sock.recv(_RECV_SIZE)
                if data:
                    core.receive_data(data)
                else:
                    core.receive_eof()
                # The registry first: who has read the OK must find itself in /lookup.
                for event in core.take_events():
                    peer = self._apply(event, peer, address)
                sock.sendall(core.data_to_send())
        finally:
            if peer is not None:
                with self._lock:
                    self._registry.drop(peer)
            logger.info("TCP: client(%s) is gone", address)

    def _apply(self, event: ServerEvent, peer: Peer | None, address: str) -> Peer | None:
        """Bring one event into the registry; return the connection's peer."""
        with self._lock:
            now = self._clock()
            if isinstance(event, Identity):
                peer = Peer(address, event, now)
                self._registry.identify(peer)
            elif peer is None:
                pass  # a PING before IDENTIFY
            elif isinstance(event, Pinged):
                peer.last_update = now
            elif isinstance(event, Registered):
                self._registry.register(peer, event.topic, event.channel)
            else:
                self._registry.unregister(peer, event.topic, event.channel)
        logger.debug("DB: client(%s) %s", address, event)
        return peer
