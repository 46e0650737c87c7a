"""A replay without Spark: what is read, what is refused, and what is said of it."""

import pytest

import nsqclient.spark
from nsqclient.errors import NSQError
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
    bodies = []
    monkeypatch.setattr(nsqclient.spark, "register", lambda spark: None)
    monkeypatch.setattr(replaying.Sink, "publish", lambda sink, rows: bodies.extend(rows))
    return bodies


@pytest.mark.parametrize("options, done, bodies", [
    ({"failOnDataLoss": False}, ({"n:1": 0}, {"n:1": 3}, 6), range(6)),
    ({"startingOffsets": {"v": 2, "shards": {"n:1": 1}},
      "ENDINGOFFSETS": '{"v": 2, "shards": {"n:1": 2}}'},
     ({"n:1": 1}, {"n:1": 2}, 2), range(2, 4)),
    ({"startingTimestamp": 0, "endingTimestamp": 1}, ({"n:1": 0}, {"n:1": 0}, 0), ()),
])
def test_bodies_of_a_range_are_published(storage, published, options, done, bodies):
    """The offsets that it was are returned."""
    assert replay(FakeSpark(), storage=storage, sink_topic="again",
                  sink_options={"nsqd": "127.0.0.1:1"}, **WHERE, **options) == done
    assert published == [b"%d" % number for number in bodies]


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
