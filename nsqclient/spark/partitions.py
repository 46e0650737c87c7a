"""The tasks of a batch: which segments each reads, and how it gets them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from nsqclient.spark.errors import DamagedSegmentError, DataLossError, ObjectNotFoundError
from nsqclient.spark.shards.log_reader import PlannedSegment
from nsqclient.spark.shards.segments import segment_rows
from nsqclient.spark.spool.access import check_visible, explain_denied, read_id
from nsqclient.spark.spool.segment import (
    TASK_BYTES,
    encode_part,
    find_cuts,
    load_segment,
    read_rows,
    warn_of_loss,
)
from nsqclient.spark.spool.segment_index import Entry
from nsqclient.spark.spool.selection import spread
from nsqclient.spark.storage.store import shared_store

#: A slow topic makes a segment of each few rows. Spark takes a batch for each, at a price, so small
#: ones are joined until they have so many rows or bytes.
_ENOUGH_ROWS, _ENOUGH_BYTES = 1000, 1024 * 1024


class SegmentPartition(InputPartition):
    """Segments that one task reads: their paths, or themselves."""

    def __init__(self, sources: list[str] | list[bytes], spool_id: str = "",
                 fail_on_data_loss: bool = True) -> None:
        super().__init__(None)
        self.sources = sources
        self.spool_id = spool_id  # of the folder of the paths, as the driver sees it
        self.fail_on_data_loss = fail_on_data_loss


class StoragePartition(InputPartition):
    """Segments that one task reads from shared storage."""

    def __init__(self, url: str, keys: list[str], fail_on_data_loss: bool = True) -> None:
        super().__init__(None)
        self.url = url
        self.keys = keys
        self.fail_on_data_loss = fail_on_data_loss


class SegmentPart(NamedTuple):
    """Rows of a segment that one task reads."""

    path: str
    first: int = 0
    rows: int | None = None  #: None: all, from the first on


class InlinePartition(InputPartition):
    """Segments that are sent with a task. It becomes a ``SegmentPartition`` when Spark pickles it.

    Spark pickles one task after the other, so this process holds the rows of one task only,
    whatever the size of the batch.
    """

    def __init__(self, parts: list[SegmentPart], fail_on_data_loss: bool = True) -> None:
        super().__init__(None)
        self.parts = parts
        self.fail_on_data_loss = fail_on_data_loss

    def __reduce__(self) -> tuple[Any, ...]:
        loaded = (_load(part, self.fail_on_data_loss) for part in self.parts)
        return SegmentPartition, ([data for data in loaded if data is not None],)


def make_partitions(
    segments: Sequence[tuple[Entry, str]], parts: int, transport: str,
    fail_on_data_loss: bool = True,
) -> list[SegmentPartition] | list[InlinePartition]:
    """Cut a batch into tasks.

    Args:
        segments: with the paths of their files, in order.
        parts: how many tasks, where there are so many segments; inline there may be more, since
            each has ``TASK_BYTES`` at most.
        transport: "file" or "inline".
        fail_on_data_loss: whether a segment that is damaged or gone is an error; False: it is left
            out.

    Raises:
        DataLossError: inline, a segment is not where it should be, or is damaged. Otherwise its
            task finds out.
    """
    if transport == "inline":
        pieces = [piece for entry, path in segments
                  for piece in _cut(path, entry.size, fail_on_data_loss)]
        runs = spread(pieces, parts, TASK_BYTES)
        return [InlinePartition(run, fail_on_data_loss) for run in runs]
    paths = [(path, entry.size) for entry, path in segments]
    spool_id = read_id(os.path.dirname(paths[0][0])) if paths else ""
    return [SegmentPartition(run, spool_id, fail_on_data_loss) for run in spread(paths, parts)]


def make_storage_partitions(
    url: str, segments: Iterable[PlannedSegment], parts: int, fail_on_data_loss: bool = True
) -> list[StoragePartition]:
    """Cut segments of shared storage into tasks, which read them there.

    Args:
        parts: how many tasks, where there are so many segments.
    """
    runs = spread([(segment.key, segment.size) for segment in segments], parts)
    return [StoragePartition(url, keys, fail_on_data_loss) for keys in runs]


def _cut(path: str, size: int, fail_on_data_loss: bool) -> list[tuple[SegmentPart, int]]:
    """Cut a segment into parts that a task may have, each with its bytes, about."""
    try:
        load_segment(path)  # an error is shown here, and not while Spark pickles tasks
    except FileNotFoundError:
        _check_deleted(path, fail_on_data_loss)
        return []
    except DamagedSegmentError as exc:
        if fail_on_data_loss:
            raise
        warn_of_loss(exc.folder, exc.damage)
        return []
    if size <= TASK_BYTES:
        return [(SegmentPart(path), size)]
    return [(SegmentPart(path, cut.first, cut.rows), cut.size) for cut in find_cuts(path)]


def _check_deleted(path: str, fail_on_data_loss: bool) -> None:
    """Log that a segment was deleted since it was planned, or raise it."""
    if not fail_on_data_loss:
        return warn_of_loss(os.path.dirname(path), f"has no segment {path!r} any more")
    raise DataLossError(
        os.path.dirname(path), f"segment {path!r} is not there: it was deleted. Those that Spark"
        " has committed are kept for spoolRetentionMs and spoolRetentionBytes only; with"
        " failOnDataLoss=false the others are read")


def _load(part: SegmentPart, fail_on_data_loss: bool) -> bytes | None:
    try:
        if part.rows is not None:
            return encode_part(part.path, part.first, part.rows)
        return bytes(load_segment(part.path))
    except FileNotFoundError:
        _check_deleted(part.path, fail_on_data_loss)
        return None


def read_partition(partition: InputPartition) -> Iterator[Any]:
    """Give the rows of a task, as Arrow record batches.

    Raises:
        DataLossError: a segment was deleted, or is damaged.
        SpoolNotVisibleError: this process does not see the driver's spool, or may not read it.
        StorageError: the storage cannot be used here.
    """
    if isinstance(partition, StoragePartition):
        return join_small(_read_stored(partition))
    return join_small(_read_segments(partition))


def _read_stored(partition: StoragePartition) -> Iterator[Any]:
    store = shared_store(partition.url)
    for key in partition.keys:
        try:
            yield segment_rows(store.url, key, store.read(key))
        except ObjectNotFoundError:
            text = f"has no segment {key} any more: it was deleted"
            if partition.fail_on_data_loss:
                raise DataLossError(
                    store.url, f"{text}. Committed segments are kept for spoolRetentionMs and"
                    " spoolRetentionBytes only; with failOnDataLoss=false the others are read"
                ) from None
            warn_of_loss(store.url, text)
        except DamagedSegmentError as exc:
            if partition.fail_on_data_loss:
                raise
            warn_of_loss(exc.folder, exc.damage)


def join_small(batches: Iterable[Any]) -> Iterator[Any]:
    """Join record batches of few rows, of which Spark takes each at a price."""
    small: list[Any] = []
    rows = size = 0
    for batch in batches:
        if small and (batch.num_rows >= _ENOUGH_ROWS or batch.nbytes >= _ENOUGH_BYTES):
            yield _joined(small)  # a large one is not copied
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


def _read_segments(partition: InputPartition) -> Iterator[Any]:
    assert isinstance(partition, SegmentPartition)
    if partition.sources and isinstance(partition.sources[0], str):
        check_visible(os.path.dirname(partition.sources[0]), partition.spool_id)
    for source in partition.sources:
        try:
            yield read_rows(source)
        except DamagedSegmentError as exc:
            if partition.fail_on_data_loss:
                raise
            warn_of_loss(exc.folder, exc.damage)
        except PermissionError as exc:
            path = str(source)
            raise explain_denied(os.path.dirname(path), path) from exc
        except FileNotFoundError:
            _check_deleted(str(source), partition.fail_on_data_loss)
