"""The embedded nsqd: a broker behind a TCP port and an HTTP port, in this process."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.devserver.broker import Broker, BrokerError, TopicChange
from nsqclient.devserver.command_handler import CommandHandler
from nsqclient.devserver.engine import Engine, Observer
from nsqclient.devserver.faults import Faults, ReceivedCommand
from nsqclient.devserver.lookupd_peers import LookupdPeers
from nsqclient.devserver.nsqd_http import NsqdHTTPServer, producer_stats, topic_stats
from nsqclient.devserver.options import NsqdOptions, TLSPolicy
from nsqclient.devserver.persistence import DataPath
from nsqclient.devserver.protocol.commands import NSQD_VERSION, python_version
from nsqclient.devserver.protocol.lookupd import Identity
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.devserver.queues import StoredMessage
from nsqclient.devserver.session import SessionConfig
from nsqclient.devserver.session_loop import SessionLoop, Sessions
from nsqclient.display import counted
from nsqclient.protocol.commands import check_body
from nsqclient.protocol.names import is_ephemeral
from nsqclient.runtime.deadline import Deadline, to_seconds

if TYPE_CHECKING:
    import ssl

logger: logging.Logger = logging.getLogger("nsqclient.devserver")


def _log_change(change: TopicChange) -> None:
    if change.channel is None and change.created:
        logger.info("TOPIC(%s): created", change.topic)
    elif change.channel is None:
        logger.info("TOPIC(%s): deleting", change.topic)
    elif change.created:
        logger.info("TOPIC(%s): new channel(%s)", change.topic, change.channel)
    else:
        logger.info("TOPIC(%s): deleting channel %s", change.topic, change.channel)


class HeldMessage(NamedTuple):
    """A message in the server: ``state`` is queued, in_flight or deferred."""

    state: str
    id: bytes
    timestamp: int
    attempts: int
    body: bytes


P = ParamSpec("P")


def _takes(
    options: Callable[P, NsqdOptions]
) -> Callable[[Callable[[Nsqd, NsqdOptions], None]], Callable[Concatenate[Nsqd, P], None]]:
    """Give a constructor the arguments of NsqdOptions; it receives an NsqdOptions."""

    def decorate(
        init: Callable[[Nsqd, NsqdOptions], None]
    ) -> Callable[Concatenate[Nsqd, P], None]:
        def construct(self: Nsqd, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, options(*args, **kwargs))

        update_wrapper(construct, NsqdOptions.__init__)  # for inspect.signature() and the docs
        return construct

    return decorate


class Nsqd:
    """An nsqd in this process, for tests and first steps.

    Lifecycle: created, :meth:`start`, :meth:`stop`; or a ``with`` block. To restart, make another
    one with the same ports and data path.

    Args:
        host: where both ports listen.
        tcp_port, http_port: 0 selects a free port; None: no HTTP API.
        data_path: an existing directory, for one nsqd at a time. It stores messages beyond
            ``mem_queue_size``, and all messages at ``stop()``. None: memory only.
        lookupd_tcp_addresses: nsqlookupds to register with, ``host:port``.
        http_host: the host of the HTTP port, if not ``host``.
        https_port: of the HTTPS API, which needs ``tls_cert``; 0 selects a free port; None: no
            HTTPS.
        https_host: the host of the HTTPS port, if not ``host``.
        broadcast_address: the address that nsqlookupd gives to clients; None: ``host``.
        broadcast_tcp_port, broadcast_http_port: the ports that nsqlookupd gives to clients; 0: the
            ports of this nsqd.

    The other arguments are nsqd's flags, with nsqd's defaults; durations in seconds.
    """

    @_takes(NsqdOptions)
    def __init__(self, options: NsqdOptions) -> None:
        #: The options that it was started with.
        self.options = options
        #: When it was created, in seconds since the epoch.
        self.start_time: float = time.time()
        self._data: DataPath | None = None
        broker = Broker(
            options.queue_limits(),
            node_id=options.node_id,
            open_backend=None if options.data_path is None else self._open_disk_queue,
        )
        self._engine = Engine(broker)
        self._loop = SessionLoop("devserver-nsqd-clients")
        self._sessions = Sessions(self._loop, self._engine, itertools.count(1))
        #: Test controls, see :class:`~nsqclient.devserver.faults.Faults`.
        self.faults: Faults = self._sessions.faults
        self._acceptor = Acceptor(
            "devserver-nsqd", options.host, options.tcp_port, self._sessions.serve,
            has_threads=False)
        self._http = self._http_server(options.http_host, options.http_port or 0, None)
        self._https: NsqdHTTPServer | None = None  # set by start()
        self._lookupds = LookupdPeers(
            options.lookupd_tcp_addresses, self._identity, self.registrations)
        self._saving = threading.Lock()  # taken before the engine's lock, never inside
        self._stopping = threading.Lock()
        self._stopper: int | None = None  # the thread that stops it; guarded by _stopping
        self._ended = threading.Event()  # stop() or kill() is done
        self._is_started = False  # set by start(); if False, stop() logs nothing
        self._is_loaded = False  # set by start(), before there are other threads

    def _http_server(
        self, host: str | None, port: int, tls: ssl.SSLContext | None
    ) -> NsqdHTTPServer:
        return NsqdHTTPServer(self, self.options.host if host is None else host, port, tls)

    @property
    def tcp_address(self) -> str:
        """``host:port`` of the TCP protocol; known once started."""
        return self._acceptor.address

    @property
    def http_address(self) -> str:
        """``host:port`` of the HTTP API; known once started, empty without one."""
        return self._http.address if self.options.http_port is not None else ""

    @property
    def https_address(self) -> str:
        """``host:port`` of the HTTP API with TLS; known once started, empty without one."""
        return "" if self._https is None else self._https.address

    @property
    def commands(self) -> list[ReceivedCommand]:
        """The commands that clients sent, oldest first (the last 10,000)."""
        return self.faults.commands

    def health(self) -> str:
        """Return ``OK``, or ``NOK - reason`` while messages cannot be written to the disk."""
        error = None if self._data is None else self._data.write_error
        return "OK" if error is None else f"NOK - {error.strerror}"

    def info(self) -> dict[str, Any]:
        """Return the values of ``/info``; durations in nanoseconds."""
        options = self.options
        return {
            "version": NSQD_VERSION,
            "broadcast_address": options.announced_address,
            "hostname": socket.gethostname(),
            "http_port": self._http.port,
            "tcp_port": self._acceptor.port,
            "start_time": int(self.start_time),
            "max_heartbeat_interval": round(options.max_heartbeat_interval * 1e9),
            "max_output_buffer_size": options.max_output_buffer_size,
            "max_output_buffer_timeout": round(options.max_output_buffer_timeout * 1e9),
            "max_deflate_level": options.max_deflate_level,
        }

    def start(self) -> None:
        """Load the data path, listen on both ports, register, serve.

        Raises:
            OSError: a port is taken, or the data path is missing, locked or damaged; nothing
                is left open.
            ConfigError, TLSError: TLS cannot be offered as asked for.
        """
        options = self.options
        try:
            self.add_observer(_log_change)
            limits = options.server_limits()
            tls = options.tls_context()
            self._sessions.config = SessionConfig(
                lambda number, layers: CommandHandler(
                    ServerProtocol(limits), self.faults, number, layers
                ),
                tls,
                options.auth_http_addresses,
                self._prepare_topic,
            )
            if options.data_path is not None:
                self._data = DataPath(options.data_path)
                with self._engine as broker:
                    broker.restore(self._data.load(), self._engine.now)
            self._is_loaded = True
            self._engine.start()
            self.add_observer(self._on_change)
            self._loop.start()
            self._acceptor.listen()
            self._start_https(tls)
            # Before the registration, which sends its port.
            if options.http_port is not None:
                self._http.start()
            self._lookupds.start()
            self._acceptor.start()
        except BaseException:
            self.stop()
            raise
        self._is_started = True
        logger.info("nsqd v%s (built w/python%s)", NSQD_VERSION, python_version())
        logger.info("ID: %d", options.node_id)
        logger.info("TCP: listening on %s", self.tcp_address)
        if options.http_port is not None:
            logger.info("HTTP: listening on %s", self.http_address)
        if self._https is not None:
            logger.info("HTTPS: listening on %s", self.https_address)

    def _start_https(self, tls: ssl.SSLContext | None) -> None:
        options = self.options
        if tls is not None and options.https_port is not None:
            self._https = self._http_server(options.https_host, options.https_port, tls)
            self._https.start()
        if options.tls_policy is TLSPolicy.REQUIRED:
            self._http.https_port = 0 if self._https is None else self._https.port

    def stop(self, timeout: float | None = None) -> None:
        """Close both ports and all connections; save the messages if there is a data path.

        Idempotent. Any thread, but not from an observer. Blocks: until all threads have ended and
        the messages are written, or ``timeout`` seconds.
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
        self._acceptor.stop(deadline)
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

    def publish(self, topic: str, body: bytes, defer: float = 0.0) -> None:
        """Store one message, deliverable after ``defer`` seconds.

        Raises:
            InvalidMessageError: the body is not bytes, or empty or too large.
            ConfigError: ``defer`` is negative, or no number.
            BrokerError: the server is stopping ("exiting").
            OSError: writing to the disk failed.
        """
        self.publish_many(topic, [body], defer)

    def publish_many(self, topic: str, bodies: Sequence[bytes], defer: float = 0.0) -> None:
        """Store several messages with consecutive ids. Raises as ``publish``."""
        bodies = [check_body(body, self.options.max_msg_size) for body in bodies]
        defer = to_seconds(defer, "defer")
        self._prepare_topic(topic)
        with self._engine as broker:
            broker.publish(topic, bodies, self._engine.now, time.time_ns(), defer)

    def create_topic(self, topic: str) -> None:
        """Create a topic if it does not exist."""
        self._prepare_topic(topic)
        with self._engine as broker:
            broker.open_topic(topic)

    def has_topic(self, topic: str) -> bool:
        with self._engine as broker:
            return topic in broker.topics

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its channels; consumers' connections end. Raises TopicNotFound."""
        with self._engine as broker:
            broker.delete_topic(topic)

    def empty_topic(self, topic: str) -> None:
        """Drop the messages that the topic stores. Raises TopicNotFound."""
        with self._engine as broker:
            broker.topic(topic).empty()

    def pause_topic(self, topic: str) -> None:
        """Stop the flow of messages to the channels. Raises TopicNotFound."""
        self._pause(topic, None, True)

    def unpause_topic(self, topic: str) -> None:
        """Resume the flow to the channels. Raises TopicNotFound."""
        self._pause(topic, None, False)

    def create_channel(self, topic: str, channel: str) -> None:
        """Create a channel of a topic if it does not exist. Raises TopicNotFound."""
        with self._engine as broker:
            broker.topic(topic)
            broker.open_channel(topic, channel, self._engine.now)

    def delete_channel(self, topic: str, channel: str) -> None:
        """Delete a channel; consumers' connections end.

        Raises TopicNotFound or ChannelNotFound.
        """
        with self._engine as broker:
            broker.delete_channel(topic, channel)

    def empty_channel(self, topic: str, channel: str) -> None:
        """Drop every message of a channel. Raises TopicNotFound or ChannelNotFound."""
        with self._engine as broker:
            broker.channel(topic, channel).empty(self._engine.now)

    def pause_channel(self, topic: str, channel: str) -> None:
        """Stop deliveries. Raises TopicNotFound or ChannelNotFound."""
        self._pause(topic, channel, True)

    def unpause_channel(self, topic: str, channel: str) -> None:
        """Resume deliveries. Raises TopicNotFound or ChannelNotFound."""
        self._pause(topic, channel, False)

    def stats(
        self, topic: str = "", channel: str = "", include_clients: bool = True
    ) -> dict[str, Any]:
        """Return ``topics`` and ``producers`` as in nsqd's /stats?format=json.

        ``topics`` is None for an unknown topic; ``producers`` is None without clients.
        """
        with self._engine as broker:
            sessions = self._sessions.by_number()
            return {
                "topics": topic_stats(broker, sessions, topic, channel, include_clients),
                "producers":
                    producer_stats(sessions.values(), topic) if include_clients else None,
            }

    def registrations(self) -> list[tuple[str, str | None]]:
        """Return every (topic, channel), and (topic, None) for topics without channels."""
        with self._engine as broker:
            return [
                (topic.name, channel)
                for topic in broker.topics.values()
                for channel in (topic.channels or (None,))
            ]

    def messages(self, topic: str, channel: str | None = None) -> list[HeldMessage]:
        """Return the messages of a channel, or the messages that a topic stores.

        Raises TopicNotFound and ChannelNotFound, and OSError after the end of a server with
        ``data_path``.
        """
        with self._engine as broker:
            if channel is None:
                return _held("queued", broker.topic(topic).queue.peek())
            found = broker.channel(topic, channel)
            return [
                *_held("queued", found.queue.peek()),
                *_held("in_flight", list(found.in_flight.values())),
                *_held("deferred", list(found.deferred.values())),
            ]

    def wait_until_empty(self, topic: str, channel: str, timeout: float = 10.0) -> None:
        """Wait until a channel exists and has no queued, in-flight or deferred message.

        Blocks: up to ``timeout`` seconds.

        Raises:
            TimeoutError: messages are left; the text counts them.
        """
        if not self._engine.wait_until(lambda broker: _left(broker, topic, channel) == "", timeout):
            with self._engine as broker:
                left = _left(broker, topic, channel) or "it was emptied just now"
            raise TimeoutError(f"{topic}:{channel} is not empty after {timeout:g} s: {left}")

    def add_observer(self, observer: Observer) -> None:
        """Call ``observer`` with each :class:`~nsqclient.devserver.broker.TopicChange` from now on.

        It is called in their order, one at a time; it must not block, and may call the server.
        """
        self._engine.add_observer(observer)

    def observe_publishes(self, observer: Callable[[str, Sequence[bytes]], None]) -> None:
        """Call ``observer`` for all messages stored from now on; replaces a former observer.

        It is called in their order, with the engine locked. For nsqclient.testing.
        """
        with self._engine as broker:
            broker.on_published = observer

    def _identity(self) -> Identity:
        return Identity(
            broadcast_address=self.options.announced_address,
            hostname=socket.gethostname(),
            http_port=self.options.broadcast_http_port or self._http.port,
            tcp_port=self.options.broadcast_tcp_port or self._acceptor.port,
            version=NSQD_VERSION,
        )

    def _prepare_topic(self, topic: str) -> None:
        """Create a new topic with the channels that other nsqds have for it."""
        if not self.options.lookupd_tcp_addresses or self.has_topic(topic):
            return
        channels = self._lookupds.channels_of(topic)
        with self._engine as broker:
            if not broker.is_exiting and topic not in broker.topics:
                broker.prepare_topic(topic, channels, self._engine.now)

    def _on_change(self, change: TopicChange) -> None:
        """Register or unregister a topic or channel, and save it. Called by the engine."""
        self._lookupds.notify(change)
        if not is_ephemeral(change.topic if change.channel is None else change.channel):
            self._save_metadata()

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

    def _pause(self, topic: str, channel: str | None, paused: bool) -> None:
        with self._engine as broker:
            if channel is None:
                broker.pause_topic(topic, paused, self._engine.now)
            else:
                broker.channel(topic, channel).set_paused(paused, self._engine.now)
        self._save_metadata()


def _held(state: str, messages: list[StoredMessage]) -> list[HeldMessage]:
    return [
        HeldMessage(state, message.id, message.timestamp, message.attempts, message.body)
        for message in messages
    ]


def _left(broker: Broker, topic: str, channel: str) -> str:
    try:
        found = broker.channel(topic, channel)
    except BrokerError:
        return "there is no such channel"
    waiting = len(found.queue) + len(broker.topic(topic).queue)
    if not waiting and found.is_idle():
        return ""
    return f"{waiting} queued, {len(found.in_flight)} in flight, {len(found.deferred)} deferred"
