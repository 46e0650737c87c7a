"""The state of shards: as the storage shows it, as an owner has it, in a table and as metrics."""

import contextlib
import json
import os
import re
import time

import pytest
import requests

from nsqclient.cli.spark import main
from nsqclient.cli.spark_shards import shard_metrics
from nsqclient.metrics.prometheus import render
from nsqclient.cli.spark_shards import draw
from nsqclient.producer.producer import Producer
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.shards.shard_log import ShardLog
from nsqclient.spark.shards.listing import ShardStatus, list_channels, read_status
from nsqclient.spark.storage import open_store
from tests.spark.logs import write_log
from tests.support.docs.pages import named
from tests.support.docs.terminal import Terminal
from tests.support.servers.http_api import registered
from tests.support.waiting import wait_until

A = "a:4150"
KEYS = ShardKeys("t", "c", A)


def write(store, keys, *sizes):
    """Write segments of these sizes as a new writer; return its log."""
    log = ShardLog(store, keys)
    log.open()
    return write_log(store, keys.nsqd, *sizes, first=log.end.rows, log=log)


def test_the_state_of_a_shard_is_what_its_storage_has(store):
    """The lag is exact. The owner is the process that wrote last."""
    write(store, KEYS, 5)
    log = write(store, KEYS, 10, 20)
    ShardLog(store, KEYS).open()
    store.create(KEYS.commit(1), b"")
    before = time.time()
    [found] = read_status(store, "t", "c")
    sizes = [one.size for one in store.list_objects(KEYS.of("segments"))]
    assert found._replace(oldest=0, written=0) == ShardStatus(
        "t", "c", A, log.owner, 3, 1, 30, sizes[1] + sizes[2], 0, 0,
        sum(sizes))
    assert found.owner.endswith(f", process {os.getpid()}")
    assert abs(found.written - before) < 600 and 0 <= found.lag_seconds(before + 600) < 1300


def test_an_owner_has_the_same_state_without_asking(store):
    """Except for the size of kept committed segments."""
    log = write(store, KEYS, 5, 10)
    store.create(KEYS.commit(1), b"")
    log.look_for_commits()
    [found] = read_status(store, "t", "c")
    assert (log.end.number, log.committed) == (found.segment, found.committed)
    assert log.waiting == (found.lag_messages, found.lag_bytes)
    assert abs(log.oldest - found.oldest) < 600 and abs(log.written - found.written) < 600
    later = ShardLog(store, KEYS)
    later.open()
    assert (later.waiting, later.oldest, later.written) == (
        log.waiting, found.oldest, found.written)


def test_a_shard_without_segments_or_with_a_damaged_one_is_shown(store):
    write(store, KEYS)
    assert read_status(store, "t", "c")[0].owner == ""
    store.create(KEYS.segment(1, 0), b"damaged")
    [found] = read_status(store, "t", "c")
    assert (found.owner, found.segment, found.lag_bytes) == ("", 1, 7)


def test_the_channels_of_a_storage_are_found(store):
    """Including names that must be quoted in keys."""
    for topic, channel in (("t", "c"), ("t", "d"), ("u", "c")):
        write(store, ShardKeys(topic, channel, A))
    store.create("%probe/x/object", b"")  # of a process that is being started
    assert list_channels(store) == [("t", "c"), ("t", "d"), ("u", "c")]
    assert list_channels(store, "t") == [("t", "c"), ("t", "d")]
    assert list_channels(store, "", "c") == [("t", "c"), ("u", "c")]
    assert list_channels(store, "none") == []


NOW = 1_769_860_800.0
SHARDS = [
    ShardStatus("t", "c", A, "node7, process 4121", 812, 800, 12_000, 3_000_000, NOW - 95,
                NOW - 2, 9_000_000, 7, 2500),
    ShardStatus("t", "c", "b:4150", depth=40, in_flight=0),
]


def test_a_table_has_a_line_for_each_shard():
    heading, first, second = draw(SHARDS, NOW)
    assert heading.split() == ["topic/channel", "nsqd", "segment", "lag", "lag", "bytes",
                               "oldest", "last", "write", "kept", "depth", "in", "flight", "owner"]
    assert first.split() == ["t/c", A, "812", "12000", "3.0", "MB", "1m35s", "2s", "9.0",
                             "MB", "7", "2500", "node7,", "process", "4121"]
    assert second.split() == ["t/c", "b:4150", "0", "0", "0", "B", "-", "-", "0", "B", "40",
                              "0", "-"]


def test_the_metrics_have_the_same_figures():
    lines = render(shard_metrics(SHARDS, NOW))[1].decode().splitlines()
    shard = f'channel="c",nsqd="{A}",topic="t"'
    for line in (f'nsq_spark_shard_lag_messages{{{shard}}} 12000.0',
                 f'nsq_spark_shard_lag_seconds{{{shard}}} 95.0',
                 f'nsq_spark_shard_stored_bytes{{{shard}}} 9e+06',
                 'nsq_spark_shard_nsqd_depth{channel="c",nsqd="b:4150",topic="t"} 40.0'):
        assert line in lines
    assert 'owner="node7, process 4121"' in "\n".join(lines)
    assert sum(line.startswith("nsq_spark_shard_stored_bytes{") for line in lines) == 1


def status(capsys, *words):
    assert main(["status", *words]) == 0
    return capsys.readouterr()


def test_the_command_shows_shards_with_what_waits_at_nsqd(
    server_factory, lookupd_factory, tmp_path, capsys
):
    """Addresses of nsqd or nsqlookupd may be given. A server that does not answer is named."""
    lookupd = lookupd_factory()
    server = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address])
    with Producer([server.tcp_address]) as producer:
        producer.publish_many("t", [b"one", b"two"])
    wait_until(lambda: registered(lookupd, "t"))
    where = f"--storage=file://{tmp_path}/s"
    assert "no shards" in status(capsys, where).out
    store = open_store(f"file://{tmp_path}/s")
    write(store, ShardKeys("t", "c", server.tcp_address), 5)
    for flag in (f"--nsqd-http-address={server.http_address}",
                 f"--lookupd-http-address={lookupd.http_address}"):
        found = json.loads(status(capsys, where, flag, "--json").out)
        [shard] = found["shards"]
        assert (shard["nsqd"], shard["lag_messages"], shard["depth"], shard["in_flight"]) == (
            server.tcp_address, 5, 2, 0)
        assert shard["last_write"].endswith("+00:00") and found["depth_unknown"] == {}
    said = status(capsys, where, "--nsqd-http-address=127.0.0.1:1")
    assert f"t/c            {server.tcp_address}" in said.out
    assert "depth of 127.0.0.1:1 is not known: " in said.err and ":1/info" in said.err
    # An nsqd without a shard has a row too.
    other = server_factory()
    with Producer([other.tcp_address]) as producer:
        producer.publish("t", b"x")
    found = json.loads(
        status(capsys, where, f"--nsqd-http-address={other.http_address}", "--json").out)
    assert [shard["depth"] for shard in found["shards"]] in ([1, None], [None, 1])
    assert found["depth_unknown"] == {}
    assert "nsq_spark_shard_lag_messages{" in status(capsys, where, "--metrics").out


@pytest.mark.parametrize("words, code, text", [
    ([], 2, "--storage required"),
    (["--storage=file:///x", "--topic=a b"], 2, "--topic is invalid"),
    (["--storage=file:///x", "--json", "--metrics"], 2, "not both"),
    (["--storage=file:///x", "--nsqd-http-address=h"], 2, "h"),
])
def test_a_wrong_command_line_is_an_error(words, code, text, capsys):
    assert main(["status", *words]) == code
    assert text in capsys.readouterr().err


def test_the_command_of_the_manual_shows_a_table(tmp_path):
    store = open_store(f"file://{tmp_path}/data/nsq")
    write(store, ShardKeys("events", "spark", A), 5)
    [block] = named("nsqclient spark status")
    with contextlib.closing(Terminal(tmp_path, {"/data": str(tmp_path / "data")})) as terminal:
        command, heading, *_ = (line.strip() for line in block.text.strip().splitlines())
        started = terminal.start(block.commands[0])
        assert started.end() == 0, started.log
        assert started.output.splitlines()[0].split() == heading.split()
        assert "events/spark" in started.output


def test_an_ingest_answers_scrapes(server, tmp_path):
    with Producer([server.tcp_address]) as producer:
        producer.publish_many("t", [b"one", b"two"])
    command = (f"nsqclient spark ingest --nsqd-tcp-address={server.tcp_address} --topic=t"
               f" --channel=c --storage=file://{tmp_path}/s --metrics-address=127.0.0.1:0")
    shard = f'{{channel="c",nsqd="{server.tcp_address}",topic="t"}}'
    with contextlib.closing(Terminal(tmp_path)) as terminal:
        started = terminal.start(command)
        started.wait_for("metrics are on ")
        address = re.search(r"metrics are on (\S+)", started.log)[1]

        def has_stored():
            text = requests.get(address, timeout=10).text
            return (f"nsq_spark_shard_lag_messages{shard} 2.0" in text
                    and f"nsq_spark_owner_connections{shard} 2.0" in text)

        wait_until(has_stored, 30, "both messages are stored")
        assert started.interrupt() == 0, started.log
