"""The tasks of a batch: which segments each task reads, and how."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pyspark.sql.datasource import InputPartition

from nsqclient.spark.errors import (
    DamagedSegmentError, DataLossError, ObjectNotFoundError, StorageError,
)
from nsqclient.spark.segment import check_segment, read_rows, warn_of_loss
from nsqclient.spark.session import brief_errors
from nsqclient.spark.storage import Store, open_store

_T = TypeVar("_T")

#: Small segments are joined until they have this many rows or bytes, because Spark needs some time
#: for each record batch.
_ENOUGH_ROWS, _ENOUGH_BYTES = 1000, 1024 * 1024


class PeekedPartition(InputPartition):
    """A segment of peeked messages. It is sent with its task."""

    def __init__(self, data: bytes) -> None:
        super().__init__(None)
        self.data = data


class StoredPartition(InputPartition):
    """Segments that one task reads from the storage."""

    def __init__(self, url: str, keys: list[str], fail_on_data_loss: bool = True) -> None:
        super().__init__(None)
        self.url = url
        self.keys = keys
        self.fail_on_data_loss = fail_on_data_loss


def make_partitions(
    url: str, segments: Iterable[tuple[str, int]], parts: int, fail_on_data_loss: bool = True
) -> list[StoredPartition]:
    return [StoredPartition(url, keys, fail_on_data_loss) for keys in spread(segments, parts)]


def spread(parts: Iterable[tuple[_T, int]], count: int) -> list[list[_T]]:
    """Cut a batch into at most ``count`` runs of about the same size, none of them empty."""
    parts = list(parts)
    total = sum(size for _, size in parts)
    runs: list[list[_T]] = []
    before = 0
    for part, size in parts:
        # A part belongs to the run in which its middle lies.
        if len(runs) < count and (before + size / 2) * count >= total * len(runs):
            runs.append([])
        runs[-1].append(part)
        before += size
    return runs


def read_partition(partition: InputPartition) -> Iterator[Any]:
    with brief_errors():
        if isinstance(partition, PeekedPartition):
            yield read_rows(partition.data)
        elif isinstance(partition, StoredPartition) and partition.keys:
            yield from join_small(_read_stored(partition))


@functools.lru_cache(maxsize=10)
def _open_in_process(url: str, pid: int) -> Store:
    """Open the storage once for all tasks of this process."""
    # Spark collects garbage after each task. Without freeze, each collection visits all imported
    # modules, which takes longer than the task. Only once, because frozen garbage is never freed.
    if not gc.get_freeze_count():
        gc.freeze()
    return open_store(url)


def _read_stored(partition: StoredPartition) -> Iterator[Any]:
    store = _open_in_process(partition.url, os.getpid())  # a forked process needs its own
    for key in partition.keys:
        try:
            yield read_rows(check_segment(store.url, key, store.read(key)))
        except ObjectNotFoundError:
            _check_seen(store, key)
            text = f"has no segment {key} any more: it was deleted"
            if partition.fail_on_data_loss:
                raise DataLossError(
                    store.url, f"{text}. Committed segments are kept for retentionMs and"
                    " retentionBytes only; with failOnDataLoss=false the others are read"
                ) from None
            warn_of_loss(store.url, text)
        except DamagedSegmentError as exc:
            if partition.fail_on_data_loss:
                raise
            warn_of_loss(exc.url, exc.damage)


def _check_seen(store: Store, key: str) -> None:
    topic, channel = key.split("/")[:2]
    if not store.list_folders(f"{topic}/{channel}"):
        raise StorageError(
            store.url, "this executor does not have what the driver has there: on several machines"
            " the storage must be a folder that all of them mount at this path, or s3://")


def join_small(batches: Iterable[Any]) -> Iterator[Any]:
    """Join small record batches."""
    small: list[Any] = []
    rows = size = 0
    for batch in batches:
        if small and (batch.num_rows >= _ENOUGH_ROWS or batch.nbytes >= _ENOUGH_BYTES):
            yield _joined(small)  # so that the large batch is not copied
            small, rows, size = [], 0, 0
        small.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ENOUGH_ROWS or size >= _ENOUGH_BYTES:
            yield _joined(small)
            small, rows, size = [], 0, 0
    if small:
        yield _joined(small)


def _joined(batches: list[Any]) -> Any:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
