"""``delete_committed``: deletes segments of a shard that Spark has committed."""

from __future__ import annotations

from nsqclient.spark.shards.listing import list_segments
from nsqclient.spark.shards.names import ShardKeys, parse_note, parse_number
from nsqclient.spark.shards.recovery import floor_of
from nsqclient.spark.storage.store import Store


def delete_committed(
    store: Store, keys: ShardKeys, committed: int, expired: int, most_bytes: int | None = None,
) -> tuple[int, int]:
    """Delete what is committed and not needed any more, as far as a note says that it is not.

    Args:
        committed: the last segment that is noted as committed.
        expired: the last of these whose retention is over.
        most_bytes: of committed segments that are kept; the oldest go first. None: no limit.

    Returns: the last segment that is deleted, and the bytes of those that were.
    """
    notes = [parse_note(found.key) for found in store.list_objects(keys.of("notes"))]
    clean_to = max((note.clean_to for note in notes if note is not None), default=0)
    listed = list_segments(store, keys)
    if not listed:
        return 0, 0
    kept = 0  # bytes of committed segments, from the newest on
    for segment in reversed(listed):
        if segment.number <= committed and most_bytes is not None:
            kept += segment.size
            if kept > most_bytes:
                expired = max(expired, segment.number)
                break
    floor = floor_of(committed, expired, clean_to, listed[-1].number)
    gone = [segment for segment in listed if segment.number <= floor]
    if gone:
        # First the floor, which a writer looks at after a create, then what is under it.
        store.create(keys.floor(floor), b"")
        store.delete(keys.segment(one.number, one.before) for one in gone)
        store.delete(found.key for found in store.list_objects(keys.of("floors"))
                     if (parse_number(found.key) or floor) < floor)
    return floor, sum(segment.size for segment in gone)
