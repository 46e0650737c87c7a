"""Consumers of partitioned topics: one connection per partition, and where the leaders go."""

import logging

import pytest

from nsqclient import BatchHandler, Config
from nsqclient.partitioned import Consumer
from nsqclient.devserver import Nsqd
from nsqclient.devserver.partitioned.lookupd import LookupdMode
from nsqclient.errors import ConfigError, PartitionError
from tests.partitioned.conftest import QUICK, Collector, sent
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until


def places(consumer):
    """Return partition -> nsqd of the consumer's connections."""
    return {conn.partition: conn.address for conn in consumer.stats().connections}


def test_each_partition_has_a_connection(cluster, consume):
    cluster.create_topic("t", 4, channels=["c"])
    got = Collector()
    consumer = consume(got, connected=4, max_in_flight=8)
    for partition in range(4):
        cluster.publish("t", partition, b"%d" % partition, trace_id=9)
    cluster.wait_until_empty("t", "c")
    assert sorted(got.bodies()) == [b"0", b"1", b"2", b"3"]
    assert places(consumer) == {p: cluster.nsqds[p % 3].tcp_address for p in range(4)}
    assert sorted(sub.partition for sub in sent(cluster, "SUB")) == [0, 1, 2, 3]


def test_lookupds_listed_by_the_seeds_are_asked(cluster, consume):
    cluster.create_topic("t", 1, channels=["c"])
    got = Collector()
    consume(got, lookupds=cluster.lookupd_http_addresses[:1], connected=1)
    cluster.nsqlookupds[0].stop()
    cluster.move_leader("t", 0)
    cluster.publish("t", 0, b"after")
    wait_until(lambda: got.bodies() == [b"after"])


def test_lookupds_without_a_list_are_used_alone(cluster, consume):
    for lookupd in cluster.nsqlookupds:
        lookupd.set_mode(LookupdMode.NO_LIST)
    cluster.create_topic("t", 2, channels=["c"])
    consume(Collector(), connected=2)


def test_extend_support_is_found_without_metadata(cluster, consume):
    for lookupd in cluster.nsqlookupds:
        lookupd.set_mode(LookupdMode.NO_COORDINATOR)
    cluster.create_topic("t", 1, extended=True, channels=["c"])
    got = Collector()
    consumer = consume(got, connected=1)
    cluster.publish("t", 0, b"x", header=b'{"k":1}')
    wait_until(lambda: got.messages)
    assert got.messages[0].headers == {"k": 1}
    assert consumer.errors == []


@pytest.mark.parametrize("has_meta", [True, False])
def test_ordered_topic_without_ordered_option_is_an_error(cluster, consume, has_meta):
    if not has_meta:
        for lookupd in cluster.nsqlookupds:
            lookupd.set_mode(LookupdMode.NO_COORDINATOR)
    cluster.create_topic("t", 1, ordered=True, channels=["c"])
    consumer = consume(Collector())
    wait_until(lambda: "ordered=True" in consumer.healthy().reason)
    tries = len(cluster.nsqds[0].commands)
    rounds = [0]
    cluster.nsqlookupds[0].freeze()
    wait_until(lambda: rounds.append(0) or len(rounds) > 20)
    assert len(cluster.nsqds[0].commands) == tries <= 2
    assert sum(isinstance(error, PartitionError) for error in consumer.errors) == 1


def test_consumer_returns_after_consuming_was_disabled(cluster, consume):
    cluster.create_topic("t", 1, channels=["c"])
    cluster.disable_read("t", 0)
    consumer = consume(Collector())
    wait_until(lambda: any(getattr(error, "code", "") == "E_FAILED_ON_NOT_WRITABLE"
                           for error in consumer.errors))
    cluster.disable_read("t", 0, disabled=False)
    wait_until(lambda: len(consumer.stats().connections) == 1)


def test_consumer_reconnects_after_a_refused_fin(cluster, consume):
    cluster.create_topic("t", 1, channels=["c"])
    got = Collector()
    consume(got, connected=1)
    cluster.nsqds[0].faults.fail_next("FIN", "E_FAILED_ON_NOT_LEADER")
    cluster.publish("t", 0, b"x")
    cluster.wait_until_empty("t", "c")
    assert got.bodies() == [b"x", b"x"]


def test_traced_messages_are_logged(cluster, consume, caplog):
    caplog.set_level(logging.INFO, "nsqclient.trace")
    cluster.create_topic("t", 1, channels=["c"])
    got = Collector()
    consumer = consume(got, connected=1)
    cluster.publish("t", 0, b"silent")
    wait_until(lambda: len(got.messages) == 1)
    consumer.set_tracing(True)
    stored = cluster.publish("t", 0, b"traced", 77)
    wait_until(lambda: len(got.messages) == 2)
    line, = [record.getMessage() for record in caplog.records]
    for field in (f"internal_id={stored.internal_id}", "trace_id=77", "consumer=127.0.0.1",
                  f"nsqd={cluster.nsqds[0].tcp_address}", "timestamp=", "attempts=1"):
        assert field in line
    assert caplog.records[0].nsq["trace_id"] == 77
    consumer.set_tracing(False)
    cluster.publish("t", 0, b"silent")
    wait_until(lambda: len(got.messages) == 3)
    assert len(caplog.records) == 1


def plain_consumer(cluster, config=QUICK, **options):
    """A consumer with the default options."""
    return Consumer("t", "c", Collector(), config=config,
                    lookupd_http_addresses=cluster.lookupd_http_addresses, **options)


def test_max_in_flight_is_one_for_each_partition_by_default(cluster, caplog):
    """Otherwise the partitions take turns, and 60 messages take a minute."""
    caplog.set_level(logging.INFO, "nsqclient.consumer")
    cluster.create_topic("t", 6, channels=["c"])
    with plain_consumer(cluster) as consumer:
        wait_until(lambda: [c.rdy for c in consumer.stats().connections] == [1] * 6)
        assert consumer.max_in_flight == 6
        assert "max_in_flight 6, one for each partition, because none was given" in caplog.text
        assert consumer.healthy().reason == "connected to 3 nsqds, 6 partitions"


@pytest.mark.parametrize("options", [
    {"max_in_flight": 1}, {"config": QUICK.replace(max_in_flight=1)},
])
def test_a_given_max_in_flight_is_kept_and_warned_about(cluster, caplog, options):
    cluster.create_topic("t", 6, channels=["c"])
    with plain_consumer(cluster, **options) as consumer:
        wait_until(lambda: len(consumer.stats().connections) == 6)
        assert consumer.max_in_flight == 1
        assert "max_in_flight 1 is less than the number of partitions" in caplog.text
        assert "set max_in_flight to at least 6" in caplog.text


def test_a_partitioned_nsqd_that_was_given_by_address_is_refused(cluster):
    """Only some of the messages would arrive, without an error."""
    cluster.create_topic("t", 6, channels=["c"])
    errors = []
    addresses = [nsqd.tcp_address for nsqd in cluster.nsqds]
    with Consumer("t", "c", Collector(), nsqd_tcp_addresses=addresses, config=QUICK,
                  on_error=errors.append) as consumer:
        reason = wait_until(lambda: "lookupd_http_addresses" in consumer.healthy().reason
                            and consumer.healthy().reason)
        assert "instead of nsqd_tcp_addresses" in reason and not consumer.healthy()
        wait_until(lambda: all(nsqd.commands for nsqd in cluster.nsqds))
    assert [type(error) for error in errors] == [PartitionError]
    assert {c.name for nsqd in cluster.nsqds for c in nsqd.commands} == {"IDENTIFY"}


@pytest.mark.parametrize("age, said", [
    (0.0, "the leader has just changed"), (20.1, "the message timed out"),
])
def test_a_refused_fin_is_explained(cluster, consume, caplog, age, said):
    """On a connection younger than msg_timeout, no message can have timed out."""
    cluster.create_topic("t", 1, channels=["c"])
    consumer = consume(Collector(), connected=1)
    consumer._core.flow.subscriptions[0]._opened_at -= age
    cluster.nsqds[0].faults.fail_next("FIN", "E_FIN_FAILED")
    cluster.publish("t", 0, b"x")
    wait_until(lambda: said in caplog.text)
    assert "E_FIN_FAILED" in caplog.text
    assert ("timed out" in caplog.text) is (age > 0)


def test_stock_cluster_gets_one_request_per_round():
    """A stock nsqlookupd gets only /lookup, and its nsqd a plain SUB."""
    with recording() as lookupd, Nsqd() as nsqd:
        lookupd.body = (
            b'{"channels":[],"producers":[{"broadcast_address":"127.0.0.1","tcp_port":%d,'
            b'"http_port":1}]}' % int(nsqd.tcp_address.rpartition(":")[2])
        )
        with Consumer("t", "c", Collector(), lookupd_http_addresses=[lookupd.address],
                      config=QUICK) as consumer:
            wait_until(lambda: consumer.healthy() and len(lookupd.requests) > 2)
        assert {request.path for request in lookupd.requests} == {
            "/lookup?topic=t&access=r&metainfo=true"}
        assert [c.name for c in nsqd.commands][:2] == ["IDENTIFY", "SUB"]


@pytest.mark.parametrize(("options", "hint"), [
    ({"ordered": True, "config": Config(sample_rate=10), "lookupd_http_addresses": ["l:1"]},
     "sample_rate"),
    ({"ordered": True, "nsqd_tcp_addresses": ["n:1"]}, "lookupd_http_addresses"),
    ({"ordered": "yes", "lookupd_http_addresses": ["l:1"]}, "True or False"),
    ({"on_blocked": print, "lookupd_http_addresses": ["l:1"]}, "ordered=True"),
    # A batch would hold messages of a partition while the next one is asked for.
    ({"handler": BatchHandler(print), "ordered": True, "lookupd_http_addresses": ["l:1"]},
     "BatchHandler"),
])
def test_options_that_contradict_ordered_are_refused(options, hint):
    with pytest.raises(ConfigError, match=hint):
        Consumer("t", "c", **{"handler": print, **options})
