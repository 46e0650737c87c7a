"""When the flow must stop because too many bytes wait: a pure decision, ``now`` is an argument.

Nothing is counted where a message leaves the queue, because that happens for every message. What
arrives is added up instead, and the queue is measured only when the sum could be over the limit.
"""

from __future__ import annotations

#: Bytes that a message takes beside its body: the objects for it, its id and its times, its place
#: in the queue and in the table of messages in flight. 365 to 430 were measured (CPython 3.11,
#: 64 bit); a little more is counted, so that a queue of empty bodies stays under the limit too.
MESSAGE_OVERHEAD = 512
#: Bytes that may arrive after RDY 0 was sent, and are still queued: what nsqd had sent before it
#: read RDY 0. The buffers of both sockets hold it: 10 MiB with Linux's defaults.
UNDER_WAY = 32 * 1024 * 1024
#: The same for each connection, where there are many.
UNDER_WAY_EACH = 16 * 1024 * 1024
#: The queue is not measured again before this part of the limit was added to it.
_STEP = 1 / 16


class QueueLimit:
    """The bound on the bytes that wait in one consumer, and whether the flow is held by it.

    Not thread-safe: the caller holds a lock. Sizes are bodies plus MESSAGE_OVERHEAD each.

    Args:
        limit: bytes that may wait (``max_queued_bytes``).
        settle_time: seconds after which RDY 0 is surely in force.
    """

    def __init__(self, limit: int, settle_time: float) -> None:
        self.limit = limit
        self.settle_time = settle_time
        #: When the hold began; None while messages may flow.
        self.held_since: float | None = None
        self._measured = 0  # bytes that waited when the queue was measured last
        self._added = 0  # bytes that have arrived since; some of them may have left already
        # Of this hold, by connection: which had their last message queued, and what arrived
        # after the settle time, messages and bytes.
        self._full: set[object] = set()
        self._late: dict[object, tuple[int, int]] = {}

    @property
    def is_held(self) -> bool:
        """Whether RDY is to be 0."""
        return self.held_since is not None

    def add(self, size: int) -> bool:
        """Note what was put into the queue; True when the queue is to be measured now."""
        self._added += size
        return (
            self.held_since is None
            and self._measured + self._added > self.limit
            and self._added >= self.limit * _STEP
        )

    def measured(self, count: int, size: int, now: float) -> None:
        """Note that ``count`` messages of ``size`` bytes wait, and begin or end the hold.

        A single message is never too much, whatever its size: else it could not be received.
        """
        self._measured, self._added = size, 0
        if count <= 1 or size <= self.limit // 2:
            self.held_since = None
        elif size > self.limit and self.held_since is None:
            self.held_since = now
            self._full, self._late = set(), {}

    def accepts(self, connection: object, connections: int) -> bool:
        """Tell whether what arrives now is queued; else it goes back to nsqd at once.

        On each of the ``connections`` one message more may be under way, whatever its size.
        """
        most = self.limit + max(UNDER_WAY, connections * UNDER_WAY_EACH)
        if self.held_since is None or self._measured + self._added <= most:
            return True
        is_first = connection not in self._full
        self._full.add(connection)
        return is_first

    def is_flood(
        self, connection: object, count: int, size: int, highest_rdy: int, now: float
    ) -> bool:
        """Note what arrived on a connection; True when no nsqd that obeys RDY 0 can have sent it.

        Only what arrives after the settle time counts. A slow network or a busy process delays
        messages for longer, but no more than twice ``highest_rdy`` of them: so many may be in
        flight when RDY 0 is sent, and FINs that were written before it let as many follow. And
        no more bytes than the sockets hold.
        """
        if self.held_since is None or now < self.held_since + self.settle_time:
            return False
        messages, before = self._late.get(connection, (0, 0))
        self._late[connection] = messages + count, before + size
        return messages + count > 2 * highest_rdy or before > UNDER_WAY
