"""``PartitionedCluster``: starts the nsqds and nsqlookupds, and plays the scripts of a bad day."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable

from nsqclient.devserver.engine import Engine
from nsqclient.devserver.partitioned.lookupd import PartitionedLookupd
from nsqclient.devserver.partitioned.nsqd import PartitionedNsqd
from nsqclient.devserver.partitioned.queue import LogMessage
from nsqclient.devserver.partitioned.state import ClusterState, Partition
from nsqclient.partitions.routes import TopicMeta
from nsqclient.protocol.extended import Stored
from nsqclient.protocol.partition_events import NewMessage
from nsqclient.protocol.partition_server import PARTITIONED_VERSION
from nsqclient.protocol.server_identify import ServerLimits
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.devserver")


class PartitionedCluster:
    """Several nsqds and nsqlookupds that share one state, in this process.

    Args:
        nsqds, nsqlookupds: how many; the first nsqlookupd leads.
        msg_timeout, max_msg_timeout: as nsqd's flags, in seconds.
        needs_channel: writers are told of a partition only when it has a channel, as in a real
            cluster by default; here tests may begin with the producer.
        host: where all listen.
        tcp_port, http_port, lookupd_http_port: of the first one each, the next ones two above;
            0 takes free ones.

    Life: created, :meth:`start`, :meth:`stop`; or a ``with`` block.
    Threads: every method, any thread.
    """

    def __init__(
        self,
        nsqds: int = 3,
        nsqlookupds: int = 2,
        *,
        msg_timeout: float = 60.0,
        max_msg_timeout: float = 900.0,
        needs_channel: bool = False,
        host: str = "127.0.0.1",
        tcp_port: int = 0,
        http_port: int = 0,
        lookupd_http_port: int = 0,
    ) -> None:
        limits = ServerLimits(
            msg_timeout=round(msg_timeout * 1000), max_msg_timeout=round(max_msg_timeout * 1000),
            output_buffer_timeout=50, min_output_buffer_timeout=10,
            version=PARTITIONED_VERSION, deflate=True, snappy=True,
        )
        self._engine = Engine(ClusterState(max_msg_timeout, needs_channel))
        self._leader = 0
        session_numbers = itertools.count(1)  # one bell for each session of the cluster
        self.nsqds = [
            PartitionedNsqd(
                number, self._engine, limits, lambda: next(session_numbers), host,
                _port(tcp_port, number), _port(http_port, number),
            )
            for number in range(nsqds)
        ]
        self.nsqlookupds: list[PartitionedLookupd] = [
            PartitionedLookupd(
                number, self._engine, self.nsqds, lambda: self._leader,
                lambda: self.nsqlookupds, host, _port(lookupd_http_port, number),
            )
            for number in range(nsqlookupds)
        ]

    @property
    def lookupd_http_addresses(self) -> list[str]:
        """``host:port`` of every nsqlookupd, for consumers and producers."""
        return [lookupd.http_address for lookupd in self.nsqlookupds]

    def start(self) -> None:
        """Start all of them.

        Raises:
            OSError: a port is taken; nothing is left open.
        """
        try:
            self._engine.start()
            for nsqd in self.nsqds:
                nsqd.start()
            for lookupd in self.nsqlookupds:
                lookupd.start()
        except BaseException:
            self.stop()
            raise
        for nsqd in self.nsqds:
            logger.info("TCP: listening on %s", nsqd.tcp_address)
            logger.info("HTTP: listening on %s", nsqd.http_address)
        for lookupd in self.nsqlookupds:
            logger.info("nsqlookupd HTTP: listening on %s", lookupd.http_address)

    def stop(self, timeout: float | None = None) -> None:
        """Stop all of them. Idempotent. Blocks until all threads ended, or ``timeout`` seconds."""
        deadline = Deadline(timeout)
        for lookupd in self.nsqlookupds:
            lookupd.stop(deadline)
        for nsqd in self.nsqds:
            nsqd.stop(deadline)
        self._engine.stop(deadline)

    def __enter__(self) -> PartitionedCluster:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # -- topics and messages

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replicas: int = 1,
        ordered: bool = False,
        extended: bool = False,
        channels: Iterable[str] = (),
        registered_channels: bool = False,
    ) -> None:
        """Make a topic; partition ``p`` is led by nsqd ``p`` modulo their number.

        Args:
            replicas: how many nsqds may lead each partition.
            ordered: it is consumed in order, and published to with keys.
            extended: its messages have JSON headers.
            channels: made with it; a channel that comes later begins at the end.
            registered_channels: SUB makes no channel.
        """
        meta = TopicMeta(
            partitions, replicas, ordered=ordered, extended=extended,
            channels_are_registered=registered_channels,
        )
        with self._engine as state:
            state.create_topic(topic, meta, len(self.nsqds), channels, self._engine.now)

    def publish(
        self, topic: str, partition: int, body: bytes, trace_id: int = 0, header: bytes = b""
    ) -> Stored:
        """Store a message at its leader, whatever nsqlookupds say; return where it is."""
        with self._engine as state:
            nsqd = self._partition(state, topic, partition).leader
            stored, = state.publish(
                nsqd, topic, partition, [NewMessage(body, trace_id, header)], time.time_ns(),
                self._engine.now,
            )
        return Stored(*stored.ids, stored.offset, stored.size)

    def messages(self, topic: str, partition: int, channel: str | None = None) -> list[bytes]:
        """The bodies in a partition, or those that a channel has not finished, in order."""
        with self._engine as state:
            log = self._partition(state, topic, partition).log
            found: list[LogMessage] = log.messages
            if channel is not None:
                found = log.channels[channel].unfinished()
            return [message.body for message in found]

    def wait_until_empty(self, topic: str, channel: str, timeout: float = 10.0) -> None:
        """Wait until every partition has the channel and all of its messages are finished.

        Raises:
            TimeoutError: some are left.
        """

        def is_empty(state: ClusterState) -> bool:
            logs = [partition.log for partition in state.topics[topic].partitions.values()]
            return all(channel in log.channels and not log.channels[channel].depth()
                       for log in logs)

        if not self._engine.wait_until(is_empty, timeout):
            raise TimeoutError(f"{topic}:{channel} is not empty after {timeout:g} s")

    def leader_of(self, topic: str, partition: int) -> int:
        """The number of the nsqd that serves a partition."""
        with self._engine as state:
            return self._partition(state, topic, partition).leader

    # -- scripts: a planned move of a leader

    def begin_move(self, topic: str, partition: int) -> None:
        """First half: not writable, writers are told of no leader, readers of the old one."""
        with self._engine as state:
            found = self._partition(state, topic, partition)
            found.is_writable = False
            found.listed_w = None

    def finish_move(self, topic: str, partition: int, to: int | None = None) -> int:
        """Second half: another nsqd leads; consumers of the old one get a bare EOF.

        Args:
            to: the nsqd; None for the next one. It gets a copy if it has none.

        Returns: the nsqd that leads now.
        """
        with self._engine as state:
            found = self._partition(state, topic, partition)
            target = (found.leader + 1) % len(self.nsqds) if to is None else to
            if target not in found.replicas:
                found.replicas.append(target)
            found.leader = found.listed_r = found.listed_w = target
            found.is_writable = True
            found.log.end_consumers(self._engine.now)
            return target

    def move_leader(self, topic: str, partition: int, to: int | None = None) -> int:
        """Both halves of a planned move at once. Returns: the nsqd that leads now."""
        self.begin_move(topic, partition)
        return self.finish_move(topic, partition, to)

    # -- scripts: a crash

    def crash(self, nsqd: int) -> None:
        """End a nsqd at once; nsqlookupds name it to nobody from now on."""
        with self._engine as state:
            state.dead.add(nsqd)
        self.nsqds[nsqd].stop()

    def take_over(self, nsqd: int, *, writable: bool = True) -> None:
        """Let the next living replica lead what a crashed nsqd led.

        Args:
            writable: False for the time when readers are told and writers are not yet.
        """
        with self._engine as state:
            for topic in state.topics.values():
                for partition in topic.partitions.values():
                    if partition.leader != nsqd and partition.listed_w is not None:
                        continue
                    if partition.leader == nsqd:
                        alive = [one for one in partition.replicas if one not in state.dead]
                        if not alive:
                            continue
                        partition.leader = alive[0]
                    partition.listed_r = partition.leader
                    partition.listed_w = partition.leader if writable else None
                    partition.is_writable = writable

    def restart(self, nsqd: int) -> None:
        """Bring a crashed nsqd back, on its ports."""
        self.nsqds[nsqd].start()
        with self._engine as state:
            state.dead.discard(nsqd)

    # -- scripts: what operators do

    def tombstone(self, topic: str, nsqd: int, *, restore: bool = False) -> None:
        """Hide a nsqd from writers of a topic; readers see it, and publishes to it still work."""
        with self._engine as state:
            tombstones = state.topic(topic).tombstones
            (tombstones.discard if restore else tombstones.add)(nsqd)

    def disable_write(self, disabled: bool = True) -> None:
        """Let nsqlookupds answer writers with nulls, and nsqds with NOT_WRITABLE."""
        with self._engine as state:
            state.is_write_disabled = disabled

    def disable_read(self, topic: str, partition: int, disabled: bool = True) -> None:
        """Refuse subscriptions for the moment with NOT_WRITABLE."""
        with self._engine as state:
            self._partition(state, topic, partition).is_readable = not disabled

    def hide(self, topic: str, partition: int, hidden: bool = True) -> None:
        """Let nsqlookupds leave a partition out, as while none of its copies is alive."""
        with self._engine as state:
            found = self._partition(state, topic, partition)
            found.listed_r = found.listed_w = None if hidden else found.leader

    def lead_lookupd(self, nsqlookupd: int) -> None:
        """Make another nsqlookupd the leading one."""
        self._leader = nsqlookupd

    @staticmethod
    def _partition(state: ClusterState, topic: str, partition: int) -> Partition:
        return state.topic(topic).partitions[partition]


def _port(first: int, number: int) -> int:
    return first + 2 * number if first else 0
