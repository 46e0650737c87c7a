"""The state that the nsqds and nsqlookupds of one embedded cluster share. Pure.

Which nsqd leads a partition, and what nsqlookupds say of it, are two things: in a real cluster
one follows the other late, and the scripts of ``cluster`` show every step of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nsqclient.devserver.broker import Notice
from nsqclient.devserver.partitioned.queue import (
    LogMessage,
    PartitionChannel,
    PartitionConsumer,
    PartitionLog,
)
from nsqclient.devserver.queues import Agenda
from nsqclient.partitions.routes import TopicMeta
from nsqclient.protocol.partition_events import NewMessage


class Refusal(Exception):
    """The server refuses, with this code and text."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass
class Partition:
    """One partition: its messages, who leads it, and what is said of that."""

    log: PartitionLog
    leader: int  #: the number of the nsqd that serves it
    replicas: list[int]  #: nsqds with a copy, the leader among them
    listed_r: int | None  #: whom nsqlookupds name to readers
    listed_w: int | None  #: whom they name to writers
    is_writable: bool = True
    is_readable: bool = True


@dataclass
class Topic:
    """One topic."""

    name: str
    meta: TopicMeta
    partitions: dict[int, Partition] = field(default_factory=dict)
    tombstones: set[int] = field(default_factory=set)  #: nsqds that are hidden from writers


class ClusterState:
    """Topics, partitions and channels. Whoever calls holds one lock around it all.

    ``needs_channel``: writers are not told of partitions without a channel, as by default in a
    real cluster.
    """

    def __init__(self, max_msg_timeout: float = 900.0, needs_channel: bool = False) -> None:
        self.agenda = Agenda()
        self.topics: dict[str, Topic] = {}
        self.dead: set[int] = set()  #: nsqds that have crashed
        self.needs_channel = needs_channel
        self.is_write_disabled = False
        self._max_msg_timeout = max_msg_timeout

    def take_notices(self) -> list[Notice]:
        """For the engine: nobody is told of topics here."""
        return []

    # -- topics

    def create_topic(
        self, name: str, meta: TopicMeta, nsqds: int, channels: Iterable[str], now: float
    ) -> None:
        """Make a topic; partition by partition the next nsqd leads. Nothing if there is one."""
        if name in self.topics:
            return
        topic = self.topics[name] = Topic(name, meta)
        for number in range(meta.partition_num):
            replicas = [(number + step) % nsqds for step in range(min(meta.replica, nsqds))]
            topic.partitions[number] = Partition(
                PartitionLog(number), replicas[0], replicas, replicas[0], replicas[0]
            )
        for channel in channels:
            for partition in topic.partitions.values():
                self.open_channel(topic, partition, channel)

    def topic(self, name: str) -> Topic:
        """Return a topic; Refusal E_TOPIC_NOT_EXIST when there is none."""
        found = self.topics.get(name)
        if found is None:
            raise Refusal("E_TOPIC_NOT_EXIST")
        return found

    def delete_topic(self, name: str, now: float) -> None:
        """Drop a topic; its consumers' connections end."""
        for partition in self.topic(name).partitions.values():
            partition.log.end_consumers(now)
        del self.topics[name]

    def open_channel(self, topic: Topic, partition: Partition, name: str) -> PartitionChannel:
        """Return a channel of a partition, made at the end of its queue where there was none."""
        log = partition.log
        channel = log.channels.get(name)
        if channel is None:
            channel = PartitionChannel(log, name, self.agenda, self._max_msg_timeout)
            log.channels[name] = channel
        return channel

    # -- one nsqd's commands

    def find(self, nsqd: int, topic_name: str, number: int | None) -> tuple[Topic, Partition]:
        """Return the partition that a command means.

        Raises:
            Refusal: E_TOPIC_NOT_EXIST, also where this nsqd has no copy; E_BAD_PARTITION where
                one must be named.
        """
        topic = self.topic(topic_name)
        if number is None:
            if topic.meta.ordered or topic.meta.multi_part:
                raise Refusal("E_BAD_PARTITION", "topic should have a partition: multi"
                              " partition: -1")
            led = [one for one in topic.partitions.values() if one.leader == nsqd]
            if not led:
                raise Refusal("E_TOPIC_NOT_EXIST")
            return topic, led[0]
        partition = topic.partitions.get(number)
        if partition is None or nsqd not in partition.replicas:
            raise Refusal("E_TOPIC_NOT_EXIST")
        return topic, partition

    def publish(
        self, nsqd: int, topic_name: str, number: int | None, messages: list[NewMessage],
        timestamp: int, now: float,
    ) -> list[LogMessage]:
        """Store messages in one partition. Raises Refusal: not the leader, or not writable."""
        _, partition = self.find(nsqd, topic_name, number)
        if partition.leader != nsqd:
            raise Refusal("E_FAILED_ON_NOT_LEADER")
        if not partition.is_writable or self.is_write_disabled:
            raise Refusal("E_FAILED_ON_NOT_WRITABLE")
        stored = [
            partition.log.append(new.body, new.trace_id, new.header, timestamp) for new in messages
        ]
        partition.log.flow(now)
        return stored

    def subscribe(
        self, nsqd: int, topic_name: str, number: int | None, channel_name: str,
        consumer: PartitionConsumer, ordered: bool, has_ext: bool,
    ) -> PartitionChannel:
        """Let a consumer into a channel. Raises Refusal."""
        topic, partition = self.find(nsqd, topic_name, number)
        if partition.leader != nsqd:
            raise Refusal("E_FAILED_ON_NOT_LEADER")
        if not partition.is_readable:
            raise Refusal("E_FAILED_ON_NOT_WRITABLE")
        if topic.meta.ordered and not ordered:
            raise Refusal("E_SUB_ORDER_IS_MUST")
        if topic.meta.extended and not has_ext:
            raise Refusal("E_SUB_EXTEND_NEED")
        if has_ext and not topic.meta.extended:
            raise Refusal("E_SUB_EXTEND_FORBIDDON")
        is_new = channel_name not in partition.log.channels
        if is_new and topic.meta.channels_are_registered:
            raise Refusal("E_SUB_CHANNEL_NOT_REGISTERED")
        channel = self.open_channel(topic, partition, channel_name)
        if ordered:
            channel.is_ordered = True
        channel.add_consumer(consumer)
        return channel

    # -- what nsqlookupds say

    def listed(self, topic: Topic, access: str) -> dict[int, int] | None:
        """Return partition -> nsqd as readers (r) or writers (w) are told; None while all writes
        are disabled."""
        if access == "w" and self.is_write_disabled:
            return None
        found = {}
        for number, partition in topic.partitions.items():
            nsqd = partition.listed_r if access == "r" else partition.listed_w
            if nsqd is None or nsqd in self.dead:
                continue
            if access == "w" and (
                nsqd in topic.tombstones or self.needs_channel and not partition.log.channels
            ):
                continue
            found[number] = nsqd
        return found

    def lacks_channels(self, topic: Topic) -> bool:
        """Tell whether writers are told of no partition because none has a channel."""
        return self.needs_channel and not any(
            partition.log.channels for partition in topic.partitions.values()
        )

    def channels_of(self, topic: Topic) -> list[str]:
        """The channels of a topic."""
        return sorted({
            name for partition in topic.partitions.values() for name in partition.log.channels
        })
