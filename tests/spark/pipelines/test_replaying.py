"""A replay without Spark: what is read, what is refused, and what is said of it."""

from __future__ import annotations

import pytest

import nsqclient.spark
from nsqclient.errors import ConfigError, NSQError
from nsqclient.spark.options import read_options
from nsqclient.spark.pipelines import replay, replaying
from nsqclient.spark.batch_reader import NsqBatchReader
from nsqclient.spark.storage.store import open_store
from tests.spark.logs import write_log

WHERE = {"topic": "t", "channel": "c"}


class FakeSpark:
    """A session that reads with the options of a data source, in this process."""

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
        return [value for task in self._reader.partitions()
                for rows in self._reader.read(task) for value in rows.column(column).to_pylist()]


@pytest.fixture
def storage(tmp_path):
    """The path of a log whose shard n:1 has segments 1 to 3 of two messages each."""
    path = str(tmp_path / "log")
    write_log(open_store(path), "n:1", 2, 2, 2)
    return path


@pytest.fixture
def published(monkeypatch):
    """What was published."""
    bodies = []
    monkeypatch.setattr(nsqclient.spark, "register", lambda spark: None)
    monkeypatch.setattr(replaying.Sink, "publish", lambda sink, rows: bodies.extend(rows))
    return bodies


@pytest.mark.parametrize("options, done, bodies", [
    ({}, ({"n:1": 0}, {"n:1": 3}, 6), range(6)),
    ({"startingOffsets": {"v": 2, "shards": {"n:1": 1}},
      "ENDINGOFFSETS": '{"v": 2, "shards": {"n:1": 2}}'},
     ({"n:1": 1}, {"n:1": 2}, 2), range(2, 4)),
    ({"endingOffsets": '{"v": 2, "shards": {}}'}, ({"n:1": 0}, {"n:1": 0}, 0), ()),
    ({"startingTimestamp": 0, "endingTimestamp": 1}, ({"n:1": 0}, {"n:1": 0}, 0), ()),
    ({"startingOffsets": "committed", "failOnDataLoss": False},
     ({"n:1": 0}, {"n:1": 3}, 6), range(6)),
])
def test_bodies_of_a_range_are_published(storage, published, options, done, bodies):
    """The offsets that it was are returned; a shard that the last one does not name is left out."""
    assert replay(FakeSpark(), storage=storage, sink_topic="again",
                  sink_options={"nsqd": "127.0.0.1:1"}, **WHERE, **options) == done
    assert published == [b"%d" % number for number in bodies]


@pytest.mark.parametrize("there", [True, False])
def test_files_are_written_into_a_folder_of_their_own(storage, published, monkeypatch, there):
    """What is there already may be a query's, whose readers pass over other files."""
    monkeypatch.setattr(replaying, "HadoopFolder", lambda spark, path: FakeFolder(there))
    monkeypatch.setattr(replaying, "with_date_and_hour", lambda rows, parts: FakeFrame(parts))
    if there:
        with pytest.raises(ConfigError, match="/out is there already: a replay writes into a fol"):
            replay(FakeSpark(), storage=storage, path="/out", **WHERE)
    else:
        assert replay(FakeSpark(), storage=storage, path="/out", **WHERE).messages == 6


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
    ({"path": "/x", "storage": "x"}, "give an absolute path"),
])
def test_an_invalid_replay_is_rejected_at_once(arguments, words):
    """Before Spark is asked for anything."""
    with pytest.raises(NSQError, match=words):
        replay(None, **{"storage": "/nowhere", **WHERE, **arguments})
