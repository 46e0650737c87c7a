"""Epochs: the writers that a shard has had. Each start takes the next number.

An epoch decides nothing, see ``shard_log``; it only says which process has written.
"""

from __future__ import annotations

from typing import NamedTuple

from nsqclient.spark.errors import ObjectNotFoundError
from nsqclient.spark.segment import WRITER_LENGTH
from nsqclient.spark.shards.names import ShardKeys, parse_number
from nsqclient.spark.storage.store import Store

#: Epochs that are kept. A segment of a writer so many starts old is hardly the newest one.
_KEPT = 20


class Epoch(NamedTuple):
    """One start of a writer."""

    number: int = 0  #: 0: not known
    writer: str = ""  #: its random name, with host and process

    @property
    def owner(self) -> str:
        """The process, such as ``node7, process 4121``; empty: not known."""
        return self.writer[WRITER_LENGTH:].strip(" ()")


def begin_epoch(store: Store, keys: ShardKeys, writer: str) -> int:
    """Take the next number for a writer that starts.

    Raises:
        StorageError: the storage cannot be used.
    """
    numbers = _numbers(store, keys)
    number = max(numbers, default=0) + 1
    while not store.create(keys.epoch(number), writer.encode()):
        number += 1
    store.delete(keys.epoch(one) for one in numbers[:-_KEPT])
    return number


def find_epoch(store: Store, keys: ShardKeys, writer: str) -> Epoch:
    """Find the start of the writer of a segment.

    Args:
        writer: as ``segment.writer_of`` has it; empty: the newest start.

    Raises:
        StorageError: the storage cannot be used.
    """
    for number in reversed(_numbers(store, keys)):
        try:
            found = store.read(keys.epoch(number)).decode(errors="replace")
        except ObjectNotFoundError:
            continue  # too old by now
        if found.startswith(writer):
            return Epoch(number, found)
    return Epoch()


def _numbers(store: Store, keys: ShardKeys) -> list[int]:
    found = (parse_number(one.key) for one in store.list_objects(keys.of("epochs")))
    return sorted(number for number in found if number is not None)
