"""How long a shard is without an owner, as the storage and nsqd show it."""

from __future__ import annotations

import threading
import time

from nsqclient.spark.shards.assignment import PROVEN_LOOKS
from nsqclient.spark.shards.names import MemberKeys, parse_heartbeat
from nsqclient.spark.shards.listing import ShardStatus, read_status

#: Seconds within which a lost owner's shard has a segment of the next owner, as the manual says.
PROMISED = 30.0
#: Seconds that a test waits for it.
_LIMIT = 120.0


def owned(store) -> dict[str, ShardStatus]:
    """The state of each shard that has a segment, by nsqd."""
    return {one.nsqd: one for one in read_status(store, "t", "c") if one.segment}


def is_settled(store, members: int) -> bool:
    """Whether so many owners know each other for so long that no shard moves any more."""
    beats = [beat for one in store.list_objects(MemberKeys("t", "c").folder)
             if (beat := parse_heartbeat(one.key)) is not None]
    return len({beat.member for beat in beats}) == members and all(
        beat.serial > PROVEN_LOOKS for beat in beats)


def seconds_to_takeover(store, lost: list[ShardStatus], killed: float) -> float:
    """Wait until each of these shards has a segment of another owner; return the seconds.

    Args:
        lost: their state before.
        killed: when their owner was killed, by ``time.monotonic``.
    """
    pause = threading.Event()
    while True:
        now = owned(store)
        if all(now[former.nsqd].owner not in ("", former.owner) for former in lost):
            return time.monotonic() - killed
        assert time.monotonic() < killed + _LIMIT, f"no other owner has written: {lost}"
        pause.wait(0.1)
