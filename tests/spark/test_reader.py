"""Spark's side of the stream, without Spark: offsets, batches, limits, restarts. No JVM."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
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
from nsqclient.producer.producer import Producer  # noqa: E402 - needs pyspark
from nsqclient.spark.errors import (  # noqa: E402 - as above
    DamagedSegmentError,
    DataLossError,
    SpoolFullError,
    SpoolNotVisibleError,
)
from nsqclient.spark.ingest import receiver as receiver_module  # noqa: E402 - as above
from nsqclient.spark.ingest.message_buffer import split_by_bytes  # noqa: E402 - as above
from nsqclient.spark.options import read_options  # noqa: E402 - needs pyspark
from nsqclient.spark.partitions import SegmentPartition, read_partition  # noqa: E402 - as above
from nsqclient.spark import batch_reader, reader as reader_module  # noqa: E402 - as above
from nsqclient.spark.batch_reader import NsqBatchReader  # noqa: E402 - needs pyspark
from nsqclient.spark.peeking import peek  # noqa: E402 - needs pyarrow
from nsqclient.spark.reader import NsqStreamReader  # noqa: E402 - needs pyspark
from nsqclient.spark.snapshot import release, snapshots  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.segment import encode_segment, read_rows  # noqa: E402 - as above
from tests.support.waiting import wait_until  # noqa: E402 - needs pyspark

ZERO = {"seq": 0}
ALL = ReadMaxRows(1_000_000)


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


def test_a_checkpoint_of_a_query_with_storage_is_refused(reader):
    """Its offset names shards."""
    offset = {"v": 2, "shards": {}}
    with pytest.raises(ConfigError, match="a query with storage"):
        reader().latestOffset(offset, ALL)
    with pytest.raises(ConfigError, match="a query with storage"):
        reader().partitions(offset, offset)


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
    assert one.latestOffset(ZERO, ReadMaxBytes(1_000_000)) == {"seq": spool.last}
    assert one.getDefaultReadLimit() == ReadMaxRows(200_000)


@pytest.mark.parametrize("transport, given, limit", [
    ("inline", None, 64 * 1024 * 1024), ("file", None, 256 * 1024 * 1024), ("inline", "7", 7),
    ("file", "0", None),
])
def test_a_batch_has_a_limit_of_bytes_by_default(reader, transport, given, limit):
    """Of large messages 200,000 would be too much for Spark's driver, or for its workers."""
    one = reader(transport, **({} if given is None else {"maxBytesPerTrigger": given}))
    assert one._limits(one.getDefaultReadLimit()) == (200_000, limit)


def test_a_logged_batch_that_is_too_large_is_served_with_a_warning(
    reader, server, monkeypatch, caplog
):
    """Its tasks are small, but the driver holds all of them."""
    monkeypatch.setattr(reader_module, "_MUCH", 100)
    one = reader("inline")
    filled(one, server, 300)
    end = one.latestOffset(ZERO, ALL)
    assert sorted(bodies(one, ZERO, end)) == list(range(300))
    assert "raise spark.driver.memory or set transport=file" in caplog.text


def test_the_first_batch_has_what_is_there(reader, server):
    """It waits for the connection, rather than leave the messages to the next trigger."""
    publish(server, 100)
    assert reader().latestOffset(ZERO, ALL) != ZERO


@pytest.fixture
def paced(reader, server):
    """A reader with an hour between two batches, whose first one was planned; and its end."""
    one = reader(maxTriggerDelayMs="3600000", max_in_flight="50")
    publish(server, 100)
    return one, one.latestOffset(ZERO, ALL)


def test_a_batch_waits_for_the_trigger_delay(paced, server):
    """The first is planned at once, the next one when the time is over; Spark is answered soon."""
    one, first = paced
    publish(server, 100)
    wait_until(lambda: one._receiver.spool.last > first["seq"], 30, "more is there")
    assert one.latestOffset(first, ALL) is first
    one._due = 0.0
    assert one.latestOffset(first, ALL)["seq"] > first["seq"]


@pytest.mark.parametrize("limit", [ReadMaxRows(1), ReadMaxBytes(1)])
def test_a_full_batch_does_not_wait_for_the_trigger_delay(paced, server, limit):
    """By rows or by bytes; the progress says so. Otherwise the delay would cap the rate."""
    one, first = paced
    publish(server, 500)
    wait_until(lambda: one._receiver.spool.last > first["seq"] + 1, 30, "more is there")
    assert one.latestOffset(first, limit) == {"seq": first["seq"] + 1}
    assert one.reportLatestOffset()["batch_full"] is True


def test_a_full_spool_does_not_wait_for_the_trigger_delay(reader, server):
    """Nothing more would come."""
    one = reader(maxTriggerDelayMs="3600000", max_in_flight="50", maxSpoolMessages="200")
    publish(server, 10)
    first = one.latestOffset(ZERO, ALL)
    publish(server, 1000)
    wait_until(lambda: one._receiver.is_full, 30, "the spool is full")
    assert one.latestOffset(first, ALL)["seq"] > first["seq"]


def test_the_trigger_once_is_refused(reader, tmp_path):
    """It would take what comes in the first moment; nothing is read or written."""
    one = reader(nsqd="127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"use trigger\(availableNow=True\)"):
        one.latestOffset(ZERO, ReadAllAvailable())
    assert not (tmp_path / "spool").exists()


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


def test_committed_segments_are_kept_and_do_not_stop_the_flow(reader, server):
    """``maxSpoolMessages`` counts what Spark has not committed."""
    one = reader(max_in_flight="50", maxSpoolMessages="100")
    publish(server, 1000)
    offsets = [one.initialOffset()]

    def has_committed_all():
        offsets.append(one.latestOffset(offsets[-1], ALL))
        entries = one._receiver.spool.batch(0, offsets[-1]["seq"])
        return sum(entry.rows for entry in entries) == 1000

    wait_until(has_committed_all, 30, "all is read")
    one.latestOffset(offsets[-1], ALL)
    assert one.reportLatestOffset()["spool_messages"] == 0
    assert sorted(bodies(one, ZERO, offsets[-1])) == list(range(1000))


@pytest.mark.parametrize("options, kept", [({}, 99), ({"spoolRetentionMs": "0"}, 1),
                                           ({"spoolRetentionBytes": "1"}, 1)])
def test_committed_segments_are_kept_as_the_options_say(reader, server, options, kept):
    """All of them, by default; without a retention the last one only."""
    one = reader(max_in_flight="20")
    filled(one, server, 100)
    one.stop()
    end = {"seq": len(list(Path(one._options.spool_dir).glob("*.arrow")))}
    reader(**options).latestOffset(end, ALL)
    assert len(list(Path(one._options.spool_dir).glob("*.arrow"))) == min(end["seq"], kept)
    assert end["seq"] >= 5


@pytest.mark.parametrize("text, first", [
    ("earliest", 0), ("latest", 400), ('{"seq": 1}', None), ("committed", 200)])
def test_a_new_query_begins_where_startingOffsets_says(reader, server, text, first):
    """And goes on with what comes; a query with a checkpoint ignores it."""
    one = reader(max_in_flight="50")
    filled(one, server, 200)
    end = {"seq": one._receiver.spool.last}
    in_first = len(bodies(one, ZERO, {"seq": 1}))
    one.latestOffset(end, ALL)
    publish(server, 200, 200)
    wait_until(lambda: one._receiver.spool.waiting[0] == 200, 30, "all is stored")
    one.stop()
    again = reader(startingOffsets=text)
    start = again.initialOffset()
    publish(server, 100, 400)
    wait_until(lambda: again._receiver._ingest.stored == 100, 30, "more came")
    found = bodies(again, start, {"seq": again._receiver.spool.last})
    assert again.initialOffset() == start
    assert len(found) == (500 - in_first if first is None else 500 - first)
    again.stop()
    other = reader(startingOffsets=text)
    other.latestOffset(end, ALL)
    assert other._receiver.spool.committed == end["seq"]


def test_a_new_query_begins_at_a_time(reader, server):
    """At the first segment that was stored then or later."""
    one = reader(max_in_flight="20")
    filled(one, server, 100)
    last = {"seq": one._receiver.spool.last}
    for number in range(1, last["seq"] + 1):
        os.utime(one._receiver.spool.path_of(number), (1000.0, 1000.0 + number))
    one.latestOffset(last, ALL)
    one.stop()
    assert reader(startingTimestamp="1003000").initialOffset() == {"seq": 2}


def test_a_query_that_cannot_begin_there_releases_the_spool(reader, server):
    """The next one may."""
    for _ in range(2):
        with pytest.raises(DataLossError, match="ends at number 0; reading was to begin after 5"):
            reader(startingOffsets='{"seq": 5}').initialOffset()
    assert reader(startingOffsets='{"seq": 5}', failOnDataLoss="false").initialOffset() == ZERO


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


def flip(path):
    """Damage the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def test_available_now_on_a_full_disk_gives_what_is_stored_and_fails(
    reader, server, monkeypatch
):
    """It has an end, unlike a stream; the next run goes on there."""
    publish(server, 100)
    one = reader()
    one.prepareForTriggerAvailableNow()
    one.initialOffset()
    spool = one._receiver.spool
    wait_until(lambda: spool.waiting[0] == 100, 20, "all is stored")
    with monkeypatch.context() as patch:
        patch.setattr(spool, "retry", lambda: False)
        patch.setattr(receiver_module, "_SPACE_PATIENCE", 0.0)
        patch.setattr(one._receiver, "drain_is_over", lambda: False)
        spool.report_full(SpoolFullError("/x", "no space"))
        end = one.latestOffset(ZERO, ALL)
        assert len(bodies(one, ZERO, end)) == 100
        assert one.reportLatestOffset()["disk_full"]
        with pytest.raises(SpoolFullError, match="no space"):
            one.latestOffset(end, ALL)


@pytest.fixture(params=[6, 20], ids=["6 MB", "20 MB"])
def small_disk(request, tmp_path):
    """A disk of its own that is smaller than the topic."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def run_as_spark(reader, seq, is_over):
    """Plan and read batches until it is over; return the bodies of all of them."""
    found, start = [], {"seq": seq}
    while not is_over(found):
        end = reader.latestOffset(start, ALL)
        if end is start and reader._drains:
            break
        if end is not start:
            found += bodies(reader, start, end)
        start = end
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("drains", [True, False], ids=["availableNow", "stream"])
def test_a_disk_smaller_than_the_topic_passes_every_message_once(
    small_disk, reader, server, drains
):
    """What is committed makes space, though the notes of it still fit."""
    count = 150_000
    with Producer([server.tcp_address]) as producer:
        for first in range(0, count, 10_000):
            producer.publish_many("t", [b"%0200d" % n for n in range(first, first + 10_000)])
    one = reader(spoolDir=str(small_disk / "spool"))
    if drains:
        one.prepareForTriggerAvailableNow()
    one.initialOffset()
    found = run_as_spark(one, 0, lambda found: not drains and len(found) >= count)
    assert sorted(found) == list(range(count))


@pytest.mark.parametrize("transport", ["file", "inline"])
def test_a_damaged_segment_ends_the_query_and_is_named(reader, server, transport):
    """Whichever way it goes: the driver finds out, or the task."""
    one = reader(transport, max_in_flight="100")
    filled(one, server, 500)
    end = one.latestOffset(ZERO, ALL)
    flip(sorted(Path(one._options.spool_dir).glob("*.arrow"))[1])
    with pytest.raises(DamagedSegmentError, match=f"offset 2 of nsqd {server.tcp_address}"):
        bodies(one, ZERO, end)


@pytest.mark.parametrize("transport", ["file", "inline"])
def test_the_rest_of_a_batch_is_read_without_a_damaged_segment(reader, server, transport, caplog):
    """Where the user says so, and with one warning, however often it is read."""
    one = reader(transport, max_in_flight="100", failOnDataLoss="false")
    filled(one, server, 500)
    end = one.latestOffset(ZERO, ALL)
    damaged = sorted(Path(one._options.spool_dir).glob("*.arrow"))[1]
    lost = set(map(int, read_rows(str(damaged)).column("body").to_pylist()))
    flip(damaged)
    for _ in range(3):
        assert set(bodies(one, ZERO, end)) == set(range(500)) - lost
    assert caplog.text.count(f"segment {damaged.name} is damaged") == 1
    assert len([r for r in caplog.records if "failOnDataLoss" in r.getMessage()]) == 1


def test_small_segments_are_joined_and_large_ones_are_not():
    """Rows keep their order; large segments are not copied."""
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


@pytest.fixture
def planned(reader, server):
    """Tasks of a batch that read the spool, and its folder."""
    one = reader("file")
    filled(one, server, 100)
    return one.partitions(ZERO, one.latestOffset(ZERO, ALL)), Path(one._options.spool_dir)


def test_an_executor_without_the_spool_fails_with_the_remedy(planned):
    """The host may be the driver's: in a container it sees other folders."""
    [task, *_], spool = planned
    spool.rename(spool.with_name("moved"))
    words = f"{spool}: this executor does not see .* no such folder here.* transport=inline"
    try:
        with pytest.raises(SpoolNotVisibleError, match=words):
            list(read_partition(task))
    finally:
        spool.with_name("moved").rename(spool)


@pytest.mark.parametrize("content", [None, '{"id": "another"}', "{", "[]"])
def test_an_executor_with_another_spool_fails_with_the_remedy(planned, content):
    """A folder of that path is there, and even a segment of that name."""
    [task, *_], spool = planned
    meta = (spool / "meta.json").read_text()
    (spool / "meta.json").unlink()
    if content is not None:
        (spool / "meta.json").write_text(content)
    with pytest.raises(SpoolNotVisibleError, match="folder here is not the driver's"):
        list(read_partition(task))
    (spool / "meta.json").write_text(meta)


def test_a_segment_that_was_deleted_is_called_that(planned):
    """The executor sees the driver's spool: its messages are lost."""
    [task, *_], spool = planned
    for file in spool.glob("*.arrow"):
        file.unlink()
    with pytest.raises(DataLossError, match="it was deleted"):
        list(read_partition(pickle.loads(pickle.dumps(task))))


def test_every_spool_has_an_id_of_its_own(reader, server, tmp_path):
    """Also a spool that an earlier version made, from its next start on."""
    one = reader()
    one.initialOffset()
    one.stop()
    meta = tmp_path / "spool" / "meta.json"
    before = json.loads(meta.read_text())
    assert len(before["id"]) == 32
    one = reader()
    one.initialOffset()
    one.stop()
    assert json.loads(meta.read_text()) == before
    del before["id"]
    meta.write_text(json.dumps(before))
    reader().initialOffset()
    assert len(json.loads(meta.read_text())["id"]) == 32


def batch_rows(texts, name="s", **options):
    """What a batch read gives."""
    one = NsqBatchReader(read_options({**texts, **options}, "batch"), "file", name)
    return [body for partition in one.partitions()
            for rows in one.read(partition) for body in rows.column("body").to_pylist()]


def test_a_peek_requeues_every_message(server, texts):
    """Nothing is removed, and nothing stays out."""
    publish(server, 50)
    server.post("/channel/create", topic="t", channel="c")
    wait_until(lambda: server.stats("t", "c")["depth"] == 50, 30, "the channel has all")
    assert len(set(batch_rows(texts, maxMessages="20"))) == 20
    wait_until(lambda: server.stats("t", "c")["depth"] == 50, 30, "all went back")
    assert len(set(batch_rows(texts))) == 50


def test_a_peek_gives_all_that_uneven_nsqds_have(server_factory, texts):
    """One of two may have nearly all; each message is delivered once."""
    servers = [server_factory(), server_factory()]
    for server, count in zip(servers, (90, 10)):
        publish(server, count)
        server.post("/channel/create", topic="t", channel="c")
    texts |= {"nsqd": ",".join(server.tcp_address for server in servers),
              "nsqdHttp": ",".join(server.http_address for server in servers)}
    for attempts in (1, 2):
        rows = [row for _, rows in peek(read_options(texts, "batch")) for row in rows]
        assert len(rows) == 100 and {row[1] for row in rows} == {attempts}


def test_a_peek_at_large_messages_makes_tasks_that_fit(server, texts, monkeypatch):
    """A thousand of 1 MiB would be more than Spark sends with a task."""
    monkeypatch.setattr(batch_reader, "split_by_bytes", lambda parts: split_by_bytes(parts, 100))
    publish(server, 50)
    one = NsqBatchReader(read_options(texts, "batch"), "file", "s")
    tasks = one.partitions()
    assert len(tasks) == 25 and all(len(task.sources) == 1 for task in tasks)


def test_a_peek_at_an_empty_channel_is_empty(server, texts):
    """It does not wait when the depth is known."""
    assert batch_rows(texts) == []


def test_a_peek_at_a_channel_in_use_is_refused(server, texts, reader):
    """It would hold messages back from others."""
    reader().latestOffset(ZERO, ALL)
    wait_until(lambda: server.stats("t", "c").get("client_count"), 30, "it is connected")
    with pytest.raises(ConfigError, match="allowShared=true"):
        batch_rows(texts)


def test_a_drain_takes_max_messages_and_keeps_them(server, texts):
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


def test_a_damaged_segment_of_a_snapshot_is_an_error(server, texts):
    """It is the only copy; the rest can be read."""
    publish(server, 50)
    batch_rows(texts, "one", mode="drain")
    flip(next(Path(texts["spoolDir"], "one").glob("*.arrow")))
    with pytest.raises(DamagedSegmentError):
        batch_rows(texts, "one", mode="drain")
    assert len(batch_rows(texts, "one", mode="drain", failOnDataLoss="false")) < 50


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
