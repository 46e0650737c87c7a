"""Topics of partitioned NSQ: into logs, and by a peek."""

import pytest

from nsqclient.config import Config
from nsqclient.devserver import PartitionedCluster
from nsqclient.devserver.partitioned.lookupd import LookupdMode
from nsqclient.consumer.channel_depth import DepthQuery as StockDepthQuery
from nsqclient.partitioned.channel_depth import DepthQuery
from nsqclient.consumer.connections import NsqdSources
from nsqclient.errors import PartitionError
from nsqclient.protocol.partitioned.lookup_table import TopicMeta, TopicRoutes
from nsqclient.partitioned.bulk import partition_source, text_id
from nsqclient.spark.options import read_options
from nsqclient.spark.reading.batch_reader import peek
from nsqclient.spark.shards.names import ShardKeys, partition_of_source
from nsqclient.spark.shards.owners import shards_of
from nsqclient.spark.storage import open_store
from tests.spark.logs import rows_of
from tests.support.waiting import wait_until


@pytest.fixture
def cluster():
    with PartitionedCluster(2, 2, msg_timeout=20.0) as running:
        yield running


@pytest.fixture
def texts(cluster, tmp_path):
    return {"topic": "t", "channel": "c", "storage": str(tmp_path / "log"),
            "lookupd": ",".join(cluster.lookupd_http_addresses), "rollIntervalMs": "10",
            "lookupd_poll_interval": "100ms", "idleMs": "500"}


@pytest.fixture
def receive(texts, start_receiver):
    return lambda drains=False, **options: start_receiver(
        read_options({**texts, **options}, "stream"), drains)


def publish(cluster, partitions, count, first=0):
    for number in range(first, first + count):
        for partition in range(partitions):
            cluster.publish("t", partition, b"%d" % number, trace_id=number)


@pytest.fixture
def stored_rows(texts):
    """Return (source, message id, body) of every row in the logs, in order."""
    store = open_store(texts["storage"])

    def read():
        found = []
        for shard in store.list_objects("t/c/shards"):
            keys = ShardKeys("t", "c", shard.key.rpartition("/")[2])
            for one in store.list_objects(keys.of("segments")):
                rows = rows_of(store, one.key)
                assert set(rows.column("nsqd").to_pylist()) == {keys.nsqd}
                found += zip(*(
                    rows.column(name).to_pylist() for name in ("nsqd", "message_id", "body")))
        return found

    return read


@pytest.fixture
def has_rows(stored_rows):
    return lambda count: wait_until(
        lambda: len(stored_rows()) >= count, 20, f"{count} rows are stored")


def by_partition(rows):
    found = {}
    for source, _, body in rows:
        found.setdefault(source, []).append(int(body))
    return found


@pytest.mark.parametrize("mode", [LookupdMode.NORMAL, LookupdMode.NO_COORDINATOR])
@pytest.mark.parametrize("kind", [{}, {"ordered": True}, {"extended": True}])
def test_every_partition_is_read_in_order(cluster, receive, mode, kind, stored_rows, has_rows):
    """nsqlookupd or nsqd's refusal says that the topic is ordered. Ids are increasing texts."""
    for lookupd in cluster.nsqlookupds:
        lookupd.set_mode(mode)
    cluster.create_topic("t", 3, channels=["c"], **kind)
    publish(cluster, 3, 20)
    receive(connections="1")
    has_rows(60)
    rows = stored_rows()
    assert by_partition(rows) == {f"partition-{p}": list(range(20)) for p in range(3)}
    for partition in range(3):
        ids = [message_id for source, message_id, _ in rows if source == f"partition-{partition}"]
        assert ids == sorted(ids) and all(len(each) == 16 for each in ids)
        assert int(ids[0], 16) >> 50 == partition
    cluster.wait_until_empty("t", "c")
    names = {c.name for nsqd in cluster.nsqds for c in nsqd.commands if "SUB" in c.name}
    assert ("SUB_ORDERED" in names) is kind.get("ordered", False)
    assert ("SUB" in names) is not (kind.get("ordered") and mode is LookupdMode.NORMAL)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_moved_leader_costs_nothing_and_no_copies(
    cluster, receive, ordered, stored_rows, has_rows
):
    """Ids stay the same, so stored messages that were not finished are recognised."""
    cluster.create_topic("t", 2, replicas=2, ordered=ordered, channels=["c"])
    receive()
    for step in range(4):
        publish(cluster, 2, 25, first=25 * step)
        cluster.move_leader("t", step % 2)
    has_rows(200)
    cluster.wait_until_empty("t", "c", 20.0)
    found = by_partition(stored_rows())
    assert {source: sorted(numbers) for source, numbers in found.items()} == {
        f"partition-{p}": list(range(100)) for p in range(2)}
    if ordered:
        assert all(numbers == sorted(numbers) for numbers in found.values())


def test_a_drain_takes_what_is_there_and_ends(cluster, receive, texts, stored_rows):
    cluster.create_topic("t", 4, channels=["c", "other"])
    publish(cluster, 4, 10)
    lookupds = texts["lookupd"].split(",")
    config = read_options(texts, "stream").config
    depths = DepthQuery("t", "c", config, NsqdSources([], lookupds)).fetch()
    assert (depths.waiting, depths.in_flight, depths.is_complete) == (40, 0, True)
    receiver = receive(drains=True)
    wait_until(receiver.drain_is_over, 20)
    assert len(stored_rows()) == 40


def test_an_nsqd_that_is_given_by_its_address_is_refused(cluster, receive):
    """Only some of the messages would arrive."""
    cluster.create_topic("t", 2, channels=["c"])
    receiver = receive(nsqd=cluster.nsqds[0].tcp_address, lookupd="")
    with pytest.raises(PartitionError, match="give lookupd_http_addresses"):
        wait_until(lambda: receiver.check())


def test_shards_are_partitions_or_nsqds():
    """Including a partition without a leader."""
    assert shards_of(TopicRoutes(("n:1", "n:2"))) == ["n:1", "n:2"]
    led = TopicRoutes(partitions={1: "n:1"}, meta=TopicMeta(2), is_partitioned=True)
    assert shards_of(led) == ["partition-0", "partition-1"]
    assert partition_of_source(partition_source(7)) == 7
    assert partition_of_source("partition-7:4150") is partition_of_source("n:1") is None


def test_a_peek_gives_all_that_uneven_partitions_have_and_takes_nothing(cluster, texts):
    """Held messages use up the RDY of their own partition only."""
    counts = [1, 2, 40, 0, 7, 150]
    cluster.create_topic("t", 6, channels=["c"])
    for partition, count in enumerate(counts):
        for number in range(count):
            cluster.publish("t", partition, b"%d" % number)
    del texts["storage"]
    found = peek(read_options(texts, "batch"))
    assert {source: sorted(int(message[3]) for message in messages)
            for source, messages in found} == {
        f"partition-{p}": list(range(count)) for p, count in enumerate(counts) if count}
    assert {len(message[2]) for _, messages in found for message in messages} == {16}
    wait_until(lambda: [len(cluster.messages("t", p, "c")) for p in range(6)] == counts)


def test_a_peek_for_one_row_finds_it_in_any_partition(cluster, texts):
    """Each partition gets RDY immediately."""
    cluster.create_topic("t", 6, channels=["c"])
    cluster.publish("t", 5, b"x")
    del texts["storage"]
    (source, messages), = peek(read_options({**texts, "maxMessages": "1"}, "batch"))
    assert (source, messages[0][3]) == ("partition-5", b"x")


def test_a_peek_at_an_ordered_topic_is_refused(cluster, texts):
    """It would see one message of each partition."""
    cluster.create_topic("t", 1, ordered=True, channels=["c"])
    del texts["storage"]
    with pytest.raises(PartitionError, match="mode=drain"):
        peek(read_options(texts, "batch"))


def test_an_id_is_the_internal_id_as_text():
    assert text_id(b"\x00\x04" + b"\x00" * 5 + b"\x0a" + b"\xff" * 8) == b"000400000000000a"


def test_the_depth_by_nsqd_is_unknown(cluster):
    """The number of the partitioned nsqd has another meaning, such as bytes."""
    cluster.create_topic("t", 2, channels=["c"])
    publish(cluster, 2, 3)
    sources = NsqdSources([], cluster.lookupd_http_addresses)
    depths = StockDepthQuery("t", "c", Config(), sources).fetch()
    assert not depths.known and list(depths.unknown) == sources.lookupds
    assert all("a partitioned NSQ" in why for why in depths.unknown.values())
