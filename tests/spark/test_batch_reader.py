"""What ``spark.read`` gives: peeks and drains, on both kinds of server. No JVM."""

import pytest

from nsqclient.consumer.consumer import Consumer
from nsqclient.devserver import Nsqd
from nsqclient.errors import ConfigError
from nsqclient.producer.producer import Producer
from nsqclient.spark.reading import batch_reader
from nsqclient.spark.reading.batch_reader import NsqBatchReader
from nsqclient.spark.errors import LogInUseError, LogMismatchError
from nsqclient.spark.ingest import split_segment
from nsqclient.spark.options import read_options
from nsqclient.spark.reading.batch_reader import peek
from nsqclient.spark.shards import reader_claim
from nsqclient.spark.shards.reader_claim import ReaderClaim
from nsqclient.spark.reading.replay import release, snapshots, url_of
from nsqclient.spark.storage import open_store
from tests.spark.logs import publish
from tests.support.waiting import wait_until


@pytest.fixture
def storage(tmp_path):
    return f"file://{tmp_path}/log"


@pytest.fixture
def texts(server):
    return {"topic": "t", "channel": "c", "nsqd": server.tcp_address,
            "nsqdHttp": server.http_address}


def batch_rows(texts, name="s", **options):
    one = NsqBatchReader(read_options({**texts, **options}, "batch"), name)
    return [body for partition in one.partitions()
            for rows in one.read(partition) for body in rows.column("body").to_pylist()]


def test_a_peek_requeues_every_message(server, texts):
    publish(server, 50)
    server.post("/channel/create", topic="t", channel="c")
    wait_until(lambda: server.stats("t", "c")["depth"] == 50, 30, "the channel has all")
    assert len(set(batch_rows(texts, maxMessages="20"))) == 20
    wait_until(lambda: server.stats("t", "c")["depth"] == 50, 30, "all went back")
    assert len(set(batch_rows(texts))) == 50


def test_a_peek_gives_all_that_uneven_nsqds_have(server_factory, texts):
    """One of two nsqds may have nearly all messages."""
    servers = [server_factory(), server_factory()]
    for server, count in zip(servers, (90, 10)):
        publish(server, count)
        server.post("/channel/create", topic="t", channel="c")
    texts |= {"nsqd": ",".join(server.tcp_address for server in servers),
              "nsqdHttp": ",".join(server.http_address for server in servers)}
    for attempts in (1, 2):
        rows = [row for _, rows in peek(read_options(texts, "batch")) for row in rows]
        assert len(rows) == 100 and {row[1] for row in rows} == {attempts}


def test_a_peek_waits_for_every_nsqd_where_the_depth_is_unknown(texts):
    """It ends after a silence, but not while an nsqd has just begun to send."""
    with Nsqd() as one, Nsqd() as other:
        for server, count in ((one, 30), (other, 5)):
            with Producer([server.tcp_address]) as producer:
                producer.publish_many("t", [b"%d" % number for number in range(count)])
        del texts["nsqdHttp"]
        assert len(batch_rows({**texts, "nsqd": f"{one.tcp_address},{other.tcp_address}",
                               "idleMs": "1"})) == 35


def test_a_peek_at_large_messages_makes_tasks_that_fit(server, texts, monkeypatch):
    """A thousand messages of 1 MiB exceed what Spark sends with a task."""
    monkeypatch.setattr(batch_reader, "split_segment", lambda parts: split_segment(
        parts, most_bytes=100))
    publish(server, 50)
    assert len(NsqBatchReader(read_options(texts, "batch"), "s").partitions()) == 25


def test_a_peek_at_an_empty_channel_is_empty(server, texts):
    assert batch_rows(texts) == []


def test_a_peek_at_a_channel_in_use_is_refused(server, texts):
    with Consumer("t", "c", lambda message: None, nsqd_tcp_addresses=[server.tcp_address]):
        wait_until(lambda: server.stats("t", "c").get("client_count"), 30, "it is connected")
        with pytest.raises(ConfigError, match="allowShared=true"):
            batch_rows(texts)


def test_a_drain_takes_max_messages_and_keeps_them(server, texts, storage):
    """The next drain takes the others. A snapshot can be loaded again by its name."""
    publish(server, 500)
    texts |= {"mode": "drain", "storage": storage}
    first = batch_rows(texts, "one", maxMessages="120")
    assert len(first) == 120
    # Each goes back about once: with RDY above 0, nsqd would send them again and again.
    assert 380 <= server.stats("t", "c")["requeue_count"] <= 3 * 380
    second = batch_rows(texts, "two")
    assert sorted(map(int, first + second)) == list(range(500))
    assert sorted(batch_rows(texts, "one")) == sorted(first)  # another action
    assert snapshots(storage) == [("one", 120, True), ("two", 380, True)]


def test_a_snapshot_is_read_again_and_not_filled_twice(server, texts, storage):
    """Otherwise a nightly drain with a fixed name would return the first night's rows."""
    publish(server, 5)
    texts |= {"storage": storage, "snapshot": "one"}
    first = batch_rows(texts, mode="drain")
    assert batch_rows(texts, mode="drain") == first  # another action on the same DataFrame
    with pytest.raises(LogMismatchError, match="mode=replay and snapshot=one, delete it with"):
        batch_rows(texts, "another load", mode="drain")
    del texts["nsqd"], texts["nsqdHttp"]
    assert batch_rows(texts, mode="replay") == first
    with pytest.raises(ConfigError, match="there is no complete snapshot 'two'"):
        batch_rows(texts, mode="replay", snapshot="two")


def test_a_snapshot_of_another_topic_is_refused(server, texts, storage):
    publish(server, 5)
    texts |= {"storage": storage, "snapshot": "one"}
    batch_rows(texts, mode="drain")
    for other in ({"topic": "other"}, {"channel": "other"}):
        with pytest.raises(LogMismatchError, match="snapshot one holds t/c, not "):
            batch_rows({**texts, **other}, mode="drain")
        only = {"topic": "t", "channel": "c", "storage": storage, "snapshot": "one", **other}
        with pytest.raises(LogMismatchError, match="snapshot one holds t/c, not "):
            batch_rows(only, mode="replay")


def test_a_drain_of_an_unknown_topic_is_empty(lookupd_factory, texts, storage, caplog):
    texts |= {"nsqd": "", "nsqdHttp": "", "lookupd": lookupd_factory().http_address}
    assert batch_rows(texts, "one", mode="drain", storage=storage) == []
    assert snapshots(storage) == [("one", 0, True)]
    assert "lists no nsqd with the topic t" in caplog.text


def test_a_drain_that_was_cut_off_goes_on(server, texts, storage):
    publish(server, 100)
    texts |= {"mode": "drain", "storage": storage}
    first = batch_rows(texts, "one", maxMessages="40")
    store = open_store(url_of(storage, "one"))
    store.delete([found.key for found in store.list_objects("%complete")])
    assert snapshots(storage) == [("one", 40, False)]
    assert sorted(map(int, batch_rows(texts, "one"))) == list(range(100)) and len(first) == 40


def test_a_snapshot_can_be_released_once(server, texts, storage, monkeypatch):
    monkeypatch.setattr(reader_claim, "INTERVAL", 0.05)
    monkeypatch.setattr(reader_claim, "_MISSED", 99)  # a busy machine delays heartbeats
    publish(server, 5)
    batch_rows(texts, "one", mode="drain", storage=storage)
    claim = ReaderClaim(open_store(url_of(storage, "one")), "t", "c")
    claim.take()
    with pytest.raises(LogInUseError):
        release(storage, "one")
    claim.release()
    release(storage, "one")
    assert snapshots(storage) == []
    with pytest.raises(ConfigError, match="no snapshot 'one'"):
        release(storage, "one")
