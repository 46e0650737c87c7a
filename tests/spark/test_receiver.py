"""A query that receives by itself: from nsqd into the log and out of it, on both kinds of server.

No JVM. ``shards/test_owners.py`` tests owners.
"""

import errno
import os

import pytest

from pyspark.sql.streaming.datasource import ReadMaxRows

from nsqclient.consumer.drain_decision import (
    ChannelDepth, ChannelDepths, DrainRules, Step,
)
from nsqclient.errors import ConfigError, NSQError
from nsqclient.spark.reading import receiver as module
from nsqclient.spark.errors import StorageFullError
from nsqclient.spark.options import read_options
from nsqclient.spark.reading.reader import NsqStreamReader
from nsqclient.spark.reading.receiver import ReceiverDrain, Progress
from nsqclient.spark.shards import log_reader, owners
from nsqclient.spark.storage.local import LocalStore
from tests.spark.logs import bodies, counts, publish
from tests.support.waiting import wait_until

ALL = ReadMaxRows(1_000_000)


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """Record commits, and look for them, immediately."""
    monkeypatch.setattr(owners, "_INTERVAL", 0.05)
    monkeypatch.setattr(log_reader, "_COMMIT_INTERVAL", 0.05)
    monkeypatch.setattr(module, "_LAG_INTERVAL", 0.05)
    monkeypatch.setattr(module, "_DRAIN_INTERVAL", 0.05)


@pytest.fixture
def log_path(tmp_path):
    return str(tmp_path / "the lög 漢 #1")


def stream_options(log_path, servers, options):
    return read_options({
        "topic": "t", "channel": "c", "storage": log_path, "msg_timeout": "1s",
        "nsqd": ",".join(server.tcp_address for server in servers),
        "nsqdHttp": ",".join(server.http_address for server in servers), **options}, "stream")


@pytest.fixture
def reader(log_path):
    """Factory of stream readers, which are stopped at the next call and after the test."""
    started = []

    def start(*servers, drains=False, **options):
        for one in started:
            one.stop()
        found = NsqStreamReader(stream_options(log_path, servers, options))
        started.append(found)
        if drains:
            found.prepareForTriggerAvailableNow()
        return found

    yield start
    for one in started:
        one.stop()


def run(reader, limit=ALL, start=None, until=None):
    """Drain as Spark does, or until so many rows are read; return the rows and the position."""
    found, place, batches = [], start or reader.initialOffset(), 0
    while until is None or len(found) < until:
        end = reader.latestOffset(place, limit)
        if end is place and until is None:
            break
        if end is not place:
            found += bodies(reader, place, end)
            batches += 1
        place = end
    return sorted(found), place, batches


def test_a_stream_reads_what_comes_and_finishes_it(server, reader):
    """Each message is read once. The progress shows the lag."""
    publish(server, 3000)
    one = reader(server)
    found, place, _ = run(one, until=3000)
    assert found == list(range(3000))
    publish(server, 1, 3000)
    assert run(one, start=place, until=1)[0] == [3000]
    wait_until(lambda: counts(server) == (0, 0), 30, "all is finished")
    report = one.reportLatestOffset()
    assert report["connections"] == 2 and not report["disk_full"]
    wait_until(lambda: one.reportLatestOffset()["depth"] == {server.tcp_address: 0}, 30)


def test_a_restarted_query_stores_nothing_twice(server_factory, reader):
    """Even if messages were not finished because their owner was killed."""
    server = server_factory(msg_timeout=1.0)
    publish(server, 500)
    one = reader(server)
    found, place, _ = run(one, until=500)
    publish(server, 500, 500)
    more, place, _ = run(reader(server), start=place, until=500)
    assert found + more == list(range(1000))


def test_a_full_log_stops_the_flow_until_spark_has_caught_up(server, reader):
    """Messages wait at nsqd. A batch then does not wait for its trigger delay."""
    publish(server, 3000)
    one = reader(server, maxLogMessages="1000", max_in_flight="200", maxTriggerDelayMs="3600000")
    start = one.initialOffset()
    wait_until(lambda: one._opened.receiver.is_paused and counts(server)[1] == 0, 30, "it is full")
    found, place, _ = run(one, start=start, until=1000)
    assert len(found) < 1600
    rest, _, _ = run(one, start=place, until=1000)
    assert len({*found, *rest}) == len(found) + len(rest) >= 2000


def test_a_batch_waits_for_the_trigger_delay(server, reader):
    """The first call waits for a connection; later batches are planned when due or full."""
    publish(server, 100)
    one = reader(server, maxTriggerDelayMs="3600000", max_in_flight="50")
    start = one.initialOffset()
    first = one.latestOffset(start, ALL)
    assert first is not start
    publish(server, 500, 100)
    wait_until(lambda: counts(server) == (0, 0), 30, "more is there")
    assert one.latestOffset(first, ALL) is first
    full = one.latestOffset(first, ReadMaxRows(1))
    assert full is not first and one.reportLatestOffset()["batch_full"]
    one._due = 0.0
    assert one.latestOffset(full, ALL) is not full


def test_available_now_reads_in_batches_what_was_there_and_ends(server_factory, reader):
    servers = [server_factory(), server_factory()]
    for number, server in enumerate(servers):
        publish(server, 450, 450 * number)
    one = reader(*servers, drains=True, max_in_flight="100")
    found, place, batches = run(one, ReadMaxRows(300))
    assert found == list(range(900)) and batches >= 3
    publish(servers[0], 5)
    assert one.latestOffset(place, ALL) is place
    assert counts(servers[0]) == (5, 0) and one.reportLatestOffset()["drained"]


# -- the end of a drain

@pytest.fixture
def drain(log_path, start_receiver):
    return lambda *servers, **options: start_receiver(
        stream_options(log_path, servers, options), drains=True)


def test_a_drain_of_two_nsqds_of_which_one_has_no_http_takes_all(server_factory, drain, caplog):
    """The sum of the known depths lacks the messages of this nsqd."""
    servers = [server_factory(), server_factory()]
    for number, one in enumerate(servers):
        publish(one, 1500, number * 1500)
    receiver = drain(*servers, max_in_flight="100", idleMs="1000",
                     nsqdHttp=f"{servers[0].http_address},127.0.0.1:1")
    wait_until(receiver.drain_is_over, 20)
    assert [counts(server) for server in servers] == [(0, 0), (0, 0)]
    assert "t/c: the depth is unknown, so the read ends after 1 s without" in caplog.text
    assert receiver.lag()["depth_unknown"] == [servers[1].tcp_address]


def test_a_drain_that_cannot_know_its_end_fails(server, drain):
    publish(server, 10)
    with pytest.raises(ConfigError, match=f"{server.tcp_address} is not known: set nsqdHttp"):
        drain(server, nsqdHttp="")
    receiver = drain(server, nsqdHttp="127.0.0.1:1", drain_patience="500ms")
    with pytest.raises(NSQError, match="for 0.5 s .drain_patience.: .*127.0.0.1:1/info: .*refused"):
        wait_until(receiver.drain_is_over, 20)


def test_a_drain_that_leaves_messages_logs_a_warning(server, drain, caplog):
    """The channel is paused, so its messages stay for the next run."""
    publish(server, 10)
    server.post("/channel/create", topic="t", channel="c")
    server.post("/channel/pause", topic="t", channel="c")
    wait_until(drain(server).drain_is_over, 20)
    assert "is paused. Left for the next run: 10 messages" in caplog.text


# -- a full disk

@pytest.fixture
def disk(monkeypatch):
    """Limit the free bytes of the disk, as statvfs and writes report them; 0: no limit."""
    limit = [0]
    link = LocalStore._link

    def used(store):
        return sum(found.size for found in store.list_objects(""))

    def missing(store, size):
        return max(0, used(store) + size + limit[0] // 8 - limit[0]) if limit[0] else 0

    def write(store, tmp, path, data):
        if limit[0] and used(store) + len(data) > limit[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return link(store, tmp, path, data)

    monkeypatch.setattr(LocalStore, "missing_space", missing)
    monkeypatch.setattr(LocalStore, "_link", write)
    return limit


@pytest.mark.parametrize("drains", [True, False], ids=["availableNow", "stream"])
def test_a_disk_smaller_than_the_topic_passes_every_message_once(
    server, reader, disk, drains, caplog
):
    """Committed segments are deleted before their retention is over, with a warning."""
    publish(server, 20_000, size=200)
    disk[0] = 1_500_000
    one = reader(server, drains=drains, max_in_flight="2000")
    found, _, batches = run(one, until=None if drains else 20_000)
    assert found == list(range(20_000)) and batches > 2
    assert "were deleted before retentionMs was over, and cannot be replayed" in caplog.text
    assert "more are needed); nothing of it is acknowledged to nsqd" in caplog.text


def test_a_drain_does_not_wait_for_space_for_ever(server, reader, disk, monkeypatch):
    """It ends: stored messages are read, and the others stay at nsqd."""
    monkeypatch.setattr(module, "_SPACE_PATIENCE", 0.2)
    publish(server, 100, size=200)
    disk[0] = 2000  # less than a segment of one message
    one = reader(server, drains=True)
    with pytest.raises(StorageFullError, match="no space left for a segment"):
        run(one)
    one.stop()
    wait_until(lambda: counts(server) == (100, 0), 30, "all is at nsqd")


QUIET = Progress(stored=0, last_arrival=1.0, is_connected=True, is_idle=True)
EMPTY = ChannelDepths({"a:1": ChannelDepth(0, 0, 1)})
WAITING = ChannelDepths({"a:1": ChannelDepth(5, 0, 1)})
UNKNOWN = ChannelDepths({}, {"a:1": "refused"})


@pytest.mark.parametrize("target, depths, change, step", [
    (0, WAITING, {}, Step.END), (100, WAITING, {"stored": 100}, Step.END),
    (100, WAITING, {"stored": 100, "is_idle": False}, Step.WAIT),
    (100, WAITING, {"stored": 99}, Step.WAIT),
    (100, EMPTY, {"stored": 60}, Step.END),
    (None, EMPTY, {}, Step.END),
    (None, EMPTY, {"last_arrival": 9.0}, Step.WAIT),
    (None, UNKNOWN, {}, Step.END),
    (None, UNKNOWN, {"is_paused": True}, Step.WAIT),
    (None, UNKNOWN, {"is_connected": False}, Step.WAIT),
])
def test_a_drain_ends_when_all_that_was_there_is_stored_or_the_channel_was_seen_empty(
    target, depths, change, step
):
    """If the depth is unknown, it ends after a silence that idleMs allows."""
    drain = ReceiverDrain(target, DrainRules(silence=2.0))
    for look in range(5):
        assert drain.decide(QUIET._replace(is_idle=False), 1.0 + look / 2) is Step.WAIT
    for asked in (2.0, 3.0):
        drain.note(asked, depths)
    drain.note(3.0, UNKNOWN)  # the same answer
    assert drain.decide(QUIET._replace(**change), 3.1) is step


def test_a_silence_lasts_as_long_as_the_caller_has_said():
    drain = ReceiverDrain(None, DrainRules(silence=2.0))
    for asked in (1.5, 1.7):
        drain.note(asked, UNKNOWN)
    steps = [drain.decide(QUIET, 1.0 + look / 2) for look in range(6)]
    assert steps == [Step.WAIT] * 4 + [Step.END] * 2
