"""``OrderChecker``: checks that the messages of one partition arrive in order on one connection.

Internal id and queue offset of a partition grow from message to message. After a reconnect the
server goes back to the first message that is not finished, so each connection starts anew.
"""

from __future__ import annotations

from enum import Enum


class Position(Enum):
    """The position of a message relative to the last finished one."""

    NEXT = "next"  #: after it, in order
    REDELIVERED = "redelivered"  #: the same message again
    BEHIND = "behind"  #: before it: out of order


class OrderChecker:
    """The last finished message of one connection. Not thread-safe."""

    def __init__(self) -> None:
        self.last: tuple[int, int] | None = None  #: its internal id and offset

    def position_of(self, internal_id: int, offset: int) -> Position:
        """Return the position of a message."""
        if self.last is None:
            return Position.NEXT
        last_id, last_offset = self.last
        if internal_id < last_id or offset < last_offset:
            return Position.BEHIND
        if internal_id == last_id:
            return Position.REDELIVERED
        return Position.NEXT

    def on_finished(self, internal_id: int, offset: int) -> None:
        """Store that a message was finished; a message behind the last changes nothing."""
        if self.position_of(internal_id, offset) is not Position.BEHIND:
            self.last = (internal_id, offset)

    def restart(self) -> None:
        """Forget the last message: any message may come next."""
        self.last = None
