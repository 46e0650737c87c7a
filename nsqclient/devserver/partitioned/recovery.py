"""How an embedded cluster recovers from failures by itself: what follows after how long. Pure.

The delays were measured on a real cluster of version 0.3.7-HA with 3 nsqds, multiplied by a scale.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqclient.devserver.partitioned.state import ClusterState, Partition, Topic

#: Seconds from the crash of a leader until nsqlookupds list a new one for readers. It still answers
#: NOT_LEADER then.
NEW_LEADER_LISTED = 34.0
#: Seconds until it serves, and is listed for writers.
NEW_LEADER_SERVES = 38.0
#: Seconds from the crash of an nsqd that is only a replica until it does not count any more.
REPLICA_DROPPED = 46.0
#: Seconds after which a PUB that waits for such a replica is answered NOT_WRITABLE.
HUNG_PUBLISH = 25.0
#: Seconds from the restart of an nsqd until it serves.
NODE_REJOINS = 72.0
#: Seconds from the creation of a topic under load until its leaders serve.
NEW_TOPIC_SERVED = 120.0
#: Seconds after a planned move, or a recovery, in which the next move is refused.
BETWEEN_MOVES = 30.0

_NEVER = float("inf")


class MoveRefusedError(Exception):
    """The cluster refuses to move a leader: it is not stable."""


class _Step:
    """Something that happens later."""

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.scheduled = due
        self._action = action

    def tick(self, now: float) -> None:
        self._action()


class Recovery:
    """Schedules what follows from failures. The caller holds the lock of the state.

    Args:
        scale: of all delays; 0: nothing happens by itself.
        wake: makes nsqds look again at the publishes that hang.
    """

    def __init__(self, state: ClusterState, scale: float, wake: Callable[[], None]) -> None:
        self._state = state
        self._wake = wake
        self._scale = scale
        self._stable_at = -_NEVER
        state.waits_for_replicas = scale > 0

    def hung_until(self, now: float) -> float:
        """Return when a PUB that hangs from now on is answered NOT_WRITABLE."""
        return now + HUNG_PUBLISH * self._scale if self._scale else _NEVER

    def check_move(self, now: float) -> None:
        """Raise MoveRefusedError while the cluster is not stable."""
        if now < self._stable_at:
            raise MoveRefusedError("cluster is unstable")

    def on_moved(self, now: float) -> None:
        self._expect_stable(now + BETWEEN_MOVES * self._scale)

    def on_crash(self, nsqd: int, now: float) -> None:
        """An nsqd crashed: a replica of each partition becomes its leader, later."""
        self._later(now, NEW_LEADER_LISTED, lambda: self._list_new_leaders(nsqd))
        self._later(now, NEW_LEADER_SERVES, lambda: self._elect_if_dead(nsqd))
        self._later(now, REPLICA_DROPPED, lambda: self._drop_replica(nsqd))

    def on_restart(self, nsqd: int, now: float) -> None:
        if self._scale:
            self._later(now, NODE_REJOINS, lambda: self._rejoin(nsqd))
        else:
            self._rejoin(nsqd)

    def on_created_under_load(self, topic: Topic, now: float) -> None:
        """The leaders of a new topic serve later."""
        for partition in topic.partitions.values():
            partition.is_served, partition.listed_w = False, None
        self._later(now, NEW_TOPIC_SERVED, lambda: self.serve(topic))

    @staticmethod
    def serve(topic: Topic) -> None:
        """The leaders of a topic that was created under load serve from now on."""
        for partition in topic.partitions.values():
            partition.is_served, partition.listed_w = True, partition.leader

    def elect(self, nsqd: int, writable: bool) -> None:
        """Let the next running replica lead the partitions of a crashed nsqd.

        Args:
            writable: False for the time when nsqlookupds list the leader for readers only.
        """
        for partition in self._partitions():
            if partition.leader != nsqd and partition.listed_w is not None:
                continue
            if partition.leader == nsqd:
                leader = self._next_leader(partition)
                if leader is None:
                    continue
                partition.leader = leader
                partition.in_sync = [one for one in partition.in_sync if one != nsqd]
            partition.listed_r = partition.leader
            partition.listed_w = partition.leader if writable else None
            partition.is_writable = writable

    def _partitions(self) -> list[Partition]:
        topics = self._state.topics.values()
        return [partition for topic in topics for partition in topic.partitions.values()]

    def _next_leader(self, partition: Partition) -> int | None:
        alive = (one for one in partition.replicas if one not in self._state.dead)
        return next(alive, None)

    def _list_new_leaders(self, nsqd: int) -> None:
        for partition in self._partitions():
            if partition.leader == nsqd and nsqd in self._state.dead:
                leader = self._next_leader(partition)
                partition.listed_r = nsqd if leader is None else leader

    def _elect_if_dead(self, nsqd: int) -> None:
        if nsqd in self._state.dead:
            self.elect(nsqd, writable=True)

    def _drop_replica(self, nsqd: int) -> None:
        for partition in self._partitions():
            if nsqd in self._state.dead and partition.leader != nsqd:
                partition.in_sync = [one for one in partition.in_sync if one != nsqd]
        self._wake()

    def _rejoin(self, nsqd: int) -> None:
        self._state.dead.discard(nsqd)
        for partition in self._partitions():
            if nsqd in partition.replicas and nsqd not in partition.in_sync:
                partition.in_sync.append(nsqd)
        self._wake()

    def _later(self, now: float, delay: float, action: Callable[[], None]) -> None:
        if not self._scale:
            return
        due = now + delay * self._scale
        self._expect_stable(due)
        self._state.scheduler.schedule(due, _Step(due, action))

    def _expect_stable(self, at: float) -> None:
        if self._scale:
            self._stable_at = max(self._stable_at, at)
