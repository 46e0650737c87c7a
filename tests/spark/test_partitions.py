"""How a batch becomes tasks, by value: no server, no Spark."""

from __future__ import annotations

import os
import pickle
import tracemalloc

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from nsqclient.spark import partitions  # noqa: E402 - needs pyspark
from nsqclient.spark.errors import DataLossError, SpoolNotVisibleError  # noqa: E402 - as above
from nsqclient.spark.partitions import (  # noqa: E402 - needs pyspark
    make_partitions,
    read_partition,
)
from nsqclient.spark.spool.segment import TASK_BYTES, encode_segment  # noqa: E402 - as above
from nsqclient.spark.spool.segment_index import Entry  # noqa: E402 - needs pyspark

MIB = 1024 * 1024


@pytest.fixture
def write(tmp_path):
    """Factory of segments on disk, as (entry, path): rows of one size."""

    def segment(number, rows, size):
        path = str(tmp_path / f"{number}.arrow")
        body = b"x" * size
        data = encode_segment("t", "c", [("n:1", [
            (row, 1, b"%08d%08d" % (number, row), body) for row in range(rows)])])
        with open(path, "wb") as file:
            file.write(data)
        return Entry(number, rows, os.path.getsize(path)), path

    return segment


def ids(partition):
    """The ids of the messages of a task, as an executor reads it."""
    return [one for batch in read_partition(partition)
            for one in batch.column("message_id").to_pylist()]


def test_small_and_large_messages_make_tasks_of_bounded_bytes(write):
    """150,000 small ones and 160 of 1 MB were one task of 161 MB, which Spark cannot send."""
    small = [write(number, 5000, 10) for number in range(30)]
    large = [write(number, 7, MIB) for number in range(30, 53)]
    sizes, seen = [], []
    for partition in make_partitions(small + large, 2, "inline"):
        data = pickle.dumps(partition)
        sizes.append(len(data))
        seen += ids(pickle.loads(data))
    assert max(sizes) <= TASK_BYTES + 1000 and sum(sizes) > 160 * MIB
    assert len(seen) == len(set(seen)) == 150_000 + 23 * 7
    assert seen == sorted(seen)


def test_a_segment_that_is_too_large_for_a_task_is_cut(write):
    """An earlier version has made it, and its batch is in Spark's checkpoint."""
    parts = make_partitions([write(1, 40, MIB), write(2, 3, 10)], 1, "inline")
    data = [pickle.dumps(partition) for partition in parts]
    assert max(map(len, data)) <= TASK_BYTES and len(data) == 6
    assert [one for part in data for one in ids(pickle.loads(part))] == [
        *("00000001%08d" % row for row in range(40)), *("00000002%08d" % row for row in range(3))]


def test_a_single_message_that_is_larger_than_a_task_is_sent(write):
    """As large as nsqd is set to take: alone in its task."""
    data = [pickle.dumps(part) for part in make_partitions(
        [write(1, 1, 10), write(2, 1, 20 * MIB), write(3, 1, 10)], 1, "inline")]
    assert [len(data) > TASK_BYTES for data in data] == [False, True, False]
    assert [ids(pickle.loads(part)) for part in data] == [
        ["0000000100000000"], ["0000000200000000"], ["0000000300000000"]]


def test_the_rows_of_one_task_are_in_memory_at_a_time(write):
    """Spark pickles one after the other; the batch itself is not held here."""
    segments = [write(number, 7, MIB) for number in range(12)]
    tracemalloc.start()
    try:
        for partition in make_partitions(segments, 2, "inline"):
            pickle.dumps(partition)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * TASK_BYTES


def test_a_missing_segment_is_an_error_before_tasks_are_sent(write):
    """Spark could not show an error in the middle of its tasks."""
    segment = write(1, 1, 1)
    os.unlink(segment[1])
    with pytest.raises(DataLossError, match="it was deleted"):
        make_partitions([segment], 1, "inline")


def test_a_task_that_may_not_read_the_spool_fails_with_the_reason(write, monkeypatch):
    """An executor of another user: with mode, owner and the remedy, and without a row."""
    segment = write(1, 1, 1)
    os.chmod(segment[1], 0o600)

    def deny(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(partitions, "read_rows", deny)
    with pytest.raises(SpoolNotVisibleError, match=f"{segment[1]} has mode 0600 and belongs to"):
        ids(make_partitions([segment], 1, "file")[0])


@pytest.mark.parametrize("transport", ["inline", "file"])
def test_tasks_have_about_the_same_bytes(write, transport):
    """And as many as are wanted, where there are segments; the same for every call."""
    segments = [write(1, 1000, 10), write(2, 10, 10_000), write(3, 10, 10_000)]
    first, second = (
        [ids(pickle.loads(pickle.dumps(part))) for part in make_partitions(segments, 2, transport)]
        for _ in range(2))
    assert first == second and [len(part) for part in first] == [1010, 10]
