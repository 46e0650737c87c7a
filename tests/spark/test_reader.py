"""How Spark reads a log, without Spark: offsets, batches, limits, restarts. No JVM."""

import json
import os
import pickle
import subprocess
import sys
import threading

import pytest

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from nsqclient.errors import ConfigError
from nsqclient.spark.errors import DataLossError, LogInUseError, LogMismatchError
from nsqclient.spark.options import read_options
from nsqclient.spark.reading.reader import NsqStreamReader
from nsqclient.spark.shards import log_reader
from nsqclient.spark.shards.names import ShardKeys, parse_number
from nsqclient.spark.shards import reader_claim
from tests.spark.logs import bodies, write_log
from tests.support.waiting import wait_until

ALL = ReadMaxRows(1_000_000)
A, B = "a:4150", "b:4150"


@pytest.fixture
def write(store):
    """Write segments of a shard, of these sizes, with consecutive numbers."""
    logs = {}

    def put(nsqd, *sizes, first=0):
        logs[nsqd] = write_log(store, nsqd, *sizes, first=first, log=logs.get(nsqd))
        return logs[nsqd]

    return put


@pytest.fixture
def reader(storage_url):
    started = []

    def start(**options):
        texts = {"topic": "t", "channel": "c", "storage": storage_url, "listIntervalMs": "1",
                 **options}
        for one in started:  # a log has one reader at a time
            one.stop()
        found = NsqStreamReader(read_options(texts, "stream"))
        started.append(found)
        return found

    yield start
    for one in started:
        one.stop()


def offset(**shards):
    places = {f"{name}:4150": number for name, number in shards.items()}
    return {"v": 2, "log": "t/c", "shards": places}


def test_nothing_new_is_the_very_same_offset(reader, write):
    """Spark compares offsets as text."""
    write(A, 1)
    one = reader()
    start = one.initialOffset()
    assert start == offset(a=0)
    end = one.latestOffset(start, ALL)
    assert one.latestOffset(end, ALL) is end
    empty = {**offset(), "log": "t/other"}
    assert reader(channel="other").latestOffset(empty, ALL) is empty


def test_a_checkpoint_of_another_topic_or_channel_is_refused(reader, write):
    """Reading would continue at the same numbers, and skip messages."""
    write(A, 1, 1, 1)
    for options in ({"topic": "other"}, {"channel": "other"}):
        for ask in (lambda one: one.latestOffset(offset(a=1), ALL),
                    lambda one: one.partitions(offset(a=1), offset(a=2))):
            with pytest.raises(LogMismatchError, match="the checkpoint belongs to t/c"):
                ask(reader(**options))


def test_a_batch_has_what_is_new_of_every_shard(reader, write):
    """It can be read again, also by a reader that has not planned it."""
    write(A, 10, 20)
    write(B, 5, first=100)
    one = reader()
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    assert end == offset(a=2, b=1)
    for _ in range(2):
        one = reader()
        assert sorted(bodies(one, start, end)) == [*range(30), *range(100, 105)]
    write(A, 3, first=30)
    later = one.latestOffset(end, ALL)
    assert sorted(bodies(one, end, later)) == [30, 31, 32]
    assert json.loads(json.dumps(later)) == later


def test_no_row_passes_the_driver_and_no_secret_goes_to_executors(
    reader, write, store, monkeypatch
):
    """Tasks contain keys, and planning reads no object."""
    write(A, 10)
    one = reader(auth_secret="hidden")
    start = one.initialOffset()
    monkeypatch.setattr(type(store), "read", None)
    monkeypatch.setattr("nsqclient.spark.reading.reader.probe", lambda store: None)
    end = one.latestOffset(start, ALL)
    [partition] = one.partitions(start, end)
    sent = pickle.dumps((one, partition))
    assert b"hidden" not in sent and len(sent) < 1000


def test_a_shard_joins_with_an_empty_range(reader, write):
    """Spark's log then has the position before its first rows."""
    write(A, 5)
    one = reader()
    end = one.latestOffset(one.initialOffset(), ALL)
    write(B, 7)
    joined = one.latestOffset(end, ALL)
    assert joined == offset(a=1, b=0) and bodies(one, end, joined) == []
    last = one.latestOffset(joined, ALL)
    assert last == offset(a=1, b=1) and len(bodies(one, joined, last)) == 7


def test_a_shard_that_is_removed_leaves_when_it_was_read(reader, write, store, monkeypatch):
    monkeypatch.setattr(log_reader, "_COMMIT_INTERVAL", 1000)
    write(A, 5)
    write(B, 5)
    one = reader()
    start = one.initialOffset()
    store.delete([ShardKeys("t", "c", B).shard])
    end = one.latestOffset(start, ALL)
    assert end == offset(a=1, b=1)
    assert one.latestOffset(end, ALL) is end
    one._opened.log._note_commits()
    left = one.latestOffset(end, ALL)
    assert left == offset(a=1)
    write(B, 3, first=5)
    store.create(ShardKeys("t", "c", B).shard, b"")  # as its owner does when it is back
    back = one.latestOffset(left, ALL)
    assert back == offset(a=1, b=1)
    assert sorted(bodies(one, back, one.latestOffset(back, ALL))) == [5, 6, 7]


def test_a_limit_below_one_segment_is_refused(reader, write):
    """A batch has whole segments. The rows of the newest segment are unknown."""
    write(A, 5, 30, 10)
    with pytest.raises(ConfigError, match="of 20 is less than one segment of shard a:4150, which"
                                          " has 30 rows"):
        reader(maxMessagesPerTrigger="20").latestOffset(offset(a=0), ALL)
    assert reader(maxMessagesPerTrigger="30").latestOffset(offset(a=0), ALL) != offset(a=0)


def test_limits_of_rows_and_bytes_hold_over_shards(reader, write):
    write(A, *[10] * 9)
    write(B, *[10] * 3)
    one = reader()
    start = one.initialOffset()
    first = one.latestOffset(start, ReadMaxRows(40))
    assert first == offset(a=3, b=1) and one.reportLatestOffset()["batch_full"]
    assert sum(one.latestOffset(start, ReadMaxBytes(1))["shards"].values()) == 1
    assert one.getDefaultReadLimit() == ReadMaxRows(200_000)
    report = one.reportLatestOffset()
    assert report["shards"] == {A: 9, B: 3} and report["waiting"][A]["messages"] == 90


def test_a_query_without_a_checkpoint_begins_after_what_was_committed(reader, write):
    """According to the recorded commits, also for shards that a given offset lacks."""
    write(A, 5, 5)
    one = reader()
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(5))
    assert end == offset(a=1)
    one.latestOffset(end, ALL)
    one.stop()
    write(B, 1)
    assert reader().initialOffset() == offset(a=1, b=0)
    named = '{"v": 2, "shards": {"b:4150": 1}}'
    assert reader(startingOffsets=named).initialOffset() == offset(a=1, b=1)
    assert reader(startingTimestamp="1").initialOffset() == offset(a=0, b=0)


def test_a_start_that_is_repeated_before_the_first_commit_begins_at_the_same_place(
    reader, write, store
):
    """Spark's log has only the end of its first batch. After a commit a new query begins again."""
    write(A, 1, 1)
    one = reader(startingOffsets="latest")
    start = one.initialOffset()
    write(A, 1, 1, first=2)
    end = one.latestOffset(start, ALL)
    again = reader(startingOffsets="latest")
    assert again.initialOffset() == start == offset(a=2)
    assert sorted(bodies(again, start, end)) == [2, 3]
    assert reader(startingOffsets="earliest").initialOffset() == offset(a=0)
    reader(startingOffsets="latest").latestOffset(end, ALL)
    assert reader(startingOffsets="latest").initialOffset() == offset(a=4)
    assert store.list_objects("t/c/starts")


@pytest.mark.parametrize("shards, words", [
    ('{"a:4150": 0}', "a:4150: has segments from 2 on; reading should begin after 0, so 1 is not"),
    ('{"none:4150": 1}', "none:4150: is not a shard of this topic and channel"),
])
def test_a_place_that_is_not_there_is_a_loss(reader, write, store, shards, words):
    """With failOnDataLoss=false the query begins at the nearest segment."""
    write(A, 1, 1, 1)
    store.create(ShardKeys("t", "c", A).floor(1), b"")
    text = f'{{"v": 2, "shards": {shards}}}'
    with pytest.raises(DataLossError, match=words):
        reader(startingOffsets=text).initialOffset()
    assert reader(startingOffsets=text, failOnDataLoss="false").initialOffset()["shards"][A] <= 3


@pytest.mark.parametrize("storage_kind", ["file", "s3"])
def test_available_now_reads_what_is_there_and_ends(reader, write):
    write(A, 10, 10)
    one = reader(maxMessagesPerTrigger="10")
    one.prepareForTriggerAvailableNow()
    place = one.initialOffset()
    seen = []
    for number in range(1, 10):
        end = one.latestOffset(place, one.getDefaultReadLimit())
        if end is place:
            break
        seen += bodies(one, place, end)
        write(A, 10, first=100 * number)
        write(B, 10, first=100 * number)
        place = end
    assert sorted(seen) == list(range(20)) and place["shards"][A] == 2


def test_available_now_reads_a_shard_that_is_new_to_the_checkpoint(reader, write):
    write(A, 5)
    write(B, 5)
    one = reader()
    one.prepareForTriggerAvailableNow()
    joined = one.latestOffset(offset(a=1), ALL)
    end = one.latestOffset(joined, ALL)
    assert joined == offset(a=1, b=0) and end == offset(a=1, b=1)
    assert one.latestOffset(end, ALL) is end


def test_the_trigger_once_is_refused(reader):
    """Its only batch would have no size limit."""
    with pytest.raises(ConfigError, match="availableNow"):
        reader().latestOffset(offset(), ReadAllAvailable())


def test_missing_segments_are_a_loss(reader, write, store):
    write(A, 1, 1, 1, 1)
    store.delete([ShardKeys("t", "c", A).segment(2, 1)])
    with pytest.raises(DataLossError, match=f"{A}: lacks segments 2: "):
        reader().latestOffset(offset(a=0), ALL)
    with pytest.raises(DataLossError, match="lacks segments 2: "):
        reader().partitions(offset(a=0), offset(a=3))
    one = reader(failOnDataLoss="false")
    assert one.latestOffset(offset(a=0), ALL) == offset(a=4)
    assert sorted(bodies(one, offset(a=0), offset(a=4))) == [0, 2, 3]
    assert sorted(bodies(reader(failOnDataLoss="false"), offset(a=0), offset(a=3))) == [0, 2]


def test_a_segment_that_is_gone_or_damaged_when_its_task_reads_it(reader, write, store):
    write(A, 1, 1, 1)
    ends = offset(a=0), offset(a=3)
    keys = ShardKeys("t", "c", A)
    strict = reader()
    planned = [(strict, strict.partitions(*ends))]
    lax = reader(failOnDataLoss="false")
    planned.append((lax, lax.partitions(*ends)))
    store.delete([keys.segment(1, 0), keys.segment(2, 1)])
    store.create(keys.segment(2, 1), b"damaged")
    for one, partitions in planned:
        far = pickle.loads(pickle.dumps(one))
        if one is lax:
            found = [batch for part in partitions for batch in far.read(part)]
            assert sum(batch.num_rows for batch in found) == 1
        else:
            for partition, words in zip(partitions, ("was deleted", "is damaged")):
                with pytest.raises(DataLossError, match=words):
                    list(far.read(partition))


def test_what_is_committed_is_noted_and_deleted_after_its_retention(
    reader, write, store, monkeypatch
):
    monkeypatch.setattr(log_reader, "_COMMIT_INTERVAL", 0.02)
    log = write(A, 1, 1, 1)
    log.conn_closed("c-0", clean=True)
    log.write_note(1)
    one = reader(retentionMs="0")
    end = one.latestOffset(one.initialOffset(), ALL)
    one.latestOffset(end, ALL)
    keys = ShardKeys("t", "c", A)
    wait_until(lambda: len(store.list_objects(keys.of("segments"))) == 1, 30, "two are deleted")
    assert [parse_number(found.key) for found in store.list_objects(keys.of("commits"))] == [3]
    assert [parse_number(found.key) for found in store.list_objects(keys.of("floors"))] == [2]
    log.look_for_commits()
    assert log.waiting == (0, 0)


def test_committed_segments_are_kept_by_bytes(write, store):
    log = write(A, 1, 1, 1, 1)
    log.conn_closed("c-0", clean=True)
    log.write_note(1)
    size = store.list_objects(ShardKeys("t", "c", A).of("segments"))[0].size
    found = log_reader.ShardedLog(store, "t", "c", 1000.0, 2 * size)
    found.mark_committed({A: 4})
    found._note_commits()
    found.delete_expired(0.0)
    found.stop()
    assert len(store.list_objects(ShardKeys("t", "c", A).of("segments"))) == 2


def test_a_second_query_on_a_log_is_refused(storage_url, reader, write, store, monkeypatch):
    """Each deletes segments that it has committed. After the first ends, the second may begin."""
    monkeypatch.setattr(reader_claim, "INTERVAL", 0.05)
    monkeypatch.setattr(reader_claim, "_MISSED", 99)  # a busy machine delays heartbeats
    write(A, 1)
    first = reader()
    start = first.initialOffset()
    texts = {"topic": "t", "channel": "c", "storage": storage_url}
    second = NsqStreamReader(read_options(texts, "stream"))
    with pytest.raises(LogInUseError, match=rf"another query \(process {os.getpid()} on .*use a"):
        second.initialOffset()
    first.stop()
    assert second.latestOffset(start, ALL) == offset(a=1)
    second.stop()
    assert store.list_objects("t/c/readers") == []


def test_a_query_that_was_silent_for_long_gives_way(storage_url, reader, write, monkeypatch):
    """It was suspended, and another query has begun."""
    monkeypatch.setattr(reader_claim, "INTERVAL", 0.02)
    write(A, 1)
    first = reader()
    start = first.initialOffset()
    asleep, awake = threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(first._opened._claim._end, "wait",
                      lambda timeout: asleep.set() or not awake.wait(30))
        assert asleep.wait(30)
        second = NsqStreamReader(read_options(
            {"topic": "t", "channel": "c", "storage": storage_url}, "stream"))
        second.latestOffset(start, ALL)
        with pytest.raises(LogInUseError, match="another query has begun to read it"):
            first.latestOffset(start, ALL)  # before it plans another batch
    awake.set()
    second.stop()


def test_a_log_that_was_lost_is_not_taken_for_a_new_one(reader, write, caplog):
    """Its numbers restart below the checkpoint, so its rows would never be read."""
    write(A, 1)
    with pytest.raises(DataLossError, match="ends before segment 7, where the checkpoint is"):
        reader().latestOffset(offset(a=7), ALL)
    with pytest.raises(DataLossError, match="ends before segment 9"):
        reader().partitions(offset(a=7), offset(a=9))
    one = reader(failOnDataLoss="false")
    begun = one.latestOffset(offset(a=7), ALL)
    assert begun == offset(a=0) and bodies(one, offset(a=7), begun) == []
    assert bodies(one, begun, one.latestOffset(begun, ALL)) == [0]


def test_a_checkpoint_that_went_back_is_followed(reader, write, store, caplog):
    """After a power failure, when the sink may lack the last batches."""
    write(A, 1, 1)
    store.create(ShardKeys("t", "c", A).commit(2), b"")
    one = reader()
    end = one.latestOffset(offset(a=1), ALL)
    assert bodies(one, offset(a=1), end) == [1]
    assert "checkpoint is at {'a:4150': 1}, and was at {'a:4150': 2} before" in caplog.text


def test_a_storage_without_a_log_is_mentioned(reader, caplog):
    reader().initialOffset()
    assert "has no log of t/c yet: start owners (nsqclient spark ingest)" in caplog.text


def test_an_executor_does_not_load_what_only_the_driver_needs():
    """An executor unpickles the reader in the first batch of each query."""
    done = subprocess.run(
        [sys.executable, "-c", "import nsqclient.spark.reading.reader, sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True)
    assert not {"requests", "nsqclient.consumer.consumer"} & set(done.stdout.split())
