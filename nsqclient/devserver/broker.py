"""The broker owns the topics: publishing, subscribing, creating and deleting, metadata. Pure.

The caller holds one lock around everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nsqclient.devserver.queues import (
    Backend, Channel, Consumer, MessageQueue, NullBackend, QueueLimits, Scheduler, StoredMessage,
    Topic,
)
from nsqclient.protocol.names import is_ephemeral


class BrokerError(Exception):
    """An operation failed; the text is nsqd's."""


class TopicNotFound(BrokerError):
    """The topic does not exist."""


class ChannelNotFound(BrokerError):
    """The channel does not exist."""


class TopicChange(NamedTuple):
    """A topic, or with ``channel`` a channel of it, was created or deleted."""

    created: bool
    topic: str
    channel: str | None


class TopicMetadata(NamedTuple):
    """A topic in ``nsqd.dat``."""

    name: str
    paused: bool
    channels: dict[str, bool]  #: name -> whether it is paused


class Unwritten(NamedTuple):
    """Messages of a queue that could not be written when the broker was closed."""

    queue: str  #: topic, or topic:channel
    lost: int
    reason: str  #: text of the last failure


class Broker:
    """All topics of one server.

    ``open_backend(topic, channel or None)`` opens the store for messages beyond ``mem_queue_size``,
    except for ephemerals.
    """

    def __init__(
        self,
        limits: QueueLimits | None = None,
        *,
        node_id: int = 0,
        open_backend: Callable[[str, str | None], Backend] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.scheduler: Scheduler = Scheduler(rng)
        #: Once set, publishing and subscribing fail with "exiting".
        self.is_exiting: bool = False
        #: Called with the topic and the bodies of messages that were stored.
        self.on_published: Callable[[str, Sequence[bytes]], None] | None = None
        self._limits = QueueLimits() if limits is None else limits
        self._node_id = node_id
        self._open_backend = open_backend
        self._changes: list[TopicChange] = []

    def take_changes(self) -> list[TopicChange]:
        changes, self._changes = self._changes, []
        return changes

    def topic(self, name: str) -> Topic:
        try:
            return self.topics[name]
        except KeyError:
            raise TopicNotFound(name) from None

    def channel(self, topic: str, name: str) -> Channel:
        try:
            return self.topic(topic).channels[name]
        except KeyError:
            raise ChannelNotFound(name) from None

    def open_topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            self._check_exiting()
            backend = self._backend(name, None)
            topic = self.topics[name] = Topic(name, self._limits, backend, self._node_id)
            self._changes.append(TopicChange(True, name, None))
        return topic

    def open_channel(self, topic: str, name: str, now: float) -> Channel:
        """Return the channel; create it and its topic. The first one gets the topic's backlog."""
        parent = self.open_topic(topic)
        channel = parent.channels.get(name)
        if channel is None:
            self._check_exiting()
            backend = self._backend(topic, name)
            channel = Channel(topic, name, self._limits, backend, self.scheduler)
            parent.channels[name] = channel
            self._changes.append(TopicChange(True, topic, name))
            parent.flow(now)
        return channel

    def prepare_topic(
        self, name: str, channels: Iterable[str], now: float, paused: bool = False
    ) -> Topic:
        """Create a topic with channels before any message moves, so that each gets all messages."""
        topic = self.open_topic(name)
        topic.paused, was_paused = True, topic.paused
        try:
            for channel in channels:
                self.open_channel(name, channel, now)
        finally:
            topic.paused = was_paused or paused
        topic.flow(now)
        return topic

    def _backend(self, topic: str, channel: str | None) -> Backend:
        if is_ephemeral(topic if channel is None else channel):
            return NullBackend()
        if self._open_backend is None:
            return Backend()
        return self._open_backend(topic, channel)

    def _check_exiting(self) -> None:
        if self.is_exiting:
            raise BrokerError("exiting")

    def publish(
        self, topic: str, bodies: Sequence[bytes], now: float, timestamp: int, deferral: float = 0
    ) -> None:
        """Store messages. ``timestamp`` in ns, ``deferral`` in s. Raises BrokerError, OSError."""
        self._check_exiting()
        target = self.open_topic(topic)
        put = target.put
        for message_id, body in zip(target.ids.take(len(bodies), timestamp), bodies):
            put(StoredMessage(message_id, timestamp, body, 0, deferral), now)
        if self.on_published is not None:
            self.on_published(topic, bodies)

    def subscribe(self, topic: str, channel: str, consumer: Consumer, now: float) -> Channel:
        """Add a consumer; create topic and channel if they do not exist. Raises BrokerError."""
        self._check_exiting()
        target = self.open_channel(topic, channel, now)
        most = self._limits.max_channel_consumers
        if most and len(target.consumers) >= most:
            raise BrokerError(f"consumers for {topic}:{channel} exceeds limit of {most}")
        target.add_consumer(consumer)
        return target

    def unsubscribe(self, channel: Channel, consumer: Consumer) -> None:
        """Remove a consumer; the last one of an ephemeral channel deletes it."""
        channel.remove_consumer(consumer)
        topic = self.topics.get(channel.topic)
        # The name may belong to a newer channel by now.
        if topic is None or topic.channels.get(channel.name) is not channel:
            return
        if is_ephemeral(channel.name) and not channel.consumers and not self.is_exiting:
            self.delete_channel(channel.topic, channel.name)

    def delete_topic(self, name: str) -> None:
        topic = self.topic(name)
        # As nsqd: the topic first, then its channels.
        del self.topics[name]
        self._changes.append(TopicChange(False, name, None))
        for channel in topic.channels.values():
            self._drop(channel)
        topic.empty()

    def delete_channel(self, topic: str, name: str) -> None:
        """Delete a channel and its messages; the last one of an ephemeral topic deletes it."""
        channel = self.channel(topic, name)
        parent = self.topics[topic]
        del parent.channels[name]
        self._drop(channel)
        if is_ephemeral(topic) and not parent.channels:
            self.delete_topic(topic)

    def _drop(self, channel: Channel) -> None:
        channel.end()
        channel.empty(0.0)
        self._changes.append(TopicChange(False, channel.topic, channel.name))

    def pause_topic(self, name: str, paused: bool, now: float) -> None:
        topic = self.topic(name)
        topic.paused = paused
        topic.flow(now)

    def metadata(self) -> list[TopicMetadata]:
        return [
            TopicMetadata(topic.name, topic.paused, {
                name: channel.paused for name, channel in topic.channels.items()
                if not is_ephemeral(name)
            })
            for topic in self.topics.values()
            if not is_ephemeral(topic.name)
        ]

    def restore(self, topics: Iterable[TopicMetadata], now: float) -> None:
        for saved in topics:
            topic = self.prepare_topic(saved.name, saved.channels, now, saved.paused)
            for name, paused in saved.channels.items():
                topic.channels[name].paused = paused

    def close(self, keep: bool) -> list[Unwritten]:
        """End every consumer; with ``keep`` all messages go to their backends first.

        Returns: the queues with messages that could not be written.
        """
        self.is_exiting = True
        unwritten: list[Unwritten] = []
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.end()
                if keep:
                    unwritten += _flush(
                        f"{topic.name}:{channel.name}", channel.queue,
                        channel.in_flight.values(), channel.deferred.values())
            if keep:
                unwritten += _flush(topic.name, topic.queue)
        return unwritten


def _flush(name: str, queue: MessageQueue, *others: Iterable[StoredMessage]) -> list[Unwritten]:
    count, reason = 0, ""
    for messages in (list(queue.memory), *others):
        for message in messages:
            try:
                queue.backend.put(message)
            except OSError as exc:
                count, reason = count + 1, exc.strerror or str(exc)
    queue.memory.clear()
    return [Unwritten(name, count, reason)] if count else []
