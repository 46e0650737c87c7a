"""What a replay reads, while a query has the log. No JVM."""

import os
import pickle

import pytest

from nsqclient.spark.batch_reader import NsqBatchReader
from nsqclient.spark.errors import DataLossError, StorageError
from nsqclient.spark.options import read_options
from nsqclient.spark.replay import select_stored
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.storage.store import open_store
from tests.spark.logs import write_log

#: 2026-01-31T12:00:00Z; segment N was stored N seconds later.
BEGIN = 1_769_860_800
A = "a:4150"
KEYS = ShardKeys("t", "c", A)


def key(number):
    return KEYS.segment(number, 10 * (number - 1))


@pytest.fixture
def path(tmp_path):
    """A log with segments 1 to 9 of ten messages each; Spark has committed up to 6."""
    path = str(tmp_path / "the lög #1")
    store = open_store(path)
    write_log(store, A, *[10] * 9, first=10)
    for number in range(1, 10):
        os.utime(os.path.join(path, key(number)), (0, BEGIN + number))
    store.create(KEYS.commit(6), b"")
    return path


def options(path, **more):
    texts = {"mode": "replay", "storage": path, "topic": "t", "channel": "c"}
    return read_options({**texts, **more}, "batch")


def at(number):
    """An offset as Spark's checkpoint has it."""
    return f'{{"v": 2, "shards": {{"{A}": {number}}}}}'


def tens(path, **more):
    """The segments whose messages a replay gives, each whole."""
    reader = NsqBatchReader(options(path, **more), "x")
    far = pickle.loads(pickle.dumps(reader))
    bodies = [int(body) for partition in reader.partitions()
              for rows in far.read(pickle.loads(pickle.dumps(partition)))
              for body in rows.column("body").to_pylist()]
    assert len(bodies) == len(set(bodies)) == 10 * len({body // 10 for body in bodies})
    return sorted({body // 10 for body in bodies})


@pytest.mark.parametrize("range_options, found", [
    ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ({"startingOffsets": at(4), "endingOffsets": at(6)}, [5, 6]),
    ({"startingTimestamp": f"{BEGIN + 4}000", "endingTimestamp": f"{BEGIN + 7}000"}, [4, 5, 6]),
    ({"startingTimestamp": f"{BEGIN + 8}000", "endingOffsets": at(2)}, []),
])
def test_a_range_is_read_and_nothing_changes(path, range_options, found):
    store = open_store(path)
    before = store.list_objects("")
    assert tens(path, **range_options) == found
    assert store.list_objects("") == before


def test_a_range_describes_itself(path):
    text = str(select_stored(options(path, startingOffsets=at(7))))
    assert text.startswith("shard a:4150: offsets (7, 9]: 2 segments, 20 messages, ")
    assert text.endswith("stored from 2026-01-31T12:00:08+00:00 to 2026-01-31T12:00:09+00:00")
    empty = select_stored(options(path, startingOffsets="latest"))
    assert str(empty) == "shard a:4150: offsets (9, 9]: no segments"


@pytest.mark.parametrize("number, start, words", [
    (1, 0, "has segments from 2 on; reading was to begin after 0, so 1 is not there"),
    (4, 2, "has no segments 4 any more"),
])
def test_segments_that_are_not_kept_any_more_are_named(path, number, start, words):
    """With failOnDataLoss=false the others are read."""
    open_store(path).delete([key(number)])
    with pytest.raises(DataLossError, match=words):
        tens(path, startingOffsets=at(start))
    found = tens(path, startingOffsets=at(start), failOnDataLoss="false")
    assert found and number not in found


def test_a_folder_without_a_log_is_an_error(tmp_path, path):
    with pytest.raises(StorageError, match="has no log of t/c: no query and no owner"):
        select_stored(options(str(tmp_path / "x")))
    assert not (tmp_path / "x").exists()
    with pytest.raises(StorageError, match="has no log of other/c"):
        select_stored(options(path, topic="other"))
