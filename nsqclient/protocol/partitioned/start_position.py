"""``StartPosition``: where a channel of a partition begins to read, for replays.

The words on the wire are those of SUB_ADVANCED and of ``/channel/setoffset``: ``kind:value``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from nsqclient.errors import ConfigError

_OFFSET, _TIMESTAMP, _COUNT, _SPECIAL = "virtual_queue", "timestamp", "msgcount", "special"
#: The only value of ``special``: after the last message.
_END = -1
_MAX_VALUE = 2**63 - 1
#: A number of seconds from here on is in the year 5138 or later: milliseconds were meant.
_TOO_MANY_SECONDS = 10**11


@dataclass(frozen=True)
class StartPosition:
    """Where reading a partition begins. Create it with one of the four class methods.

    It can be compared and pickled.

    Raises:
        ConfigError: the position is invalid.
    """

    kind: str  #: the word on the wire
    value: int

    def __post_init__(self) -> None:
        low = _END if self.kind == _SPECIAL else 0
        high = _END if self.kind == _SPECIAL else _MAX_VALUE
        if self.kind not in (_OFFSET, _TIMESTAMP, _COUNT, _SPECIAL):
            raise ConfigError(
                f"start position {self.kind!r}: use StartPosition.offset(), timestamp(), count()"
                " or end()"
            )
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not (
            low <= self.value <= high
        ):
            raise ConfigError(f"start position {self.kind}: a whole number from 0, not"
                              f" {self.value!r}")

    @classmethod
    def offset(cls, offset: int) -> StartPosition:
        """The message at this offset: bytes from the start of the partition's queue.

        Use ``message.offset`` of a message, or ``message.offset + message.size`` for the
        next message; 0 is the oldest message.
        """
        return cls(_OFFSET, offset)

    @classmethod
    def timestamp(cls, timestamp: float | datetime) -> StartPosition:
        """The first message that was published at this time or later.

        Args:
            timestamp: seconds since the epoch, or a datetime with a time zone. nsqd uses whole
                seconds.
        """
        if isinstance(timestamp, datetime):
            if timestamp.tzinfo is None:
                raise ConfigError(f"start position {timestamp!r}: give a datetime with a time zone")
            timestamp = timestamp.timestamp()
        if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)) or not (
            math.isfinite(timestamp) and 0 <= timestamp
        ):
            raise ConfigError(
                f"start position: seconds since the epoch or a datetime, not {timestamp!r}")
        if timestamp >= _TOO_MANY_SECONDS:
            raise ConfigError(
                f"start position {timestamp!r}: give seconds since the epoch, not milliseconds")
        return cls(_TIMESTAMP, math.floor(timestamp))

    @classmethod
    def count(cls, count: int) -> StartPosition:
        """The message after the first ``count`` messages of the partition's queue."""
        cls(_COUNT, count)  # checks it
        return cls(_COUNT, count + 1)  # nsqd counts from 1, and takes 0 as 1

    @classmethod
    def end(cls) -> StartPosition:
        """After the last message: only messages published from now on."""
        return cls(_SPECIAL, _END)

    @classmethod
    def parse(cls, text: str) -> StartPosition:
        """Parse ``kind:value``."""
        kind, _, number = text.partition(":")
        if number == str(_END):
            return cls(kind, _END)
        # The length first: int() raises ValueError for thousands of digits.
        if len(number) > 19 or not (number.isascii() and number.isdigit()):
            raise ConfigError(f"start position {text!r}: kind:number")
        return cls(kind, int(number))

    def __str__(self) -> str:
        """Return ``kind:value``."""
        return f"{self.kind}:{self.value}"
