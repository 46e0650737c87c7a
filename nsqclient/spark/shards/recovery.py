"""What a writer must read before it writes, and what is in the notes that it reads. Pure.

The log of a shard is dense: segment ``n`` is followed by ``n + 1``, and the oldest are deleted
first, never the newest. A note that is ``clean_to`` a segment lists every message up to there that
is perhaps not finished at nsqd; of segments behind it all messages may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nsqclient.spark.errors import DamagedSegmentError
from nsqclient.spark.shards.names import Segment


class End(NamedTuple):
    """The end of a log, as a writer knows it: what the next segment's key is made of."""

    number: int = 0  #: of the last segment
    rows: int = 0  #: in all segments

    def next(self, rows: int) -> End:
        """The end behind one more segment."""
        return End(self.number + 1, self.rows + rows)


class RecoveryPlan(NamedTuple):
    """Which segments a new writer reads."""

    doubtful: list[Segment]  #: all of their messages may come again
    #: Segments of which copies are not to be expected, newest first. The last segment of all is
    #: among these or those, for its rows.
    proven: list[Segment]


def plan_recovery(
    segments: Sequence[Segment], clean_to: int, most_rows: int
) -> RecoveryPlan | None:
    """Plan what a writer reads that starts, or has lost track.

    Args:
        segments: all that there are behind the floor, in order.
        clean_to: of the newest note; 0: there is none.
        most_rows: of proven segments, at most, save for the newest one.

    Returns: None when these do not belong together: the listings are of different moments.
    """
    if any(later.number != earlier.number + 1 or later.before < earlier.before
           for earlier, later in zip(segments, segments[1:])):
        return None
    first = segments[0].number if segments else 1
    last = segments[-1].number if segments else 0
    if first > clean_to + 1 or last < clean_to:
        return None
    doubtful = [segment for segment in segments if segment.number > clean_to]
    proven: list[Segment] = []
    rows = 0
    for segment, end in zip(reversed(segments), [None, *reversed(segments)]):
        if segment.number > clean_to:
            continue
        rows += 0 if end is None else end.before - segment.before  # the last one's are not known
        if rows > most_rows:
            break
        proven.append(segment)
    return RecoveryPlan(doubtful, proven)


def encode_note(writer: str, ids: Mapping[str, Iterable[bytes]]) -> bytes:
    """Build a note: the ids, by nsqd, that are perhaps not finished there."""
    return json.dumps({
        "v": 1, "writer": writer,
        "ids": {nsqd: [key.decode() for key in keys] for nsqd, keys in ids.items()},
    }).encode()


def decode_note(url: str, key: str, data: bytes) -> dict[str, list[bytes]]:
    """Read the ids of a note."""
    try:
        found = json.loads(data)
        return {nsqd: [text.encode() for text in texts] for nsqd, texts in found["ids"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise DamagedSegmentError(url, f"note {key} is damaged ({exc!r})") from exc
