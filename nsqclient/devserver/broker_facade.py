"""What the HTTP API, the registration with nsqlookupd and tests call on a running nsqd."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nsqclient.devserver import stats
from nsqclient.devserver.broker import Broker, BrokerError
from nsqclient.devserver.engine import Engine, Observer
from nsqclient.devserver.options import LogLevel, NsqdOptions
from nsqclient.devserver.queues import StoredMessage
from nsqclient.message import MessageId
from nsqclient.devserver.session_loop import Sessions
from nsqclient.protocol.commands import check_body
from nsqclient.runtime.deadline import to_seconds


class HeldMessage(NamedTuple):
    """A message in the server: ``state`` is queued, in_flight or deferred."""

    state: str
    id: MessageId
    timestamp: int
    attempts: int
    body: bytes


class BrokerFacade(ABC):
    """Topics, channels and messages of one server. Threads: every method, any thread.

    Names are not checked here; use :func:`nsqclient.protocol.names.is_valid_name`.
    """

    def __init__(
        self, engine: Engine[Broker], options: NsqdOptions, log_level: LogLevel, sessions: Sessions
    ) -> None:
        self._engine = engine
        self._options = options
        self._start_time = time.time()
        self._sessions = sessions
        #: Of the embedded servers' log.
        self.log_level = log_level

    # -- the server

    @property
    def options(self) -> NsqdOptions:
        """The options that it was started with."""
        return self._options

    @property
    def start_time(self) -> float:
        """When it was created, in seconds since the epoch."""
        return self._start_time

    @property
    @abstractmethod
    def tcp_address(self) -> str:
        """``host:port`` of the TCP protocol; known once started."""

    @property
    @abstractmethod
    def http_address(self) -> str:
        """``host:port`` of the HTTP API; known once started, empty without one."""

    @property
    @abstractmethod
    def https_address(self) -> str:
        """``host:port`` of the HTTP API with TLS; known once started, empty without one."""

    @property
    @abstractmethod
    def lookupd_tcp_addresses(self) -> list[str]:
        """The nsqlookupds that it registers with."""

    @abstractmethod
    def set_lookupd_tcp_addresses(self, addresses: Sequence[str]) -> None:
        """Register with these nsqlookupds instead. Blocks while new ones are dialed."""

    @abstractmethod
    def health(self) -> str:
        """Return ``OK``, or ``NOK - reason`` while messages cannot be written to the disk."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Return the values of ``/info``; durations in nanoseconds."""

    # -- publishing

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
        bodies = [check_body(body, self._options.max_msg_size) for body in bodies]
        defer = to_seconds(defer, "defer")
        self._prepare_topic(topic)
        with self._engine as broker:
            broker.publish(topic, bodies, self._engine.now, time.time_ns(), defer)

    # -- topics

    def create_topic(self, topic: str) -> None:
        """Create a topic; nothing happens when there is one."""
        self._prepare_topic(topic)
        with self._engine as broker:
            broker.open_topic(topic)

    def has_topic(self, topic: str) -> bool:
        """Whether there is such a topic."""
        with self._engine as broker:
            return topic in broker.topics

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its channels; the connections of their consumers end.

        Raises:
            TopicNotFound: there is none.
        """
        with self._engine as broker:
            broker.delete_topic(topic)

    def empty_topic(self, topic: str) -> None:
        """Drop the messages that the topic stores. Raises TopicNotFound."""
        with self._engine as broker:
            broker.empty_topic(topic)

    def pause_topic(self, topic: str) -> None:
        """Stop the flow of messages to the channels. Raises TopicNotFound."""
        self._pause(topic, None, True)

    def unpause_topic(self, topic: str) -> None:
        """Resume the flow to the channels. Raises TopicNotFound."""
        self._pause(topic, None, False)

    # -- channels

    def create_channel(self, topic: str, channel: str) -> None:
        """Create a channel of an existing topic; nothing happens when there is one.

        Raises:
            TopicNotFound: create the topic first, as in nsqd's HTTP API.
        """
        with self._engine as broker:
            broker.topic(topic)
            broker.open_channel(topic, channel, self._engine.now)

    def delete_channel(self, topic: str, channel: str) -> None:
        """Delete a channel; its consumers' connections end. Raises Topic-, ChannelNotFound."""
        with self._engine as broker:
            broker.delete_channel(topic, channel)

    def empty_channel(self, topic: str, channel: str) -> None:
        """Drop every message of a channel. Raises TopicNotFound or ChannelNotFound."""
        with self._engine as broker:
            broker.empty_channel(topic, channel, self._engine.now)

    def pause_channel(self, topic: str, channel: str) -> None:
        """Stop deliveries. Raises TopicNotFound or ChannelNotFound."""
        self._pause(topic, channel, True)

    def unpause_channel(self, topic: str, channel: str) -> None:
        """Resume deliveries. Raises TopicNotFound or ChannelNotFound."""
        self._pause(topic, channel, False)

    # -- inspection

    def stats(
        self, topic: str = "", channel: str = "", include_clients: bool = True
    ) -> dict[str, Any]:
        """Return ``topics`` and ``producers`` as in nsqd's /stats?format=json.

        ``topics`` is None for an unknown topic; ``producers`` is None without clients.
        """
        with self._engine as broker:
            sessions = self._sessions.by_number()
            return {
                "topics": stats.topics(broker, sessions, topic, channel, include_clients),
                "producers": (
                    stats.producers(sessions.values(), topic) if include_clients else None
                ),
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
        """Return the messages of a channel, or those that a topic stores.

        Raises:
            TopicNotFound, ChannelNotFound: there is none.
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
        """Wait until a channel exists and nothing in it waits, is in flight or deferred.

        Blocks: up to ``timeout`` seconds.

        Raises:
            TimeoutError: messages are left; the text counts them.
        """
        if not self._engine.wait_until(lambda broker: _left(broker, topic, channel) == "", timeout):
            with self._engine as broker:
                left = _left(broker, topic, channel) or "it was emptied just now"
            raise TimeoutError(f"{topic}:{channel} is not empty after {timeout:g} s: {left}")

    def add_observer(self, observer: Observer) -> None:
        """Call ``observer`` when a topic or channel is created or deleted from now on."""
        self._engine.add_observer(observer)

    def _observe_publishes(self, observer: Callable[[str, Sequence[bytes]], None]) -> None:
        """For nsqclient.testing: call ``observer`` when messages are stored from now on.

        It is called in their order, so while the server is locked. There is one; another one
        replaces it.
        """
        with self._engine as broker:
            broker.on_published = observer

    # -- for subclasses

    def _prepare_topic(self, topic: str) -> None:
        """Called with no lock before a topic may be created; may block."""

    def _save_metadata(self) -> None:
        """Called with no lock after a topic or channel was paused or unpaused."""

    def _pause(self, topic: str, channel: str | None, paused: bool) -> None:
        with self._engine as broker:
            if channel is None:
                broker.pause_topic(topic, paused, self._engine.now)
            else:
                broker.pause_channel(topic, channel, paused, self._engine.now)
        self._save_metadata()


def _held(state: str, messages: list[StoredMessage]) -> list[HeldMessage]:
    return [
        HeldMessage(state, MessageId(message.id), message.timestamp, message.attempts, message.body)
        for message in messages
    ]


def _left(broker: Broker, topic: str, channel: str) -> str:
    """Describe why a channel is not empty; empty when it is."""
    try:
        found = broker.channel(topic, channel)
    except BrokerError:
        return "there is no such channel"
    waiting = len(found.queue) + len(broker.topic(topic).queue)
    if not waiting and found.is_idle():
        return ""
    return f"{waiting} queued, {len(found.in_flight)} in flight, {len(found.deferred)} deferred"
