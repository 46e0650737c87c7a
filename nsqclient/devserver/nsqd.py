"""The embedded nsqd: a broker behind a TCP port and an HTTP port, in this process."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.broker import Broker, Notice
from nsqclient.devserver.catalog import remember, restore
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults, ReceivedCommand
from nsqclient.devserver.front import QueueFront
from nsqclient.devserver.lookupd_peer import PING_INTERVAL
from nsqclient.devserver.lookupd_peers import LookupdPeers
from nsqclient.devserver.log_level import LogLevel
from nsqclient.devserver.nsqd_http import NsqdHTTPServer
from nsqclient.devserver.options import NsqdOptions, default_node_id
from nsqclient.devserver.persistence import DataPath
from nsqclient.devserver.session import Session, SessionRules
from nsqclient.protocol.lookupd import Identity
from nsqclient.protocol.names import is_ephemeral
from nsqclient.protocol.server_identify import NSQD_VERSION
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.devserver")

_ANY_HOST = ("", "0.0.0.0", "::")  # nosec B104 # compared with, never bound to


class Nsqd(QueueFront):
    """An nsqd in this process, for tests and first steps.

    Life: created, :meth:`start`, :meth:`stop`; or a ``with`` block. To restart, make another
    one with the same ports and data path.

    Args:
        host: where both ports listen.
        tcp_port, http_port: 0 takes a free one.
        data_path: an existing directory, for one nsqd at a time. With it messages beyond
            ``mem_queue_size``, and all messages at ``stop()``, are kept there. Without it they
            live and die in memory.
        lookupd_tcp_addresses: nsqlookupds to register with, ``host:port``.
        lookupd_ping_interval: seconds between two PINGs to each; nsqd's is fixed.
        http_host: where the HTTP port listens, if not on ``host``.
        broadcast_address: what nsqlookupd tells clients to dial; None for ``host``.
        scan_lag: timeouts and deferrals are looked at every so many seconds, late as in nsqd
            and never early; 0 means at once.
        log_level: debug, info, warn, error or fatal, for the logger ``nsqclient.devserver`` until
            ``stop()``, as ``PUT /config/log_level`` sets it; None leaves it to you.

    The other arguments are nsqd's flags, with nsqd's defaults; durations in seconds.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        tcp_port: int = 0,
        http_port: int = 0,
        *,
        data_path: str | None = None,
        lookupd_tcp_addresses: Sequence[str] = (),
        lookupd_ping_interval: float = PING_INTERVAL,
        http_host: str | None = None,
        broadcast_address: str | None = None,
        node_id: int | None = None,
        mem_queue_size: int = 10_000,
        max_msg_size: int = 1024 * 1024,
        max_body_size: int = 5 * 1024 * 1024,
        msg_timeout: float = 60.0,
        max_msg_timeout: float = 900.0,
        max_req_timeout: float = 3600.0,
        client_timeout: float = 60.0,
        max_heartbeat_interval: float = 60.0,
        max_rdy_count: int = 2500,
        max_output_buffer_size: int = 64 * 1024,
        max_output_buffer_timeout: float = 30.0,
        min_output_buffer_timeout: float = 0.025,
        output_buffer_timeout: float = 0.25,
        max_channel_consumers: int = 0,
        deflate: bool = True,
        max_deflate_level: int = 6,
        snappy: bool = True,
        tls_cert: str = "",
        tls_key: str = "",
        tls_key_password: str = "",
        tls_root_ca_file: str = "",
        tls_client_auth_policy: str = "",
        tls_required: bool | str = False,
        tls_min_version: str = "tls1.0",
        auth_http_addresses: Sequence[str] = (),
        scan_lag: float = 0.0,
        log_level: str | None = None,
    ) -> None:
        if broadcast_address is None:
            broadcast_address = socket.gethostname() if host in _ANY_HOST else host
        self._options = NsqdOptions(
            node_id=default_node_id() if node_id is None else node_id,
            broadcast_address=broadcast_address,
            data_path=data_path,
            mem_queue_size=mem_queue_size,
            max_msg_size=max_msg_size,
            max_body_size=max_body_size,
            msg_timeout=msg_timeout,
            max_msg_timeout=max_msg_timeout,
            max_req_timeout=max_req_timeout,
            client_timeout=client_timeout,
            max_heartbeat_interval=max_heartbeat_interval,
            max_rdy_count=max_rdy_count,
            max_output_buffer_size=max_output_buffer_size,
            max_output_buffer_timeout=max_output_buffer_timeout,
            min_output_buffer_timeout=min_output_buffer_timeout,
            output_buffer_timeout=output_buffer_timeout,
            max_channel_consumers=max_channel_consumers,
            deflate=deflate,
            max_deflate_level=max_deflate_level,
            snappy=snappy,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_key_password=tls_key_password,
            tls_root_ca_file=tls_root_ca_file,
            tls_client_auth_policy=tls_client_auth_policy,
            tls_required=tls_required,
            tls_min_version=tls_min_version,
            auth_http_addresses=tuple(auth_http_addresses),
            scan_lag=scan_lag,
        )
        #: Of the embedded servers' log.
        self.log_level = LogLevel(log_level)
        self._rules: SessionRules | None = None  # set by start()
        self._data: DataPath | None = None
        self._broker = Broker(
            self._options.queue_limits(),
            node_id=self._options.node_id,
            open_backend=None if data_path is None else self._open_spool,
        )
        super().__init__(Engine(self._broker, scan_lag))
        #: Test controls, see :class:`~nsqclient.devserver.faults.Faults`.
        self.faults = Faults(self._wake_clients, self._drop_clients)
        self._host = host
        self._acceptor = Acceptor("devserver-nsqd", host, tcp_port, self._serve)
        self._http = NsqdHTTPServer(self, host if http_host is None else http_host, http_port)
        self._peers = LookupdPeers(
            lookupd_tcp_addresses,
            self._identity,
            self.registrations,
            ping_interval=lookupd_ping_interval,
        )
        self._start_time = time.time()
        self._next_number = 0  # guarded by the engine
        self._saving = threading.Lock()  # taken before the engine's lock, never inside
        self._stopping = threading.Lock()
        self._is_stopped = False  # guarded by _stopping
        self._is_loaded = False  # set by start(), before there are other threads

    # -- what it is

    @property
    def tcp_address(self) -> str:
        """``host:port`` of the TCP protocol; known once started."""
        return self._acceptor.address

    @property
    def http_address(self) -> str:
        """``host:port`` of the HTTP API; known once started."""
        return self._http.address

    @property
    def start_time(self) -> float:
        """When it was made, in seconds since the epoch."""
        return self._start_time

    @property
    def options(self) -> NsqdOptions:
        """What it was started with."""
        return self._options

    @property
    def commands(self) -> list[ReceivedCommand]:
        """The commands that clients sent, oldest first (the last 10,000)."""
        return self.faults.commands

    @property
    def lookupd_tcp_addresses(self) -> list[str]:
        """The nsqlookupds it registers with."""
        return self._peers.addresses

    def set_lookupd_tcp_addresses(self, addresses: Sequence[str]) -> None:
        """Go on with these nsqlookupds. Blocks while those that are new are dialed."""
        self._peers.set_addresses(addresses)

    def health(self) -> str:
        """Return ``OK``, or ``NOK - reason`` while messages cannot be written to the disk."""
        error = None if self._data is None else self._data.write_error
        return "OK" if error is None else f"NOK - {error.strerror}"

    def info(self) -> dict[str, Any]:
        """Return what ``/info`` says; durations in nanoseconds."""
        options = self._options
        return {
            "version": NSQD_VERSION,
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": self._http.port,
            "tcp_port": self._acceptor.port,
            "start_time": int(self._start_time),
            "max_heartbeat_interval": round(options.max_heartbeat_interval * 1e9),
            "max_output_buffer_size": options.max_output_buffer_size,
            "max_output_buffer_timeout": round(options.max_output_buffer_timeout * 1e9),
            "max_deflate_level": options.max_deflate_level,
        }

    # -- life

    def start(self) -> None:
        """Load what the data path holds, listen on both ports, register, serve.

        Raises:
            OSError: a port is taken, or the data path is missing, locked or damaged; nothing
                is left open.
            ConfigError, TLSError: TLS cannot be offered as asked for.
        """
        options = self._options
        try:
            self.log_level.start()
            self._rules = SessionRules(
                options.server_limits(), options.tls_context(), options.auth_http_addresses
            )
            if self._options.data_path is not None:
                self._data = DataPath(self._options.data_path)
                with self._engine as broker:
                    restore(broker, self._data.load(), self._engine.now)
            self._is_loaded = True
            self._engine.start()
            self.add_observer(self)
            self._acceptor.listen()
            # Before the registration, which tells its port.
            self._http.start()
            self._peers.start()
            self._acceptor.start()
        except BaseException:
            self.stop()
            raise
        logger.info("TCP: listening on %s", self.tcp_address)
        logger.info("HTTP: listening on %s", self.http_address)

    def stop(self, timeout: float | None = None) -> None:
        """Close both ports and all connections; keep the messages when there is a data path.

        Any thread, any number of times.

        Blocks: until all threads have ended, or ``timeout`` seconds.
        """
        self._end(timeout, keep=True)

    def kill(self) -> None:
        """End as SIGKILL would end nsqd: messages in memory are lost, those on disk are not."""
        self._end(None, keep=False)

    def __enter__(self) -> Nsqd:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _end(self, timeout: float | None, keep: bool) -> None:
        deadline = Deadline(timeout)
        with self._stopping:
            if self._is_stopped:
                return
            self._is_stopped = True
        self.log_level.restore()
        # 1. Nothing is stored any more, and what is left on the wire is refused.
        with self._engine as broker:
            broker.is_exiting = True
        # 2. No new clients; those that are there lose their connection without a frame.
        self._acceptor.stop(deadline)
        self._http.stop(deadline)
        # 3. Gone from nsqlookupd.
        self._peers.stop(deadline)
        # 4. No deadline fires while the queues are written away.
        self._engine.stop(deadline)
        if self._data is None:
            return
        # What could not be read must not be overwritten.
        keep = keep and self._is_loaded
        if keep:
            self._save()
        with self._engine as broker:
            broker.close(keep)
        self._data.close()

    # -- clients

    def _serve(self, sock: socket.socket, address: str) -> None:
        logger.info("TCP: new client(%s)", address)
        assert self._rules is not None
        with self._engine:
            self._next_number += 1
            number = self._next_number
            session = self._sessions[number] = Session(
                self._engine, self.faults, self._rules, sock, address, number, self._prepare
            )
        try:
            session.run()
        finally:
            with self._engine:
                del self._sessions[number]
            logger.info("TCP: client(%s) is gone", address)

    def _wake_clients(self) -> None:
        with self._engine:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.wake()

    def _drop_clients(self, client_id: str | None, reset: bool) -> int:
        with self._engine:
            sessions = [
                session
                for session in self._sessions.values()
                if client_id in (None, session.core.settings.client_id, session.address)
            ]
        return sum([session.drop(reset) for session in sessions])

    # -- nsqlookupd

    def _identity(self) -> Identity:
        return Identity(
            broadcast_address=self._options.broadcast_address,
            hostname=socket.gethostname(),
            http_port=self._http.port,
            tcp_port=self._acceptor.port,
            version=NSQD_VERSION,
        )

    def _prepare(self, topic: str) -> None:
        """Make a new topic with the channels that other nsqds have for it."""
        if not self._peers.addresses or self.has_topic(topic):
            return
        channels = self._peers.channels_of(topic)
        with self._engine as broker:
            if not broker.is_exiting and topic not in broker.topics:
                broker.prepare_topic(topic, channels, self._engine.now)

    def changed(self, notice: Notice) -> None:
        """Pass on that a topic or channel came or went. Called by the engine."""
        self._peers.notify(*notice)
        if not is_ephemeral(notice.topic if notice.channel is None else notice.channel):
            self._save()

    # -- the data path

    def _open_spool(self, topic: str, channel: str | None) -> Any:
        if self._data is None:
            raise RuntimeError("the data path is open from start() to stop()")
        return self._data.open_spool(topic, channel)

    def _save(self) -> None:
        """Write down which topics and channels there are, and which are paused."""
        if self._data is None:
            return
        with self._saving:
            with self._engine as broker:
                topics = remember(broker)
            try:
                self._data.save(topics)
            except OSError as exc:
                logger.error("failed to persist metadata - %s", exc)

    def _paused(self) -> None:
        self._save()
