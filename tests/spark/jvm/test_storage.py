"""Shared storage with Spark itself: the programs of the page, a restart, and S3."""

import contextlib

import pytest

from nsqclient.spark.options import ingest_options
from nsqclient.spark.shards.owners import ShardOwners
from nsqclient.spark.storage import open_store
from tests.spark.pages import COUNT, ORDERS, run
from tests.support.docs.pages import named, text_of
from tests.support.docs.terminal import Terminal
from tests.support.servers.object_store import environment, make_bucket
from tests.support.waiting import wait_until

#: Seconds for a test that starts several JVMs; each takes a minute on a machine that is very busy.
LIMIT = 900


def own(url, nsqd, topic="events", channel="spark"):
    """Receive a topic into a storage until all messages are stored."""
    nsqd.create_channel(topic, channel)
    store = open_store(url)
    owners = ShardOwners(ingest_options({
        "topic": topic, "channel": channel, "storage": url, "nsqd": nsqd.tcp_address}), store)
    owners.open()
    try:
        wait_until(lambda: not nsqd.messages(topic, channel), 60, "all is stored")
    finally:
        owners.stop()


def bodies(spark, path):
    return sorted(bytes(row.body) for row in spark.read.parquet(str(path)).collect())


def test_the_query_of_the_manual_reads_what_owners_have_stored(spark, cluster, tmp_path):
    """Two runs from one checkpoint read each message once."""
    nsqd = cluster[0]
    url = f"file://{tmp_path}/data/nsq"
    own(url, nsqd)
    for count in (1, 2):
        run(spark, cluster, text_of(named("Spark storage")))
        assert bodies(spark, tmp_path / "data" / "events") == sorted(ORDERS * count)
        if count == 1:
            nsqd.publish_many("events", ORDERS)
            own(url, nsqd)


@pytest.mark.long
@pytest.mark.timeout(LIMIT)
def test_the_commands_of_the_manual_archive_and_replay_shared_storage(
    spark, cluster, run_command, tmp_path
):
    own(f"file://{tmp_path}/data/nsq", cluster[0])
    [archiving] = named("nsqclient spark archive from storage")
    [replaying] = named("nsqclient spark replay from storage")
    look, write = replaying.commands
    assert ", lag: 1 shard, stored " in run_command(archiving.commands[0]).log
    assert f" {COUNT} messages, " in run_command(look).output
    assert f"{COUNT} messages written to " in run_command(write).output
    for name in ("archive", "events-again"):
        assert bodies(spark, tmp_path / "data" / name) == sorted(ORDERS)


@pytest.mark.long
@pytest.mark.timeout(LIMIT)
def test_executors_find_the_credentials_of_an_object_store_by_themselves(
    s3_endpoint, spark, cluster, tmp_path
):
    """They use their own environment, not the driver's."""
    with environment(s3_endpoint), contextlib.closing(Terminal(tmp_path)) as terminal:
        make_bucket("cluster")
        own("s3://cluster/nsq", cluster[0])
        terminal.environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        started = terminal.start(
            "nsqclient spark archive --master='local-cluster[1,1,1024]' --available-now"
            " --storage=s3://cluster/nsq --topic=events --channel=spark"
            f" --path={tmp_path}/out --checkpoint={tmp_path}/cp")
        assert started.end(LIMIT) == 0, started.log
    assert bodies(spark, tmp_path / "out") == sorted(ORDERS)
