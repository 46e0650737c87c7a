"""A replay without Spark: its range, its errors, and its summary."""

import os
import pickle

import pytest

import nsqclient.spark
from nsqclient.errors import NSQError
from nsqclient.spark.reading.batch_reader import NsqBatchReader
from nsqclient.spark.errors import DataLossError, StorageError
from nsqclient.spark.options import read_options
from nsqclient.spark.pipelines import replay, replaying
from nsqclient.spark.reading.replay import select_stored
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.storage import open_store
from tests.spark.logs import write_log

WHERE = {"topic": "t", "channel": "c"}
KEYS = ShardKeys("t", "c", "n:1")
#: 2026-01-31T12:00:00Z; segment N was stored N seconds later.
BEGIN = 1_769_860_800


class FakeSpark:
    """A session that reads in this process, with the options of a data source."""

    def __init__(self):
        self.read = self

    def format(self, name):
        assert name == "nsq"
        return self

    def options(self, **options):
        self._reader = NsqBatchReader(read_options(options, "batch"), "x")
        return self

    def load(self):
        return self

    def select(self, column):
        far = pickle.loads(pickle.dumps(self._reader))
        return [value for task in self._reader.partitions()
                for rows in far.read(pickle.loads(pickle.dumps(task)))
                for value in rows.column(column).to_pylist()]


@pytest.fixture
def storage(tmp_path):
    """A log whose shard n:1 has segments 1 to 3 of two messages. Two are committed."""
    path = str(tmp_path / "the lög #1")
    store = open_store(path)
    write_log(store, "n:1", 2, 2, 2)
    for number in range(1, 4):
        os.utime(os.path.join(path, KEYS.segment(number, 2 * number - 2)), (0, BEGIN + number))
    store.create(KEYS.commit(2), b"")
    return path


@pytest.fixture
def published(monkeypatch):
    bodies = []
    monkeypatch.setattr(nsqclient.spark, "register", lambda spark: None)
    monkeypatch.setattr(replaying.Sink, "publish", lambda sink, rows: bodies.extend(rows))
    return bodies


def at(number):
    """An offset in the form of Spark's checkpoint."""
    return {"v": 2, "shards": {"n:1": number}}


def again(storage, **options):
    """Replay into a topic; return the published messages."""
    return replay(FakeSpark(), storage=storage, sink_topic="again",
                  sink_options={"nsqd": "127.0.0.1:1"}, **WHERE, **options)


@pytest.mark.parametrize("options, start, end", [
    ({"failOnDataLoss": False}, 0, 3),
    ({"startingOffsets": at(1), "ENDINGOFFSETS": '{"v": 2, "shards": {"n:1": 2}}'}, 1, 2),
    ({"startingTimestamp": (BEGIN + 2) * 1000, "endingTimestamp": (BEGIN + 3) * 1000}, 1, 2),
    ({"startingTimestamp": (BEGIN + 3) * 1000, "endingOffsets": at(1)}, 2, 2),
    ({"startingTimestamp": 0, "endingTimestamp": 1}, 0, 0),
])
def test_bodies_of_a_range_are_published_and_nothing_changes(
    storage, published, options, start, end
):
    store = open_store(storage)
    before = store.list_objects("")
    assert again(storage, **options) == ({"n:1": start}, {"n:1": end}, 2 * (end - start))
    assert published == [b"%d" % number for number in range(2 * start, 2 * end)]
    assert store.list_objects("") == before


@pytest.mark.parametrize("number, left, words", [
    (1, None, "has segments from 2 on; reading should begin after 0, so 1 is not there"),
    (2, None, "has no segments 2 any more"),
    (3, b"damaged", "segment .* is damaged"),
])
def test_segments_that_cannot_be_read_are_named(storage, published, number, left, words):
    """With failOnDataLoss=false the others are read."""
    store, key = open_store(storage), KEYS.segment(number, 2 * number - 2)
    store.delete([key])
    if left is not None:
        store.create(key, left)
    with pytest.raises(DataLossError, match=words):
        again(storage, startingOffsets=at(0))
    assert again(storage, startingOffsets=at(0), failOnDataLoss=False)
    assert published == [b"%d" % body for body in range(6) if body // 2 != number - 1]


def selected(path, **more):
    """The selection of a replay."""
    return select_stored(read_options(
        {"mode": "replay", "storage": path, **WHERE, **more}, "batch"))


def test_a_range_describes_itself(storage):
    text = str(selected(storage, startingOffsets='{"v": 2, "shards": {"n:1": 1}}'))
    assert text.startswith("shard n:1: offsets (1, 3]: 2 segments, 4 messages, ")
    assert text.endswith("stored from 2026-01-31T12:00:02+00:00 to 2026-01-31T12:00:03+00:00")
    empty = selected(storage, startingOffsets="latest")
    assert str(empty) == "shard n:1: offsets (3, 3]: no segments"


def test_a_folder_without_a_log_is_an_error(tmp_path, storage):
    with pytest.raises(StorageError, match="has no log of t/c: no query and no owner"):
        selected(str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    with pytest.raises(StorageError, match="has no log of other/c"):
        selected(storage, topic="other")


@pytest.mark.parametrize("arguments, words", [
    ({}, "give a path or a sink_topic"),
    ({"path": "/x", "sink_topic": "t"}, "give a path or a sink_topic"),
    ({"path": "/x", "format": "csv"}, "use parquet, delta, orc, json"),
    ({"path": "/x", "sink_options": {"snappy": True}}, "options of a sink are for a sink_topic"),
    ({"sink_topic": "t"}, "give nsqd"),
    ({"sink_topic": "a b", "sink_options": {"nsqd": "127.0.0.1:1"}}, "a b"),
    ({"path": "/x", "max_in_flght": 5}, "did you mean max_in_flight"),
])
def test_an_invalid_replay_is_rejected_at_once(arguments, words):
    with pytest.raises(NSQError, match=words):
        replay(None, **{"storage": "/nowhere", **WHERE, **arguments})
