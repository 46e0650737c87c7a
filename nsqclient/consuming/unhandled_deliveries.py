"""``UnhandledDeliveries``: how often a message expired before a handler had it.

nsqd counts each delivery as an attempt, also one that waited in the consumer's queue until it
expired. Such deliveries must not lead to giving up: nothing has failed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from nsqclient.partitions.routes import Place

#: Messages that are remembered: 11 MB, where that many have expired.
MOST_MESSAGES = 50_000


class UnhandledDeliveries:
    """Counts by message, of one consumer.

    Only the messages that expired last are remembered. One that was finished stays until others
    take its place: nsqd may refuse a late FIN and deliver the message again, and a look at each FIN
    would cost every message something. Threads: any.
    """

    def __init__(self, most: int = MOST_MESSAGES) -> None:
        self._most = most
        self._lock = threading.Lock()
        # By where it came from as well: ids are unique within a topic of an nsqd, or a partition.
        self._counts: OrderedDict[tuple[Place, bytes], int] = OrderedDict()  # guarded by _lock

    def __len__(self) -> int:
        """How many messages are remembered."""
        return len(self._counts)

    def add(self, place: Place, message_id: bytes) -> None:
        """A delivery expired before a handler had it."""
        key = place, message_id
        with self._lock:
            self._counts[key] = self._counts.pop(key, 0) + 1
            if len(self._counts) > self._most:
                self._counts.popitem(last=False)

    def count(self, place: Place, message_id: bytes) -> int:
        """Return how many deliveries of the message expired like that."""
        with self._lock:
            return self._counts.get((place, message_id), 0)
