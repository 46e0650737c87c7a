"""How to_nsq cuts its input into records, and how fast it may publish them. Pure.

``RecordSplitter`` takes bytes as they come and gives whole records; ``Pace`` is the bucket of
tokens behind ``--rate``, on a clock that the caller reads.
"""

from __future__ import annotations


class RecordTooLong(ValueError):
    """A record is longer than a message may be. ``records`` are the whole ones before it."""

    def __init__(self, limit: int, records: list[bytes]) -> None:
        super().__init__(f"it is over {limit} bytes, the largest message (nsqd_max_msg_size)")
        self.records = records


class RecordSplitter:
    """Cuts a stream at a delimiter. Empty records are left out, as the original does.

    Args:
        delimiter: one byte or several.
        limit: bytes of the longest record.
    """

    def __init__(self, delimiter: bytes, limit: int) -> None:
        self._delimiter = delimiter
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take more of the stream; return the records that are whole now.

        Raises:
            RecordTooLong: the next record is, or becomes, too long.
        """
        *records, self._rest = (self._rest + data).split(self._delimiter)
        records = list(filter(None, records))
        # The rest may hold all of a delimiter but its last byte.
        if len(self._rest) >= self._limit + len(self._delimiter):
            self._refuse(records)
        if records and max(map(len, records)) > self._limit:
            self._refuse(records)
        return records

    def end(self) -> list[bytes]:
        """The stream ended: return the last record, whole, if it had no delimiter.

        Raises:
            RecordTooLong: it is too long.
        """
        rest, self._rest = self._rest, b""
        if len(rest) > self._limit:
            raise RecordTooLong(self._limit, [])
        return [rest] if rest else []

    def _refuse(self, records: list[bytes]) -> None:
        good: list[bytes] = []
        for record in records:
            if len(record) > self._limit:
                break
            good.append(record)
        raise RecordTooLong(self._limit, good)


class Pace:
    """Says how many messages may go now, for a rate per second; 0: any number.

    A bucket that holds one second's messages, with one in it at the start, as the original's.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = 1.0
        self._at = now

    def take(self, wanted: int, now: float) -> int:
        """Take up to ``wanted`` tokens; return how many there were."""
        if not self._rate:
            return wanted
        self._tokens = min(self._rate, self._tokens + (now - self._at) * self._rate)
        self._at = now
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def wait(self) -> float:
        """Seconds until there is a token again, counted from the last ``take``."""
        return max(0.0, (1.0 - self._tokens) / self._rate) if self._rate else 0.0
