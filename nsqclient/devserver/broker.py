"""Topics and the broker that owns them: publishing, subscribing, life and death.

Pure: time is an argument; files come in through ``open_backend``; what others must be told is
left as notices. Whoever calls holds one lock around it all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nsqclient.devserver.queues import Agenda, Channel, Consumer, QueueLimits
from nsqclient.devserver.store import (
    Backend,
    MemoryBackend,
    MessageQueue,
    NullBackend,
    StoredMessage,
)
from nsqclient.protocol.names import is_ephemeral

# Parts of a message id: [41 bit time][10 bit node][12 bit sequence], as nsqd makes them.
_NODE_SHIFT = 12
_TIME_SHIFT = 22
_SEQUENCES = 1 << _NODE_SHIFT
_EPOCH = 1288834974288  # 2012-10-28, in nsqd's units of 2^20 ns


class BrokerError(Exception):
    """The broker cannot do it; the text is nsqd's."""


class TopicNotFound(BrokerError):
    """There is no such topic."""


class ChannelNotFound(BrokerError):
    """The topic has no such channel."""


class Notice(NamedTuple):
    """Something happened that others may want to know: ``channel`` is None for the topic."""

    created: bool
    topic: str
    channel: str | None


class MessageIds:
    """Message ids of one topic: strictly increasing, consecutive within one publish."""

    def __init__(self, node_id: int) -> None:
        self._node = (node_id % 1024) << _NODE_SHIFT
        self._time = 0
        self._sequence = 0

    def take(self, count: int, timestamp: int) -> list[bytes]:
        """Return ``count`` new ids; ``timestamp`` in ns, and going back does no harm."""
        ids = []
        units = max((timestamp >> 20) - _EPOCH, 0)
        if units > self._time:
            self._time, self._sequence = units, 0
        for _ in range(count):
            ids.append(b"%016x" % (self._time << _TIME_SHIFT | self._node | self._sequence))
            self._sequence += 1
            if self._sequence == _SEQUENCES:
                self._time, self._sequence = self._time + 1, 0
        return ids


class Topic:
    """One topic: stores while it has no channel or is paused, else copies to each channel."""

    def __init__(self, name: str, limits: QueueLimits, backend: Backend, node_id: int) -> None:
        self.name = name
        self.paused = False
        self.channels: dict[str, Channel] = {}
        self.queue = MessageQueue(limits.mem_queue_size, backend)
        self.message_count = 0
        self.message_bytes = 0
        self.ids = MessageIds(node_id)

    def put(self, message: StoredMessage, now: float) -> None:
        """Take a published message."""
        if self.paused or not self.channels:
            self.queue.put(message)
        else:
            self._distribute(message, now)
        self.message_count += 1
        self.message_bytes += len(message.body)

    def flow(self, now: float) -> None:
        """Move what is stored to the channels, if there are any and the topic is not paused."""
        while len(self.queue) and self.channels and not self.paused:
            self._distribute(self.queue.get(), now)

    def _distribute(self, message: StoredMessage, now: float) -> None:
        copies = [message]
        copies += [message.copy() for _ in range(len(self.channels) - 1)]
        for channel, copy in zip(self.channels.values(), copies):
            channel.put(copy, now)


class Broker:
    """All topics of one server.

    ``open_backend(topic, channel)`` makes the store for what has no room in memory; ``channel``
    is None for the topic itself. It is not asked for ephemerals.
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
        self.agenda = Agenda(rng)
        #: Once set, publishing and subscribing fail with "exiting".
        self.is_exiting = False
        self._limits = QueueLimits() if limits is None else limits
        self._node_id = node_id
        self._open_backend = open_backend
        self._notices: list[Notice] = []

    def take_notices(self) -> list[Notice]:
        """Remove and return what happened to topics and channels, in order."""
        notices, self._notices = self._notices, []
        return notices

    # -- finding and making

    def topic(self, name: str) -> Topic:
        """Return an existing topic. Raises TopicNotFound."""
        try:
            return self.topics[name]
        except KeyError:
            raise TopicNotFound(name) from None

    def channel(self, topic: str, name: str) -> Channel:
        """Return an existing channel. Raises TopicNotFound or ChannelNotFound."""
        try:
            return self.topic(topic).channels[name]
        except KeyError:
            raise ChannelNotFound(name) from None

    def open_topic(self, name: str) -> Topic:
        """Return the topic, made if need be."""
        topic = self.topics.get(name)
        if topic is None:
            self._check_exiting()
            backend = self._backend(name, None)
            topic = self.topics[name] = Topic(name, self._limits, backend, self._node_id)
            self._notices.append(Notice(True, name, None))
        return topic

    def open_channel(self, topic: str, name: str, now: float) -> Channel:
        """Return the channel, made with its topic if need be; the first one gets the backlog."""
        parent = self.open_topic(topic)
        channel = parent.channels.get(name)
        if channel is None:
            self._check_exiting()
            backend = self._backend(topic, name)
            channel = Channel(topic, name, self._limits, backend, self.agenda)
            parent.channels[name] = channel
            self._notices.append(Notice(True, topic, name))
            parent.flow(now)
        return channel

    def prepare_topic(
        self, name: str, channels: Iterable[str], now: float, paused: bool = False
    ) -> Topic:
        """Make a topic and several channels of it before any message flows, so all get it."""
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
            return MemoryBackend()
        return self._open_backend(topic, channel)

    def _check_exiting(self) -> None:
        if self.is_exiting:
            raise BrokerError("exiting")

    # -- clients

    def publish(
        self, topic: str, bodies: Sequence[bytes], now: float, timestamp: int, deferral: float = 0
    ) -> None:
        """Store messages; ``timestamp`` in ns, ``deferral`` in seconds.

        Raises:
            BrokerError: exiting.
            OSError: the disk refused.
        """
        self._check_exiting()
        target = self.open_topic(topic)
        put = target.put
        for message_id, body in zip(target.ids.take(len(bodies), timestamp), bodies):
            put(StoredMessage(message_id, timestamp, body, 0, deferral), now)

    def subscribe(self, topic: str, channel: str, consumer: Consumer, now: float) -> Channel:
        """Add a consumer, making topic and channel if need be.

        Raises:
            BrokerError: exiting, or the channel has all consumers it may have.
        """
        self._check_exiting()
        target = self.open_channel(topic, channel, now)
        most = self._limits.max_channel_consumers
        if most and len(target.consumers) >= most:
            raise BrokerError(f"consumers for {topic}:{channel} exceeds limit of {most}")
        target.add_consumer(consumer)
        return target

    def unsubscribe(self, channel: Channel, consumer: Consumer) -> None:
        """Remove a consumer; an ephemeral channel goes with its last one."""
        channel.remove_consumer(consumer)
        topic = self.topics.get(channel.topic)
        # The name may by now belong to a newer channel: look for this very one.
        if topic is None or topic.channels.get(channel.name) is not channel:
            return
        if is_ephemeral(channel.name) and not channel.consumers and not self.is_exiting:
            self.delete_channel(channel.topic, channel.name)

    # -- operators

    def delete_topic(self, name: str) -> None:
        """Drop a topic with its channels and messages; its consumers are ended."""
        topic = self.topic(name)
        # nsqd tells of the topic first, then of its channels.
        del self.topics[name]
        self._notices.append(Notice(False, name, None))
        for channel in topic.channels.values():
            self._drop(channel)
        topic.queue.clear()
        topic.queue.backend.delete()

    def delete_channel(self, topic: str, name: str) -> None:
        """Drop a channel and its messages; an ephemeral topic goes with its last channel."""
        channel = self.channel(topic, name)
        parent = self.topics[topic]
        del parent.channels[name]
        self._drop(channel)
        if is_ephemeral(topic) and not parent.channels:
            self.delete_topic(topic)

    def _drop(self, channel: Channel) -> None:
        channel.end()
        channel.empty(0.0)
        channel.queue.backend.delete()
        self._notices.append(Notice(False, channel.topic, channel.name))

    def empty_topic(self, name: str) -> None:
        """Drop what the topic itself stores; its channels keep theirs."""
        self.topic(name).queue.clear()

    def empty_channel(self, topic: str, name: str, now: float) -> None:
        """Drop every message of a channel."""
        self.channel(topic, name).empty(now)

    def pause_topic(self, name: str, paused: bool, now: float) -> None:
        """Stop or resume the flow from a topic to its channels."""
        topic = self.topic(name)
        topic.paused = paused
        topic.flow(now)

    def pause_channel(self, topic: str, name: str, paused: bool, now: float) -> None:
        """Stop or resume deliveries of a channel."""
        self.channel(topic, name).set_paused(paused, now)

    # -- the end

    def close(self, keep: bool) -> None:
        """End every consumer; with ``keep`` all messages go to their backends first."""
        self.is_exiting = True
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.end()
                if keep:
                    _flush(channel.queue, channel.in_flight.values(), channel.deferred.values())
                channel.queue.backend.close()
            if keep:
                _flush(topic.queue)
            topic.queue.backend.close()


def _flush(queue: MessageQueue, *others: Iterable[StoredMessage]) -> None:
    """Move the messages in memory, and those in hand, to the backend."""
    for messages in (list(queue.memory), *others):
        for message in messages:
            queue.backend.put(message)
    queue.memory.clear()
