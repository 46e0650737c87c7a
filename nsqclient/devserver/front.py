"""What may be asked of a running nsqd from outside its TCP protocol, from any thread.

The HTTP API, the registration with nsqlookupd and tests use these methods.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from nsqclient.devserver import stats
from nsqclient.devserver.broker import Broker, BrokerError
from nsqclient.devserver.engine import Engine, Observer
from nsqclient.devserver.session import Session
from nsqclient.devserver.store import StoredMessage


class HeldMessage(NamedTuple):
    """A message that the server holds: ``state`` is queued, in_flight or deferred."""

    state: str
    id: bytes
    timestamp: int
    attempts: int
    body: bytes


class QueueFront:
    """Topics, channels and messages of one server. Threads: every method, any thread.

    Names are not checked here; use :func:`nsqclient.protocol.names.is_valid_name`.
    """

    def __init__(self, engine: Engine[Broker]) -> None:
        self._engine = engine
        self._sessions: dict[int, Session] = {}  # guarded by the engine

    # -- publishing

    def publish(self, topic: str, body: bytes, defer: float = 0.0) -> None:
        """Store one message, deliverable after ``defer`` seconds.

        Raises:
            BrokerError: the server is stopping ("exiting").
            OSError: the disk refused.
        """
        self.publish_many(topic, [body], defer)

    def publish_many(self, topic: str, bodies: Sequence[bytes], defer: float = 0.0) -> None:
        """Store several messages with consecutive ids. Raises as ``publish``."""
        self._prepare(topic)
        with self._engine as broker:
            broker.publish(topic, bodies, self._engine.now, time.time_ns(), defer)

    # -- topics

    def create_topic(self, topic: str) -> None:
        """Make a topic; nothing happens when there is one."""
        self._prepare(topic)
        with self._engine as broker:
            broker.open_topic(topic)

    def has_topic(self, topic: str) -> bool:
        """Tell whether there is such a topic."""
        with self._engine as broker:
            return topic in broker.topics

    def delete_topic(self, topic: str) -> None:
        """Drop a topic with all its channels; their consumers' connections end.

        Raises:
            TopicNotFound: there is none.
        """
        with self._engine as broker:
            broker.delete_topic(topic)

    def empty_topic(self, topic: str) -> None:
        """Drop what the topic holds for channels to come. Raises TopicNotFound."""
        with self._engine as broker:
            broker.empty_topic(topic)

    def pause_topic(self, topic: str) -> None:
        """Keep messages from reaching the channels. Raises TopicNotFound."""
        self._pause(topic, None, True)

    def unpause_topic(self, topic: str) -> None:
        """Let messages flow again. Raises TopicNotFound."""
        self._pause(topic, None, False)

    # -- channels

    def create_channel(self, topic: str, channel: str) -> None:
        """Make a channel of an existing topic; nothing happens when there is one.

        Raises:
            TopicNotFound: the topic has to be made first, as in nsqd's HTTP API.
        """
        with self._engine as broker:
            broker.topic(topic)
            broker.open_channel(topic, channel, self._engine.now)

    def delete_channel(self, topic: str, channel: str) -> None:
        """Drop a channel; its consumers' connections end. Raises Topic-, ChannelNotFound."""
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

    # -- looking

    def stats(
        self, topic: str = "", channel: str = "", include_clients: bool = True
    ) -> dict[str, Any]:
        """Return ``topics`` and ``producers`` as in nsqd's /stats?format=json.

        ``topics`` is None for an unknown topic; ``producers`` is None without clients.
        """
        with self._engine as broker:
            sessions = self._sessions
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
        """Return what a channel holds, or what a topic holds for channels to come.

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
            TimeoutError: something is left; the message says what.
        """
        if not self._engine.wait_until(lambda broker: _left(broker, topic, channel) == "", timeout):
            with self._engine as broker:
                left = _left(broker, topic, channel) or "it was emptied just now"
            raise TimeoutError(f"{topic}:{channel} is not empty after {timeout:g} s: {left}")

    def add_observer(self, observer: Observer) -> None:
        """Tell ``observer`` of every topic and channel that comes or goes from now on."""
        self._engine.add_observer(observer)

    # -- for subclasses

    def _prepare(self, topic: str) -> None:
        """Called with no lock before a topic may be made; may block."""

    def _paused(self) -> None:
        """Called with no lock after something was paused or unpaused."""

    def _pause(self, topic: str, channel: str | None, paused: bool) -> None:
        with self._engine as broker:
            if channel is None:
                broker.pause_topic(topic, paused, self._engine.now)
            else:
                broker.pause_channel(topic, channel, paused, self._engine.now)
        self._paused()


def _held(state: str, messages: list[StoredMessage]) -> list[HeldMessage]:
    return [
        HeldMessage(state, message.id, message.timestamp, message.attempts, message.body)
        for message in messages
    ]


def _left(broker: Broker, topic: str, channel: str) -> str:
    """Say what keeps a channel from being empty; nothing when it is."""
    try:
        found = broker.channel(topic, channel)
    except BrokerError:
        return "there is no such channel"
    waiting = len(found.queue) + len(broker.topic(topic).queue)
    if not waiting and found.is_idle():
        return ""
    return f"{waiting} queued, {len(found.in_flight)} in flight, {len(found.deferred)} deferred"
