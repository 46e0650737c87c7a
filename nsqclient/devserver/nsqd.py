"""The embedded nsqd: a broker behind a TCP port and an HTTP port, in this process."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.devserver.broker import Broker, TopicChange
from nsqclient.devserver.broker_facade import BrokerFacade
from nsqclient.devserver.command_handler import CommandHandler
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults, ReceivedCommand
from nsqclient.devserver.latency import LatencyWindow
from nsqclient.devserver.listener import Listener
from nsqclient.devserver.lookupd_peers import PING_INTERVAL, LookupdPeers
from nsqclient.devserver.nsqd_http import NsqdHTTPServer
from nsqclient.devserver.options import LogLevel, NsqdOptions, TLSPolicy, default_node_id
from nsqclient.devserver.persistence import DataPath
from nsqclient.devserver.protocol.commands import NSQD_VERSION, python_version
from nsqclient.devserver.protocol.lookupd import Identity
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.devserver.session import SessionConfig
from nsqclient.devserver.session_loop import SessionLoop, Sessions
from nsqclient.display import counted
from nsqclient.protocol.names import is_ephemeral
from nsqclient.runtime.deadline import Deadline

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger("nsqclient.devserver")

_ANY_HOST = ("", "0.0.0.0", "::")  # nosec B104 # compared with, never bound to


class _TopicLog:
    """Logs which topics and channels are created and deleted."""

    def topic_changed(self, change: TopicChange) -> None:
        """Log one change, in nsqd's words."""
        if change.channel is None:
            if change.created:
                logger.info("TOPIC(%s): created", change.topic)
            else:
                logger.info("TOPIC(%s): deleting", change.topic)
        elif change.created:
            logger.info("TOPIC(%s): new channel(%s)", change.topic, change.channel)
        else:
            logger.info("TOPIC(%s): deleting channel %s", change.topic, change.channel)


class Nsqd(BrokerFacade):
    """An nsqd in this process, for tests and first steps.

    Life: created, :meth:`start`, :meth:`stop`; or a ``with`` block. To restart, make another
    one with the same ports and data path.

    Args:
        host: where both ports listen.
        tcp_port, http_port: 0 takes a free one; None opens no HTTP port.
        data_path: an existing directory, for one nsqd at a time. With it messages beyond
            ``mem_queue_size``, and all messages at ``stop()``, are kept there. Without it all
            messages are in memory only.
        lookupd_tcp_addresses: nsqlookupds to register with, ``host:port``.
        lookupd_ping_interval: seconds between two PINGs to each; fixed in nsqd.
        http_host: where the HTTP port listens, if not on ``host``.
        https_port: of the HTTP API with TLS, which is there with a certificate; 0 takes a free
            one, None opens none.
        https_host: where it listens, if not on ``host``.
        broadcast_address: the address that nsqlookupd gives to clients; None for ``host``.
        broadcast_tcp_port, broadcast_http_port: the ports that it gives to them; 0 for those that
            this nsqd listens on.
        scan_lag: seconds between two checks of timeouts and deferrals, which are late as in nsqd
            and never early; 0 means no delay.
        log_level: debug, info, warn, error or fatal, for the logger ``nsqclient.devserver`` until
            ``stop()``, as ``PUT /config/log_level`` sets it; None leaves it to you.

    The other arguments are nsqd's flags, with nsqd's defaults; durations in seconds.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        tcp_port: int = 0,
        http_port: int | None = 0,
        *,
        data_path: str | None = None,
        lookupd_tcp_addresses: Sequence[str] = (),
        lookupd_ping_interval: float = PING_INTERVAL,
        http_host: str | None = None,
        https_port: int | None = 0,
        https_host: str | None = None,
        broadcast_address: str | None = None,
        broadcast_tcp_port: int = 0,
        broadcast_http_port: int = 0,
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
        e2e_processing_latency_percentile: Sequence[float] = (),
        e2e_processing_latency_window_time: float = 600.0,
        scan_lag: float = 0.0,
        log_level: str | None = None,
    ) -> None:
        if broadcast_address is None:
            broadcast_address = socket.gethostname() if host in _ANY_HOST else host
        options = NsqdOptions(
            node_id=default_node_id() if node_id is None else node_id,
            broadcast_address=broadcast_address,
            broadcast_tcp_port=broadcast_tcp_port,
            broadcast_http_port=broadcast_http_port,
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
            e2e_processing_latency_percentile=tuple(e2e_processing_latency_percentile),
            e2e_processing_latency_window_time=e2e_processing_latency_window_time,
            scan_lag=scan_lag,
        )
        self._session_config: SessionConfig | None = None  # set by start()
        self._data: DataPath | None = None
        broker = Broker(
            options.queue_limits(),
            node_id=options.node_id,
            open_backend=None if data_path is None else self._open_disk_queue,
            open_latency=self._open_latency if e2e_processing_latency_percentile else None,
        )
        self._scheduler = broker.scheduler
        self._loop = SessionLoop("devserver-nsqd-clients")
        super().__init__(
            Engine(broker, scan_lag), options, LogLevel(log_level), Sessions(self._loop))
        #: Test controls, see :class:`~nsqclient.devserver.faults.Faults`.
        self.faults = Faults(self._sessions.wake, self._sessions.drop)
        self._host = host
        self._listener = Listener("devserver-nsqd", host, tcp_port, self._serve)
        self._http = NsqdHTTPServer(
            self, host if http_host is None else http_host, http_port or 0)
        self._serves_http = http_port is not None
        self._https: NsqdHTTPServer | None = None  # set by start()
        self._https_endpoint = (host if https_host is None else https_host, https_port)
        self._lookupds = LookupdPeers(
            lookupd_tcp_addresses,
            self._identity,
            self.registrations,
            ping_interval=lookupd_ping_interval,
        )
        self._numbers = itertools.count(1)  # of sessions
        self._saving = threading.Lock()  # taken before the engine's lock, never inside
        self._stopping = threading.Lock()
        self._stopper: int | None = None  # the thread that stops it; guarded by _stopping
        self._ended = threading.Event()  # stop() or kill() is done
        self._is_started = False  # set by start(); nothing is logged of a start that failed
        self._is_loaded = False  # set by start(), before there are other threads

    # -- properties

    @property
    def tcp_address(self) -> str:
        """``host:port`` of the TCP protocol; known once started."""
        return self._listener.address

    @property
    def http_address(self) -> str:
        """``host:port`` of the HTTP API; known once started, empty without one."""
        return self._http.address if self._serves_http else ""

    @property
    def https_address(self) -> str:
        """``host:port`` of the HTTP API with TLS; known once started, empty without one."""
        return "" if self._https is None else self._https.address

    @property
    def commands(self) -> list[ReceivedCommand]:
        """The commands that clients sent, oldest first (the last 10,000)."""
        return self.faults.commands

    @property
    def lookupd_tcp_addresses(self) -> list[str]:
        """The nsqlookupds that it registers with."""
        return self._lookupds.addresses

    def set_lookupd_tcp_addresses(self, addresses: Sequence[str]) -> None:
        """Register with these nsqlookupds instead. Blocks while new ones are dialed."""
        self._lookupds.set_addresses(addresses)

    def health(self) -> str:
        """Return ``OK``, or ``NOK - reason`` while messages cannot be written to the disk."""
        error = None if self._data is None else self._data.write_error
        return "OK" if error is None else f"NOK - {error.strerror}"

    def info(self) -> dict[str, Any]:
        """Return the values of ``/info``; durations in nanoseconds."""
        options = self._options
        return {
            "version": NSQD_VERSION,
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": self._http.port,
            "tcp_port": self._listener.port,
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
            self.add_observer(_TopicLog())
            limits = options.server_limits()
            tls = options.tls_context()
            self._session_config = SessionConfig(
                lambda number, layers: CommandHandler(
                    ServerProtocol(limits), self.faults, number, layers
                ),
                tls,
                options.auth_http_addresses,
                self._prepare_topic,
                lambda topic: bool(self._lookupds.addresses) and not self.has_topic(topic),
            )
            if options.data_path is not None:
                self._data = DataPath(options.data_path, self._scheduler.discard)
                self._data.check_disk_queues()
                with self._engine as broker:
                    broker.restore(self._data.load(), self._engine.now)
            self._is_loaded = True
            self._engine.start()
            self.add_observer(self)
            self._loop.start()
            self._listener.listen()
            self._start_https(tls)
            # Before the registration, which sends its port.
            if self._serves_http:
                self._http.start()
            self._lookupds.start()
            self._listener.start()
        except BaseException:
            self.stop()
            raise
        self._is_started = True
        logger.info("nsqd v%s (built w/python%s)", NSQD_VERSION, python_version())
        logger.info("ID: %d", options.node_id)
        logger.info("TCP: listening on %s", self.tcp_address)
        if self._serves_http:
            logger.info("HTTP: listening on %s", self.http_address)
        if self._https is not None:
            logger.info("HTTPS: listening on %s", self.https_address)

    def _start_https(self, tls: ssl.SSLContext | None) -> None:
        host, port = self._https_endpoint
        if tls is not None and port is not None:
            self._https = NsqdHTTPServer(self, host, port, tls)
            self._https.start()
        if self._options.tls_policy is TLSPolicy.REQUIRED:
            self._http.require_tls(0 if self._https is None else self._https.port)

    def stop(self, timeout: float | None = None) -> None:
        """Close both ports and all connections; keep the messages when there is a data path.

        Any thread, any number of times, but not from an observer.

        Blocks: until all threads have ended and the messages are written, also where another thread
        has called it before, or ``timeout`` seconds.
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
            is_first = self._stopper is None
            if is_first:
                self._stopper = threading.get_ident()
        if is_first:
            try:
                self._end_once(deadline, keep)
            finally:
                self._ended.set()
        elif self._stopper != threading.get_ident():  # a signal handler may interrupt stop()
            self._ended.wait(deadline.remaining())

    def _end_once(self, deadline: Deadline, keep: bool) -> None:
        # 1. Publishing and subscribing fail with "exiting".
        with self._engine as broker:
            broker.is_exiting = True
        # 2. Unregister from the nsqlookupds first: a consumer that polls one when its connection
        #    ends would find this nsqd again.
        self._lookupds.stop(deadline)
        # 3. No new clients; connections end without a frame.
        if self._is_started:
            logger.info("TCP: closing %s", self.tcp_address)
        self._listener.stop(deadline)
        self._sessions.end(deadline)
        self._http.stop(deadline)
        if self._https is not None:
            self._https.stop(deadline)
        self._loop.stop(deadline)
        # 4. No timeout expires while the queues are written.
        self._engine.stop(deadline)
        self._close_data(keep)
        if self._is_started:
            logger.info("NSQ: bye")
        self.log_level.restore()

    def _close_data(self, keep: bool) -> None:
        if self._data is None:
            return
        # Data that could not be read must not be overwritten.
        keep = keep and self._is_loaded
        if keep:
            self._save_metadata()
        with self._engine as broker:
            unwritten = broker.close(keep)
        for queue, lost, reason in unwritten:
            logger.error("%s: not written to the disk and lost: %s (%s)",
                         queue, counted(lost, "message"), reason)
        self._data.close()

    # -- clients

    def _serve(self, sock: socket.socket, address: str) -> None:
        logger.info("TCP: new client(%s)", address)
        assert self._session_config is not None
        self._sessions.serve(
            self._engine, self.faults, self._session_config, sock, address, next(self._numbers))

    # -- nsqlookupd

    def _identity(self) -> Identity:
        return Identity(
            broadcast_address=self._options.broadcast_address,
            hostname=socket.gethostname(),
            http_port=self._options.broadcast_http_port or self._http.port,
            tcp_port=self._options.broadcast_tcp_port or self._listener.port,
            version=NSQD_VERSION,
        )

    def _prepare_topic(self, topic: str) -> None:
        """Create a new topic with the channels that other nsqds have for it."""
        if not self._lookupds.addresses or self.has_topic(topic):
            return
        channels = self._lookupds.channels_of(topic)
        with self._engine as broker:
            if not broker.is_exiting and topic not in broker.topics:
                broker.prepare_topic(topic, channels, self._engine.now)

    def topic_changed(self, change: TopicChange) -> None:
        """Register or unregister a topic or channel, and save it. Called by the engine."""
        self._lookupds.notify(change)
        if not is_ephemeral(change.topic if change.channel is None else change.channel):
            self._save_metadata()

    def _open_latency(self) -> LatencyWindow:
        return LatencyWindow(
            self._options.e2e_processing_latency_percentile,
            self._options.e2e_processing_latency_window_time,
            time.time_ns,
        )

    # -- the data path

    def _open_disk_queue(self, topic: str, channel: str | None) -> Any:
        if self._data is None:
            raise RuntimeError("the data path is open from start() to stop()")
        return self._data.open_disk_queue(topic, channel)

    def _save_metadata(self) -> None:
        """Write ``nsqd.dat``: the topics and channels, and which are paused."""
        if self._data is None:
            return
        with self._saving:
            with self._engine as broker:
                topics = broker.metadata()
            logger.info("NSQ: persisting topic/channel metadata to %s", self._data.metadata_path)
            try:
                self._data.save(topics)
            except OSError as exc:
                logger.error("failed to persist metadata - %s", exc)
