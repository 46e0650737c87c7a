"""A replay without Spark: what is read, what is refused, and what is said of it."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import nsqclient.spark  # noqa: E402 - needs pyspark
from nsqclient.errors import ConfigError, NSQError  # noqa: E402 - needs pyspark
from nsqclient.spark.errors import DataLossError, StorageError  # noqa: E402 - needs pyspark
from nsqclient.spark.options import read_options  # noqa: E402 - needs pyspark
from nsqclient.spark.pipelines import replay, replaying  # noqa: E402 - needs pyspark
from nsqclient.spark.batch_reader import NsqBatchReader  # noqa: E402 - needs pyspark
from nsqclient.spark.shards.names import ShardKeys  # noqa: E402 - needs pyspark
from nsqclient.spark.shards.shard_log import ShardLog  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.known_ids import Claim  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.segment import encode_segment  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.spool import Spool  # noqa: E402 - needs pyspark
from nsqclient.spark.storage.store import open_store  # noqa: E402 - needs pyspark


class FakeSpark:
    """A session that reads with the options of a data source, in this process."""

    def __init__(self):
        self.read = self

    def format(self, name):
        assert name == "nsq"
        return self

    def options(self, **options):
        self._reader = NsqBatchReader(read_options(options, "batch"), "file", "x")
        return self

    def load(self):
        return self

    def select(self, column):
        return [value for task in self._reader.partitions()
                for rows in self._reader.read(task) for value in rows.column(column).to_pylist()]


@pytest.fixture
def spool_dir(tmp_path):
    """The folder of an open spool with segments 1 to 3 of two messages each."""
    spool = Spool(str(tmp_path / "spool"), "t", "c")
    spool.open(patience=0)
    for number in range(1, 4):
        messages = [(1, 1, b"%016x" % (2 * number + n), b"%d" % number) for n in range(2)]
        spool.append(spool.write_tmp(encode_segment("t", "c", [("n:1", messages)])), 2, [])
    yield spool.folder.path
    spool.close()


@pytest.fixture
def published(monkeypatch):
    """What was published."""
    bodies = []
    monkeypatch.setattr(nsqclient.spark, "register", lambda spark: None)
    monkeypatch.setattr(replaying.Sink, "publish", lambda sink, rows: bodies.extend(rows))
    return bodies


@pytest.mark.parametrize("options, done, bodies", [
    ({}, (0, 3, 6), [b"1", b"1", b"2", b"2", b"3", b"3"]),
    ({"startingOffsets": '{"seq": 1}', "ENDINGOFFSETS": '{"seq": 2}'}, (1, 2, 2), [b"2", b"2"]),
    ({"startingTimestamp": 0, "endingTimestamp": 1}, (0, 0, 0), []),
    ({"startingOffsets": "committed", "failOnDataLoss": False}, (0, 3, 6), [
        b"1", b"1", b"2", b"2", b"3", b"3"]),
])
def test_bodies_of_a_range_are_published(spool_dir, published, options, done, bodies):
    """The offsets that it was are returned."""
    assert replay(FakeSpark(), spool_dir=spool_dir, sink_topic="again",
                  sink_options={"nsqd": "127.0.0.1:1"}, **options) == done
    assert published == bodies


@pytest.mark.parametrize("there", [True, False])
def test_files_are_written_into_a_folder_of_their_own(spool_dir, published, monkeypatch, there):
    """What is there already may be a query's, whose readers pass over other files."""
    monkeypatch.setattr(replaying, "HadoopFolder", lambda spark, path: FakeFolder(there))
    monkeypatch.setattr(replaying, "with_date_and_hour", lambda rows, parts: FakeFrame(parts))
    if there:
        with pytest.raises(ConfigError, match="/out is there already: a replay writes into a fol"):
            replay(FakeSpark(), spool_dir=spool_dir, path="/out")
    else:
        assert replay(FakeSpark(), spool_dir=spool_dir, path="/out").messages == 6


@pytest.fixture
def storage(tmp_path):
    """The URL of a storage whose shard n:1 has segments 1 to 3 of two messages each."""
    url = f"file://{tmp_path}/storage"
    store = open_store(url)
    log = ShardLog(store, ShardKeys("t", "c", "n:1"))
    log.open()
    for number in range(1, 4):
        ids = [b"%016x" % (2 * number + n) for n in range(2)]
        data = encode_segment("t", "c", [("n:1", [(1, 1, one, b"%d" % number) for one in ids])])
        log.append(log.write_tmp(data), 2, [Claim("n:1", "c", 10, ids)])
    return url


@pytest.mark.parametrize("options, done, bodies", [
    ({}, ({"n:1": 0}, {"n:1": 3}, 6), [b"1", b"1", b"2", b"2", b"3", b"3"]),
    ({"startingOffsets": {"v": 2, "shards": {"n:1": 1}},
      "endingOffsets": '{"v": 2, "shards": {"n:1": 2}}'},
     ({"n:1": 1}, {"n:1": 2}, 2), [b"2", b"2"]),
    ({"endingOffsets": '{"v": 2, "shards": {}}'}, ({"n:1": 0}, {"n:1": 0}, 0), []),
])
def test_bodies_of_shared_storage_are_published(storage, published, options, done, bodies):
    """The offsets name shards; a shard that the last offset does not name is left out."""
    assert replay(FakeSpark(), storage=storage, topic="t", channel="c", sink_topic="again",
                  sink_options={"nsqd": "127.0.0.1:1"}, **options) == done
    assert published == bodies


def test_a_storage_without_such_shards_is_an_error(storage, published):
    """Rather than a replay of nothing."""
    with pytest.raises(StorageError, match="has no shards of t/d: no owner"):
        replay(FakeSpark(), storage=storage, topic="t", channel="d", sink_topic="again",
               sink_options={"nsqd": "127.0.0.1:1"})


class FakeFolder:
    """A folder that is there, or not."""

    def __init__(self, there):
        self._there = there

    def exists(self, name):
        return self._there


class FakeFrame:
    """Rows that are written as files."""

    def __init__(self, parts):
        self.write = self
        self._parts = parts

    def format(self, name):
        assert name == "parquet"
        return self

    def partitionBy(self, *names):
        assert names == tuple(self._parts) == ("date", "hour")
        return self

    def save(self, path):
        assert path == "/out"


def test_a_range_that_is_not_there_is_an_error_before_anything_is_read(spool_dir, published):
    """The nearest is taken where that is accepted."""
    os.unlink(os.path.join(spool_dir, min(
        name for name in os.listdir(spool_dir) if name.endswith(".arrow"))))
    where = {"spool_dir": spool_dir, "sink_topic": "again", "startingOffsets": '{"seq": 0}',
             "sink_options": {"nsqd": "127.0.0.1:1"}}
    with pytest.raises(DataLossError, match="so 1 is not there"):
        replay(FakeSpark(), **where)
    assert published == []
    assert replay(FakeSpark(), failOnDataLoss=False, **where) == (1, 3, 4)


@pytest.mark.parametrize("arguments, words", [
    ({}, "give a path or a sink_topic"),
    ({"path": "/x", "sink_topic": "t"}, "give a path or a sink_topic"),
    ({"path": "/x", "format": "csv"}, "use parquet, delta, orc, json"),
    ({"path": "/x", "partition_by": ["day"]}, "cannot partition by 'day'"),
    ({"path": "/x", "sink_options": {"snappy": True}}, "options of a sink are for a sink_topic"),
    ({"sink_topic": "t"}, "give nsqd"),
    ({"sink_topic": "a b", "sink_options": {"nsqd": "127.0.0.1:1"}}, "a b"),
    ({"path": "/x", "startingOffsets": "now"}, "is none of committed, earliest, latest"),
    ({"path": "/x", "max_in_flght": 5}, "did you mean max_in_flight"),
    ({"path": "/x", "spool_dir": "x"}, "give an absolute path"),
])
def test_an_invalid_replay_is_rejected_at_once(arguments, words):
    """Before Spark is asked for anything."""
    with pytest.raises(NSQError, match=words):
        replay(None, **{"spool_dir": "/nowhere", **arguments})
