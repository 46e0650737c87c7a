"""``PartitionedCluster``: starts nsqds and nsqlookupds; moves, crashes and operators' changes."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable

from nsqclient.devserver.engine import Engine
from nsqclient.devserver.partitioned.lookupd import PartitionedLookupd
from nsqclient.devserver.partitioned.nsqd import PartitionedNsqd
from nsqclient.devserver.partitioned.queue import LogMessage
from nsqclient.devserver.partitioned.state import ClusterState, Partition, TopicMeta
from nsqclient.devserver.protocol.commands import NewMessage, ServerLimits
from nsqclient.devserver.protocol.partitioned import PARTITIONED_VERSION
from nsqclient.devserver.session_loop import SessionLoop
from nsqclient.errors import ConfigError
from nsqclient.protocol.commands import check_body
from nsqclient.protocol.partitioned.extensions import StoredPosition
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.runtime.deadline import Deadline, to_seconds

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

#: As in a real cluster.
_MOST_PARTITIONS = 1024


class PartitionedCluster:
    """Several nsqds and nsqlookupds that share one state, in this process.

    Args:
        nsqds, nsqlookupds: how many; the first nsqlookupd leads.
        msg_timeout, max_msg_timeout: as nsqd's flags, in seconds.
        needs_channel: hide a partition without a channel from writers, as a real cluster does by
            default. False: a test may begin with the producer.
        host: the address on which all listen.
        tcp_port, http_port, lookupd_http_port: of the first server; the port of each further one is
            two above. 0: free ports.

    Lifecycle: created, :meth:`start`, :meth:`stop`; or a ``with`` block.
    Threads: every method, any thread.

    Raises:
        ConfigError: an argument is out of its range. Methods raise it too, for an
            nsqd, nsqlookupd, partition or channel that does not exist.
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
        _check_count("nsqds", nsqds, 1)
        _check_count("nsqlookupds", nsqlookupds, 1)
        msg_timeout = to_seconds(msg_timeout, "msg_timeout", minimum=0.001)
        max_msg_timeout = to_seconds(max_msg_timeout, "max_msg_timeout")
        if msg_timeout > max_msg_timeout:
            raise ConfigError(f"msg_timeout of {msg_timeout:g} s is over max_msg_timeout of"
                              f" {max_msg_timeout:g} s")
        for name, port, count in (
            ("tcp_port", tcp_port, nsqds), ("http_port", http_port, nsqds),
            ("lookupd_http_port", lookupd_http_port, nsqlookupds),
        ):
            _check_count(name, port, 0, 65535 - 2 * (count - 1))
        limits = ServerLimits(
            msg_timeout=round(msg_timeout * 1000), max_msg_timeout=round(max_msg_timeout * 1000),
            output_buffer_timeout=50, min_output_buffer_timeout=10,
            version=PARTITIONED_VERSION, deflate=True, snappy=True,
        )
        state = ClusterState(max_msg_timeout, needs_channel)
        self._engine = Engine(state)
        self._loop = SessionLoop("devserver-nsqd-clients")
        self._leader = 0
        session_numbers = itertools.count(1)  # unique in the cluster's engine
        self.nsqds: list[PartitionedNsqd] = [
            PartitionedNsqd(
                number, self._engine, self._loop, limits, session_numbers, host,
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
        """Start all of them. Raises OSError if a port is taken."""
        try:
            self._engine.start()
            self._loop.start()
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
        self._loop.stop(deadline)
        self._engine.stop(deadline)

    def __enter__(self) -> PartitionedCluster:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

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
        under_load: bool = False,
    ) -> None:
        """Create a topic; partition ``p`` is led by nsqd ``p`` modulo their number.

        Args:
            replicas: how many nsqds may lead each partition.
            ordered: it is consumed in order and published to with keys.
            extended: its messages have JSON headers.
            channels: created with it; a channel created later begins at the end.
            registered_channels: SUB creates no channel.
            under_load: its leaders answer NOT_LEADER, and are not listed for writers, until
                ``serve_topic()``.

        Raises:
            InvalidTopicError, InvalidChannelError: a name is invalid.
        """
        check_topic(topic)
        channels = _checked_channels(channels)
        _check_count("partitions", partitions, 1, _MOST_PARTITIONS)
        _check_count("replicas", replicas, 1, len(self.nsqds))
        meta = TopicMeta(
            partitions, replicas, ordered=ordered, extended=extended,
            channels_are_registered=registered_channels,
        )
        with self._engine as state:
            state.create_topic(topic, meta, len(self.nsqds), channels)
            if under_load:
                for partition in state.topic(topic).partitions.values():
                    partition.is_served, partition.listed_w = False, None

    def serve_topic(self, topic: str) -> None:
        """Let the leaders of a topic that was created under load serve from now on."""
        with self._engine as state:
            for partition in state.topic(topic).partitions.values():
                partition.is_served, partition.listed_w = True, partition.leader

    def publish(
        self, topic: str, partition: int, body: bytes, trace_id: int = 0, header: bytes = b""
    ) -> StoredPosition:
        """Store a message at the leader, whatever nsqlookupds answer; return its position.

        Raises InvalidMessageError if the body is empty or not bytes.
        """
        body = check_body(body)
        with self._engine as state:
            nsqd = self._partition(state, topic, partition).leader
            stored, = state.publish(
                nsqd, topic, partition, [NewMessage(body, trace_id, header)], time.time_ns(),
                self._engine.now,
            )
        return StoredPosition(*stored.ids, stored.offset, stored.size)

    def messages(self, topic: str, partition: int, channel: str | None = None) -> list[bytes]:
        """The bodies in a partition, or the bodies that a channel has not finished, in order."""
        with self._engine as state:
            log = self._partition(state, topic, partition).log
            found: list[LogMessage] = log.messages
            if channel is not None:
                if channel not in log.channels:
                    raise ConfigError(f"partition {partition} of {topic} has no channel {channel}")
                found = log.channels[channel].unfinished()
            return [message.body for message in found]

    def wait_until_empty(self, topic: str, channel: str, timeout: float = 10.0) -> None:
        """Wait until all messages of the channel are finished in every partition.

        Raises TimeoutError.
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

    def begin_move(self, topic: str, partition: int) -> None:
        """Begin a move: no writes, and nsqlookupds list the old leader for readers only."""
        with self._engine as state:
            found = self._partition(state, topic, partition)
            found.is_writable = False
            found.listed_w = None

    def finish_move(self, topic: str, partition: int, to: int | None = None) -> int:
        """Finish a move: another nsqd leads, and consumers of the old one get EOF.

        Args:
            to: the nsqd, which gets a copy if it lacks one; None for the next one.

        Returns: the nsqd that leads now.
        """
        if to is not None:
            self._check_nsqd(to)
        with self._engine as state:
            found = self._partition(state, topic, partition)
            target = (found.leader + 1) % len(self.nsqds) if to is None else to
            if target not in found.replicas:
                found.replicas.append(target)
            found.leader = found.listed_r = found.listed_w = target
            found.is_writable, found.taken_from = True, None
            found.log.end_consumers(self._engine.now)
            return target

    def move_leader(self, topic: str, partition: int, to: int | None = None) -> int:
        """Begin and finish a planned move. Returns: the nsqd that leads now."""
        self.begin_move(topic, partition)
        return self.finish_move(topic, partition, to)

    def crash(self, nsqd: int) -> None:
        """End an nsqd at once; nsqlookupds no longer list it. Call ``take_over`` next."""
        self._check_nsqd(nsqd)
        with self._engine as state:
            state.dead.add(nsqd)
        self.nsqds[nsqd].stop()

    def take_over(self, nsqd: int, *, writable: bool = True) -> None:
        """Let the next running replica lead the partitions of a crashed nsqd.

        ``writable=False``: nsqlookupds list it for readers only, until a second call.
        """
        self._check_nsqd(nsqd)
        with self._engine as state:
            state.elect(nsqd, writable)

    def restart(self, nsqd: int) -> None:
        """Bring a crashed nsqd back, on its ports."""
        self._check_nsqd(nsqd)
        self.nsqds[nsqd].start()
        with self._engine as state:
            state.dead.discard(nsqd)

    def hang(self, topic: str, partition: int, hung: bool = True) -> None:
        """Do not answer publishes to a partition, as with a crashed replica.

        Later commands on the same connection wait too, whatever their topic.
        """
        with self._engine as state:
            self._partition(state, topic, partition).is_hung = hung
        self._wake()

    def _wake(self) -> None:
        for nsqd in self.nsqds:
            nsqd.wake()

    def tombstone(self, topic: str, nsqd: int, *, restore: bool = False) -> None:
        """Hide an nsqd from writers of a topic; readers see it, and publishes to it still work."""
        self._check_nsqd(nsqd)
        with self._engine as state:
            tombstones = state.topic(topic).tombstones
            (tombstones.discard if restore else tombstones.add)(nsqd)

    def disable_write(self, disabled: bool = True) -> None:
        """Let nsqlookupds answer writers with nulls, and nsqds with NOT_WRITABLE."""
        with self._engine as state:
            state.is_write_disabled = disabled

    def disable_read(self, topic: str, partition: int, disabled: bool = True) -> None:
        """Refuse subscriptions with NOT_WRITABLE."""
        with self._engine as state:
            self._partition(state, topic, partition).is_readable = not disabled

    def hide(self, topic: str, partition: int, hidden: bool = True) -> None:
        """Remove a partition from the answers of nsqlookupds, as if no nsqd with a copy ran."""
        with self._engine as state:
            found = self._partition(state, topic, partition)
            found.listed_r = found.listed_w = None if hidden else found.leader

    def lead_lookupd(self, nsqlookupd: int) -> None:
        """Let another nsqlookupd lead."""
        _check_count("nsqlookupd", nsqlookupd, 0, len(self.nsqlookupds) - 1)
        self._leader = nsqlookupd

    def _check_nsqd(self, number: int) -> None:
        _check_count("nsqd", number, 0, len(self.nsqds) - 1)

    @staticmethod
    def _partition(state: ClusterState, topic: str, partition: int) -> Partition:
        partitions = state.topic(topic).partitions
        _check_count("partition", partition, 0, len(partitions) - 1)
        return partitions[partition]


def _check_count(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= lowest and (
            highest is None or value <= highest):
        return
    wanted = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"
    raise ConfigError(f"{name} must be a whole number {wanted}, not {value!r}")


def _checked_channels(channels: Iterable[str]) -> list[str]:
    if isinstance(channels, str):
        raise ConfigError(f"channels must be a list of names, not {channels!r}")
    return [check_channel(channel) for channel in channels]


def _port(first: int, number: int) -> int:
    return first + 2 * number if first else 0
