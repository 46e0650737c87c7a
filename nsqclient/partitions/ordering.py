"""Whether the messages of one partition come in order on one connection.

Internal id and queue offset of a partition grow from message to message. After a reconnect the
server goes back to the first message that is not finished, so each connection begins anew.
"""

from __future__ import annotations

from enum import Enum


class Turn(Enum):
    """Where a message stands."""

    NEXT = "next"  #: behind the last that was finished: its turn has come
    AGAIN = "again"  #: the last that was finished, delivered once more
    BEHIND = "behind"  #: before it: out of order


class OrderCheck:
    """The last finished message of one connection. Not thread-safe."""

    def __init__(self) -> None:
        self.last: tuple[int, int] | None = None  #: its internal id and offset

    def turn_of(self, internal_id: int, offset: int) -> Turn:
        """Tell where a message stands."""
        if self.last is None:
            return Turn.NEXT
        last_id, last_offset = self.last
        if internal_id < last_id or offset < last_offset:
            return Turn.BEHIND
        if internal_id == last_id:
            return Turn.AGAIN
        return Turn.NEXT

    def on_finished(self, internal_id: int, offset: int) -> None:
        """Note that a message was finished; one that lies behind changes nothing."""
        if self.turn_of(internal_id, offset) is not Turn.BEHIND:
            self.last = (internal_id, offset)

    def restart(self) -> None:
        """Forget it: from now on any message may come next."""
        self.last = None
