"""The state that the nsqds and nsqlookupds of one embedded cluster share. Pure.

The leader of a partition and the leader that nsqlookupds list are separate: in a real cluster
nsqlookupds follow with a delay, and ``cluster`` has a method for each step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nsqclient.devserver.broker import TopicChange
from nsqclient.devserver.partitioned.queue import (
    LogMessage, PartitionChannel, PartitionConsumer, PartitionLog,
)
from nsqclient.devserver.protocol.commands import CommandError, NewMessage
from nsqclient.devserver.queues import Scheduler


class TopicMeta(NamedTuple):
    partition_num: int = 0
    replica: int = 0
    ordered: bool = False
    extended: bool = False
    multi_part: bool = False
    channels_are_registered: bool = False  #: SUB does not make a channel


@dataclass
class Partition:
    """One partition: its messages, its leader, and the leader that nsqlookupds list."""

    log: PartitionLog
    leader: int  #: the number of the nsqd that serves it
    replicas: list[int]  #: nsqds with a copy, the leader among them
    listed_r: int | None  #: the leader in nsqlookupds for readers
    listed_w: int | None  #: for writers
    is_writable: bool = True
    is_readable: bool = True
    #: False: its leader answers NOT_LEADER (see create_topic's ``under_load``).
    is_served: bool = True
    is_hung: bool = False  #: while it is writable, a publish to it is not answered
    taken_from: int | None = None  #: the crashed leader, until its takeover is complete


@dataclass
class Topic:
    name: str
    meta: TopicMeta
    partitions: dict[int, Partition] = field(default_factory=dict)
    tombstones: set[int] = field(default_factory=set)  #: nsqds that are hidden from writers


class ClusterState:
    """Topics, partitions and channels. The caller holds one lock around everything."""

    def __init__(self, max_msg_timeout: float = 900.0, needs_channel: bool = False) -> None:
        self.scheduler: Scheduler = Scheduler()
        self.topics: dict[str, Topic] = {}
        self.dead: set[int] = set()  #: nsqds that have crashed and were not restarted
        self.needs_channel = needs_channel
        self.is_write_disabled = False
        self._max_msg_timeout = max_msg_timeout

    def take_changes(self) -> list[TopicChange]:
        """For the engine: this cluster does not notify observers."""
        return []

    def create_topic(
        self, name: str, meta: TopicMeta, nsqds: int, channels: Iterable[str]
    ) -> None:
        """Create a topic if it does not exist.

        Partition ``p`` is led by nsqd ``p`` modulo their number.
        """
        if name in self.topics:
            return
        topic = self.topics[name] = Topic(name, meta)
        for number in range(meta.partition_num):
            replicas = [(number + step) % nsqds for step in range(min(meta.replica, nsqds))]
            topic.partitions[number] = Partition(
                PartitionLog(number), replicas[0], replicas, replicas[0], replicas[0],
            )
        for channel in channels:
            for partition in topic.partitions.values():
                self.open_channel(topic, partition, channel)

    def topic(self, name: str) -> Topic:
        found = self.topics.get(name)
        if found is None:
            raise CommandError("E_TOPIC_NOT_EXIST")
        return found

    def delete_topic(self, name: str, now: float) -> None:
        for partition in self.topic(name).partitions.values():
            partition.log.end_consumers(now)
        del self.topics[name]

    def open_channel(self, topic: Topic, partition: Partition, name: str) -> PartitionChannel:
        """Return a channel of a partition; create it at the end of the log if it does not exist."""
        log = partition.log
        channel = log.channels.get(name)
        if channel is None:
            channel = PartitionChannel(log, name, self.scheduler, self._max_msg_timeout)
            log.channels[name] = channel
        return channel

    def find(self, nsqd: int, topic_name: str, number: int | None) -> tuple[Topic, Partition]:
        """Return the partition of a command.

        Raises CommandError if the topic is unknown or this nsqd has no copy.
        """
        topic = self.topic(topic_name)
        if number is None:
            if topic.meta.ordered or topic.meta.multi_part:
                raise CommandError(
                    "E_BAD_PARTITION", "topic should have a partition: multi partition: -1"
                )
            led = [one for one in topic.partitions.values() if one.leader == nsqd]
            if not led:
                raise CommandError("E_TOPIC_NOT_EXIST")
            return topic, led[0]
        partition = topic.partitions.get(number)
        if partition is None or nsqd not in partition.replicas:
            raise CommandError("E_TOPIC_NOT_EXIST")
        return topic, partition

    def check_serves(self, nsqd: int, partition: Partition) -> None:
        if partition.leader != nsqd or nsqd in self.dead or not partition.is_served:
            raise CommandError("E_FAILED_ON_NOT_LEADER")

    def publish(
        self, nsqd: int, topic_name: str, number: int | None, messages: list[NewMessage],
        timestamp: int, now: float,
    ) -> list[LogMessage]:
        """Store messages in one partition. Raises CommandError: not the leader, or not writable."""
        _, partition = self.find(nsqd, topic_name, number)
        if partition.leader != nsqd:
            raise CommandError("E_FAILED_ON_NOT_LEADER")
        if not partition.is_writable or self.is_write_disabled:
            raise CommandError("E_FAILED_ON_NOT_WRITABLE")
        stored = [
            partition.log.append(new.body, new.trace_id, new.header, timestamp) for new in messages
        ]
        partition.log.flow(now)
        return stored

    def subscribe(
        self, nsqd: int, topic_name: str, number: int | None, channel_name: str,
        consumer: PartitionConsumer, ordered: bool, has_ext: bool,
    ) -> PartitionChannel:
        topic, partition = self.find(nsqd, topic_name, number)
        if partition.leader != nsqd:
            raise CommandError("E_FAILED_ON_NOT_LEADER")
        if not partition.is_readable:
            raise CommandError("E_FAILED_ON_NOT_WRITABLE")
        if topic.meta.ordered and not ordered:
            raise CommandError("E_SUB_ORDER_IS_MUST")
        if topic.meta.extended and not has_ext:
            raise CommandError("E_SUB_EXTEND_NEED")
        if has_ext and not topic.meta.extended:
            raise CommandError("E_SUB_EXTEND_FORBIDDON")
        is_new = channel_name not in partition.log.channels
        if is_new and topic.meta.channels_are_registered:
            raise CommandError("E_SUB_CHANNEL_NOT_REGISTERED")
        channel = self.open_channel(topic, partition, channel_name)
        if ordered:
            channel.is_ordered = True
        channel.add_consumer(consumer)
        return channel

    def elect(self, nsqd: int, writable: bool) -> None:
        """Let the next running replica lead each partition that a crashed nsqd leads.

        With ``writable``, also complete an earlier call without it.
        """
        for partition in [one for topic in self.topics.values()
                          for one in topic.partitions.values()]:
            if nsqd not in (partition.leader, partition.taken_from):
                continue
            if partition.leader == nsqd:
                leader = next((one for one in partition.replicas if one not in self.dead), None)
                if leader is None:
                    continue
                partition.leader = leader
            partition.listed_r = partition.leader
            partition.listed_w = partition.leader if writable else None
            partition.is_writable = writable
            partition.taken_from = None if writable else nsqd

    def listed(self, topic: Topic, access: str) -> dict[int, int] | None:
        """Return partition -> nsqd for readers (r) or writers (w); None: writes are disabled."""
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
        """True if all partitions are hidden from writers, because none has a channel."""
        return self.needs_channel and not any(
            partition.log.channels for partition in topic.partitions.values()
        )

    def channels_of(self, topic: Topic) -> list[str]:
        return sorted({
            name for partition in topic.partitions.values() for name in partition.log.channels
        })
