"""``LostNodes``: nsqds that have disappeared, and the messages that waited there.

nsqlookupd forgets an nsqd that dies. The page and ``/metrics`` remember it: for a day, or until a
user forgets it, if messages waited there, otherwise for ten minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from nsqclient.admin.aggregate import Values, number, objects
from nsqclient.cluster.ask_all import Failure
from nsqclient.cluster.cluster import Node, Nodes

#: Seconds for which an nsqd is remembered: one that held messages, and one that held none.
_KEEP_HOLDING, _KEEP_EMPTY = 24 * 3600.0, 600.0
_MOST_LOST = 200

_WAITING = ("depth", "in_flight_count", "deferred_count")


class Lost(NamedTuple):
    node: Node
    held: int  #: messages that waited there, in its topics and channels
    at: float  #: seconds since the epoch

    def failure(self) -> Failure:
        reason = f"no nsqlookupd lists it any more; {held_text(self.held)}"
        return Failure("nsqd", self.node.address, reason, since=self.at, is_gone=True)

    def is_expired(self, now: float) -> bool:
        return now - self.at > (_KEEP_HOLDING if self.held else _KEEP_EMPTY)


def held_text(count: int) -> str:
    return f"it held {count:,} message{'s' * (count != 1)}" if count else "it held no messages"


class LostNodes:
    """Compares the nsqds of each round with those seen before. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Lost] = {}

    def add_round(
        self, found: Nodes, stats: Mapping[Node, Mapping[str, Any]], now: float
    ) -> list[Lost]:
        """Record the listed nsqds and the statistics of nsqds that answered; return the lost nsqds.

        ``now``: seconds since the epoch.
        """
        silent = {each.address for each in found.failures if each.kind == "nsqlookupd"}
        with self._lock:
            listed = {node.address: node for node in found.nodes}
            for address, old in self._seen.items():
                # Only an nsqlookupd that listed it and answers can have forgotten it.
                if old.node.lookupds and silent.issuperset(old.node.lookupds):
                    listed.setdefault(address, old.node)
            for address, node in listed.items():
                known = self._seen.get(address)
                held = messages_in(stats[node]) if node in stats else known.held if known else 0
                self._seen[address] = Lost(node, held, now)
            lost = [each for address, each in self._seen.items()
                    if address not in listed and not each.is_expired(now)]
            lost = sorted(lost, key=lambda each: (each.held > 0, each.at), reverse=True)
            lost = lost[:_MOST_LOST]
            self._seen = {each.node.address: each for each in (
                *(self._seen[address] for address in listed), *lost)}
        return lost

    def held(self, address: str) -> int:
        """Return the messages that an nsqd held when it answered last."""
        with self._lock:
            known = self._seen.get(address)
        return known.held if known is not None else 0

    def forget(self, address: str) -> bool:
        with self._lock:
            return self._seen.pop(address, None) is not None


def messages_in(stats: Values) -> int:
    return sum(
        number(topic, "depth") + sum(
            number(channel, name) for channel in objects(topic, "channels") for name in _WAITING)
        for topic in objects(stats, "topics"))
