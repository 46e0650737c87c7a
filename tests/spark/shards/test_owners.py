"""Owners of shards on both kinds of server: nothing is lost, and nothing is stored twice."""

import contextlib
import functools
import threading
from unittest.mock import Mock

import pytest

from nsqclient.cli.spark import main
from nsqclient.partitioned.discovery import RoutesResult
from nsqclient.errors import NSQError
from nsqclient.protocol.partitioned.lookup_table import TopicRoutes
from nsqclient.spark.errors import StorageError
from nsqclient.spark.ingest import Ingest
from nsqclient.spark.options import ingest_options
from nsqclient.spark.shards import membership, owners as module
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.shards.owners import ShardOwner, ShardOwners
from nsqclient.spark.storage import open_store
from tests.spark.logs import counts, numbers_of, publish, rows_of
from tests.support.docs.pages import named
from tests.support.docs.terminal import Terminal
from tests.support.servers.http_api import registered
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """Record commits and write notes immediately."""
    monkeypatch.setattr(module, "_INTERVAL", 0.05)
    monkeypatch.setattr(membership, "INTERVAL", 0.05)


@pytest.fixture
def storage(tmp_path):
    """A folder, because the object store has its own tests."""
    return f"file://{tmp_path}/storage"


@pytest.fixture
def own(storage):
    """Receive a topic into a storage until all messages are stored."""
    started = []

    def start(server, **options):
        texts = {"topic": "t", "channel": "c", "storage": storage, "nsqd": server.tcp_address,
                 "msg_timeout": "1s", "rollIntervalMs": "10", **options}
        owner = ShardOwner(ingest_options(texts), open_store(storage), server.tcp_address)
        started.append(owner)
        owner.start()
        return owner

    yield start
    for owner in started:
        owner.stop()


def stored(storage, *servers):
    """Every body in the logs of all shards, sorted as numbers."""
    store = open_store(storage)
    return sorted(
        number for server in servers for number in numbers_of(store, server.tcp_address))


def has_stored(storage, server, count):
    """Wait until so many rows are stored, and nsqd is empty."""
    wait_until(lambda: len(stored(storage, server)) >= count, 30, f"{count} rows")
    wait_until(lambda: counts(server) == (0, 0), 30, "all is finished")


def test_two_owners_at_once_lose_nothing_and_store_nothing_twice(server, own, storage):
    """This happens if the network is cut, and the first owner continues."""
    publish(server, 2000)
    first, second = (own(server, max_in_flight="200") for _ in range(2))
    publish(server, 4000, 2000)
    has_stored(storage, server, 6000)
    publish(server, 500, 6000)
    has_stored(storage, server, 6500)
    assert stored(storage, server) == list(range(6500))
    assert first.log.lost_creates + second.log.lost_creates > 0


def test_a_storage_that_fails_for_a_while_pauses_the_owner(server, own, storage, monkeypatch):
    """It requeues messages that it cannot store, and resumes by itself."""
    owner = own(server)
    fail = Mock(side_effect=StorageError(storage, "503 Slow Down"))
    with monkeypatch.context() as patch:
        patch.setattr(owner.log._store, "create", fail)
        patch.setattr(owner.log._store, "list_objects", fail)
        publish(server, 200)
        wait_until(lambda: owner.log.full_error, 30, "it failed")
        wait_until(lambda: counts(server) == (200, 0), 30, "all went back")
    has_stored(storage, server, 200)
    assert stored(storage, server) == list(range(200))


@pytest.mark.real
def test_a_killed_nsqd_makes_no_duplicate(real_nsqd, own, storage):
    """nsqd redelivers messages that were finished after the last sync of its disk queue."""
    server = real_nsqd(mem_queue_size=100)
    server.post("/topic/create", topic="t")
    server.post("/channel/create", topic="t", channel="c")
    for first in range(0, 10_000, 5000):
        publish(server, 5000, first)
    own(server, max_reconnect_delay="100ms", connections="1")
    wait_until(lambda: len(stored(storage, server)) >= 2000, 30, "it has begun")
    server.kill()
    server.start()
    publish(server, 1, 10_000)
    wait_until(lambda: 10_000 in stored(storage, server), 60, "it reads on")
    wait_until(lambda: counts(server) == (0, 0), 60, "all is finished")
    rows = stored(storage, server)
    assert len(rows) == len(set(rows))


def test_every_nsqd_of_a_topic_has_an_owner(server_factory, lookupd_factory, storage):
    lookupd = lookupd_factory()
    servers = [server_factory(lookupd_tcp_addresses=[lookupd.tcp_address]) for _ in range(2)]
    publish(servers[0], 100)
    wait_until(lambda: registered(lookupd, "t"))
    owners = ShardOwners(ingest_options({
        "topic": "t", "channel": "c", "storage": storage, "lookupd": lookupd.http_address,
    }), open_store(storage))
    try:
        owners.open()
        publish(servers[1], 50, 100)

        def both():
            owners.update()
            return len(owners.owners) == 2

        wait_until(both, 30, "both are owned")
        for server in servers:
            wait_until(lambda: server.stats("t", "c").get("depth") == 0, 30)
        wait_until(lambda: len(stored(storage, *servers)) == 150, 30, "all is stored")
        lookupd.stop()
        owners.update()
        assert len(owners.owners) == 2  # the lost nsqd is not known
    finally:
        owners.stop()
    assert stored(storage, *servers) == list(range(150))


def test_a_shard_whose_nsqd_is_gone_ends_and_begins_again(
    server_factory, lookupd_factory, storage, monkeypatch
):
    """Its owner unregisters it, and registers it again when discovery lists the nsqd."""
    lookupd, server = lookupd_factory(), server_factory()
    publish(server, 10)
    names = [server.tcp_address]
    monkeypatch.setattr(module, "lookup_routes", lambda *arguments: RoutesResult(
        TopicRoutes(plain=tuple(names))))
    monkeypatch.setattr(Ingest, "connections", 0)
    store = open_store(storage)
    owners = ShardOwners(ingest_options({
        "topic": "t", "channel": "c", "storage": storage, "lookupd": lookupd.http_address}), store)
    listed = functools.partial(store.list_objects, "t/c/shards")
    try:
        owners.open()
        has_stored(storage, server, 10)
        names.clear()
        wait_until(lambda: owners.update() or not owners.owners, 30, "the owner has left")
        assert listed() == []
        names.append(server.tcp_address)
        wait_until(lambda: owners.update() or owners.owners, 30, "the owner has begun again")
        assert len(listed()) == 1
        store.delete([listed()[0].key])  # as another owner does that cannot see the nsqd
        owners.update()
        assert len(listed()) == 1
        monkeypatch.setattr(
            store, "list_objects", Mock(side_effect=StorageError("file:///x", "no")))
        owners.update()  # a storage that does not respond does not end it
    finally:
        monkeypatch.undo()
        owners.stop()


def test_an_nsqd_that_rejects_us_ends_the_ingest(storage):
    owners = ShardOwners(ingest_options({
        "topic": "t", "channel": "c", "storage": storage, "nsqd": "a:1,b:1",
    }), open_store(storage))
    owners._on_failed("a:1", NSQError("first"))
    owners._on_failed("b:1", NSQError("second"))
    with pytest.raises(NSQError, match="first"):
        owners.update()


@pytest.fixture
def process(storage):
    """Factory of stand-ins for processes: owners in a thread, and a function that ends them."""
    with contextlib.ExitStack() as stack:

        def start(*servers, job="", **options):
            owners = ShardOwners(ingest_options({
                "topic": "t", "channel": "c", "storage": storage, "msg_timeout": "1s",
                "nsqd": ",".join(server.tcp_address for server in servers), **options,
            }), open_store(storage), job)
            owners.open()
            end = threading.Event()
            thread = threading.Thread(target=owners.run, args=[end.wait])
            thread.start()

            def stop():
                end.set()
                thread.join(30)
                owners.stop()

            stack.callback(stop)
            return owners, stop

        yield start


def test_processes_divide_the_nsqds_and_one_takes_over(server_factory, process, storage):
    """They share only the storage. Each message is stored once."""
    servers = [server_factory() for _ in range(4)]
    first, _ = process(*servers)
    assert len(first.owners) == 4
    second, stop = process(*servers)
    wait_until(lambda: len(first.owners) == len(second.owners) == 2, 30, "each has two")
    assert first.owners.keys() | second.owners.keys() == {one.tcp_address for one in servers}
    for number, server in enumerate(servers):
        publish(server, 200, 200 * number)
    stop()
    wait_until(lambda: len(first.owners) == 4, 30, "the first has all of them again")
    for number, server in enumerate(servers):
        publish(server, 100, 800 + 100 * number)
    wait_until(lambda: len(stored(storage, *servers)) >= 1200, 30, "all is stored")
    assert stored(storage, *servers) == list(range(1200))


def test_in_a_job_a_shard_that_fails_stops_no_other(server_factory, process, storage, caplog):
    bad, good = server_factory(), server_factory()
    store, keys = open_store(storage), ShardKeys("t", "c", bad.tcp_address)
    store.create(keys.segment(5, 100), b"")
    owners, _ = process(bad, good, job="ab", lookupd_poll_interval="1s")
    publish(good, 100)
    has_stored(storage, good, 100)
    wait_until(lambda: "has a gap" in caplog.text, 30, "the reason is logged")
    store.delete([keys.segment(5, 100)])
    publish(bad, 100, 100)
    has_stored(storage, bad, 100)
    owners._on_failed(good.tcp_address, NSQError("E_UNAUTHORIZED"))
    wait_until(lambda: "E_UNAUTHORIZED; trying again" in caplog.text, 30, "it is stopped")
    publish(good, 100, 200)
    has_stored(storage, good, 200)
    assert stored(storage, bad, good) == list(range(300))


@pytest.mark.parametrize("words, status, text", [
    ([], 2, "--topic required"), (["--topic=t"], 2, "required"),
    (["--topic=t", "--nsqd-tcp-address=h:1"], 2, "--storage required"),
    (["--topic=t", "--nsqd-tcp-address=h:1", "--storage=file:///x", "--channel=c#ephemeral"], 2,
     "a log is for a channel that is kept"),
    (["--topic=t", "--nsqd-tcp-address=h:1", "--storage=file:///x", "--consumer-opt=x,1"], 2,
     "unknown option"),
    (["--topic=t", "--nsqd-tcp-address=h:1", "--storage=file:///x", "--conf=a=b"], 1,
     "give --master"),
    (["--topic=t", "--nsqd-tcp-address=h:1", "--storage=file:///x", "--master=sc://h"], 1,
     "Spark Connect"),
    (["--topic=t", "--nsqd-tcp-address=h:1", "--storage=file:///x", "--tasks=0"], 2,
     "--tasks should be positive"),
])
def test_a_wrong_command_line_is_an_error_on_one_line(words, status, text, capfd):
    assert main(["ingest", *words]) == status
    said = capfd.readouterr().err.strip()
    assert text in said.partition("\n")[0] and said.count("\n") <= (status == 2)


def test_the_command_of_the_manual_stores_until_it_is_ended(server, tmp_path):
    publish(server, 1000, topic="events")
    [block] = named("nsqclient spark ingest")
    places = {"127.0.0.1:4150": server.tcp_address, "/data": str(tmp_path / "data")}
    with contextlib.closing(Terminal(tmp_path, places)) as terminal:
        started = terminal.start(block.commands[0])
        wait_until(lambda: server.stats("events", "spark").get("depth") == 0, 60, "it receives")
        publish(server, 500, topic="events")
        assert started.interrupt() == 0, started.log
    store = open_store(f"file://{tmp_path}/data/nsq")
    keys = ShardKeys("events", "spark", server.tcp_address)
    rows = [row for found in store.list_objects(keys.of("segments"))
            for row in rows_of(store, found.key).to_pylist()]
    stats = server.stats("events", "spark")
    assert stats["in_flight_count"] == 0 and len(rows) + stats["depth"] == 1500
    assert len({row["message_id"] for row in rows}) == len(rows)
    assert len(store.list_objects(keys.of("notes"))) <= 1  # 0 if no FIN was proven yet
