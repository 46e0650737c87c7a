"""Spark's side of the stream, without Spark: offsets, batches, limits, restarts. No JVM."""

from __future__ import annotations

import itertools
import pickle
import socket
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import (  # noqa: E402 - needs pyspark
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
)

from nsqclient.errors import ConfigError  # noqa: E402 - needs pyspark
from nsqclient.producer import Producer  # noqa: E402 - needs pyspark
from nsqclient.spark.batch_reader import NsqBatchReader  # noqa: E402 - needs pyspark
from nsqclient.spark.drained import release, snapshots  # noqa: E402 - needs pyspark
from nsqclient.spark.errors import DataLossError  # noqa: E402 - needs pyspark
from nsqclient.spark.options import read_options  # noqa: E402 - needs pyspark
from nsqclient.spark.partitions import SegmentPartition, read_partition  # noqa: E402 - as above
from nsqclient.spark.spool.segment import encode_segment  # noqa: E402 - needs pyspark
from nsqclient.spark.stream_reader import NsqStreamReader  # noqa: E402 - needs pyspark
from tests.support.waiting import wait_until  # noqa: E402 - needs pyspark

ZERO = {"seq": 0}
ALL = ReadAllAvailable()


@pytest.fixture
def texts(server, tmp_path):
    """Options of a source on one server."""
    return {"topic": "t", "channel": "c", "nsqd": server.tcp_address,
            "nsqdHttp": server.http_address, "spoolDir": str(tmp_path / "spool")}


@pytest.fixture
def reader(texts):
    """Factory of stream readers; they are stopped with the test."""
    started = []

    def start(transport="file", **options):
        found = NsqStreamReader(read_options({**texts, **options}, "stream"), transport)
        started.append(found)
        return found

    yield start
    for one in started:
        one.stop()


def publish(server, count, first=0):
    """Messages whose bodies are numbers."""
    with Producer([server.tcp_address]) as producer:
        producer.publish_many("t", [b"%d" % number for number in range(first, first + count)])


def bodies(reader, start, end):
    """What executors read of a batch, through pickle as Spark does it."""
    far = pickle.loads(pickle.dumps(NsqStreamReader(reader._options, "file")))
    found = []
    for partition in reader.partitions(start, end):
        for batch in far.read(pickle.loads(pickle.dumps(partition))):
            found += map(int, batch.column("body").to_pylist())
    return found


def filled(reader, server, count):
    """Publish, and wait until it is in the spool."""
    publish(server, count)
    reader.latestOffset(ZERO, ALL)
    wait_until(lambda: reader._receiver.spool.waiting[0] >= count, 20, "all is stored")


def test_nothing_new_is_the_very_same_offset(reader):
    """Spark compares texts."""
    one = reader()
    assert one.initialOffset() == ZERO
    assert one.latestOffset(ZERO, ALL) is ZERO


def test_a_batch_has_what_came(reader, server):
    """Once, whatever number of times it is read."""
    one = reader()
    filled(one, server, 500)
    end = one.latestOffset(ZERO, ALL)
    assert sorted(bodies(one, ZERO, end)) == list(range(500))
    assert sorted(bodies(one, ZERO, end)) == list(range(500))


@pytest.mark.parametrize("transport", ["file", "inline"])
def test_both_ways_to_the_executors_give_the_same(reader, server, transport):
    """A path, or the segment itself."""
    one = reader(transport)
    filled(one, server, 300)
    end = one.latestOffset(ZERO, ALL)
    assert sorted(bodies(one, ZERO, end)) == list(range(300))


def test_limits_of_rows_and_bytes_hold(reader, server):
    """As far as whole segments allow."""
    one = reader(max_in_flight="50", maxBytesPerTrigger="1")
    filled(one, server, 500)
    spool = one._receiver.spool
    assert one.latestOffset(ZERO, ReadMaxRows(1)) == {"seq": 1}
    assert one.latestOffset(ZERO, ReadMaxRows(10_000)) == {"seq": 1}
    assert one.latestOffset(ZERO, ReadMaxBytes(1)) == {"seq": 1}
    assert one.latestOffset(ZERO, ALL) == {"seq": spool.last}
    assert one.getDefaultReadLimit() == ReadMaxRows(200_000)


def test_a_restart_replays_the_same_batch(reader, server):
    """The offset was logged, the batch not committed."""
    one = reader()
    filled(one, server, 300)
    end = one.latestOffset(ZERO, ALL)
    before = bodies(one, ZERO, end)
    one.stop()
    assert bodies(reader(), ZERO, end) == before


def test_asking_for_more_commits_what_was_before(reader, server):
    """``commit()`` comes too late for the last batch; this does not."""
    one = reader()
    filled(one, server, 300)
    end = one.latestOffset(ZERO, ALL)
    one.commit(ZERO)
    assert one.latestOffset(end, ALL) is end
    one.stop()
    assert reader().initialOffset() == end


def test_the_lag_is_reported(reader, server):
    """Spark shows it in the progress."""
    one = reader()
    assert one.reportLatestOffset() == ZERO
    filled(one, server, 100)
    report = one.reportLatestOffset()
    assert report["seq"] > 0 and report["spool_messages"] == 100
    wait_until(lambda: server.http_address in one.reportLatestOffset()["depth"], 30, "the depth")


def test_available_now_drains_in_batches_and_ends(reader, server):
    """What is published later is left for the next run."""
    publish(server, 900)
    one = reader(max_in_flight="100")
    one.prepareForTriggerAvailableNow()
    start, found, batches = one.initialOffset(), [], 0
    while True:
        end = one.latestOffset(start, ReadMaxRows(300))
        if end is start:
            break
        found += bodies(one, start, end)
        start, batches = end, batches + 1
    assert sorted(found) == list(range(900)) and batches >= 3
    publish(server, 5)
    assert one.latestOffset(start, ALL) is start
    assert server.stats("t", "c")["depth"] == 5


def test_a_lost_segment_ends_the_query(reader, server):
    """Its messages were acknowledged."""
    one = reader()
    filled(one, server, 100)
    end = one.latestOffset(ZERO, ALL)
    one.stop()
    for file in Path(one._options.spool_dir).glob("*.arrow"):
        file.unlink()
    with pytest.raises(DataLossError, match="lacks segments"):
        reader().partitions(ZERO, end)


def test_small_segments_are_joined_and_large_ones_are_not():
    """Rows keep their order; nobody waits for what is large anyway."""
    sizes = [1, 2, 1500, 1, 999, 1, 1, 2000]
    numbers = iter(range(sum(sizes)))
    segments = [
        encode_segment("t", "c", [("n:1", [
            (number, 1, b"%016x" % number, b"x") for number in itertools.islice(numbers, size)])]
        ).to_pybytes() for size in sizes]
    batches = list(read_partition(SegmentPartition(segments)))
    assert [batch.num_rows for batch in batches] == [3, 1500, 1000, 2, 2000]
    assert [stamp for batch in batches for stamp in batch.column("timestamp_ns").to_pylist()
            ] == list(range(sum(sizes)))


def test_an_executor_that_does_not_see_the_spool_says_so(tmp_path):
    """Instead of an empty batch."""
    elsewhere = SegmentPartition([str(tmp_path / "gone.arrow")], host="driver-host")
    with pytest.raises(DataLossError, match="mount spoolDir on every executor"):
        list(read_partition(elsewhere))
    here = SegmentPartition([str(tmp_path / "gone.arrow")], host=socket.gethostname())
    with pytest.raises(DataLossError, match="it was deleted"):
        list(read_partition(here))


def batch_rows(texts, name="s", **options):
    """What a batch read gives."""
    one = NsqBatchReader(read_options({**texts, **options}, "batch"), "file", name)
    return [body for partition in one.partitions()
            for rows in one.read(partition) for body in rows.column("body").to_pylist()]


def test_a_peek_gives_everything_back(server, texts):
    """Nothing is removed, and nothing stays out."""
    publish(server, 50)
    server.post("/channel/create", topic="t", channel="c")
    wait_until(lambda: server.stats("t", "c")["depth"] == 50, 30, "the channel has all")
    assert len(set(batch_rows(texts, maxMessages="20"))) == 20
    wait_until(lambda: server.stats("t", "c")["depth"] == 50, 30, "all went back")
    assert len(set(batch_rows(texts))) == 50


def test_a_peek_at_an_empty_channel_is_empty(server, texts):
    """It does not wait when the depth is known."""
    assert batch_rows(texts) == []


def test_a_peek_at_a_channel_in_use_is_refused(server, texts, reader):
    """It would hold messages back from others."""
    reader().latestOffset(ZERO, ALL)
    wait_until(lambda: server.stats("t", "c").get("client_count"), 30, "it is connected")
    with pytest.raises(ConfigError, match="allowShared=true"):
        batch_rows(texts)


def test_a_drain_takes_what_it_says_and_keeps_it(server, texts):
    """Exactly maxMessages; the rest of the channel by the next one; again by name."""
    publish(server, 500)
    first = batch_rows(texts, "one", mode="drain", maxMessages="120")
    assert len(first) == 120
    second = batch_rows(texts, "two", mode="drain")
    assert sorted(map(int, first + second)) == list(range(500))
    assert sorted(batch_rows(texts, "x", mode="drain", snapshot="one")) == sorted(first)
    found = snapshots(texts["spoolDir"])
    assert [(one.name, one.rows, one.is_complete) for one in found] == [
        ("one", 120, True), ("two", 380, True)]


def test_a_snapshot_can_be_released_once(server, texts):
    """And is gone then."""
    publish(server, 5)
    batch_rows(texts, "one", mode="drain")
    release(texts["spoolDir"], "one")
    assert snapshots(texts["spoolDir"]) == []
    with pytest.raises(ConfigError, match="no snapshot 'one'"):
        release(texts["spoolDir"], "one")


def test_executors_are_given_no_secret(server, texts, reader):
    """They read segments, and talk to no nsqd."""
    assert b"s3cret" not in pickle.dumps(reader(auth_secret="s3cret"))
    peek = {**texts, "auth_secret": "s3cret"}
    assert b"s3cret" not in pickle.dumps(NsqBatchReader(read_options(peek, "batch"), "file", "x"))
