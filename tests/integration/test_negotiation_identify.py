"""Every field of IDENTIFY, and nsqd's answer to it, on both kinds of server."""

from __future__ import annotations

import pytest

from nsqclient import Config, ConfigError, Consumer, Producer
from nsqclient.errors import ServerError
from tests.integration.test_consumer import Collector
from tests.support.waiting import wait_until


def connected(server, config):
    """A consumer's view of its connection, and nsqd's view of the consumer."""
    consumer = Consumer(
        "events", "c", Collector(), nsqd_tcp_addresses=[server.tcp_address], config=config
    )
    with consumer:
        wait_until(lambda: server.stats("events", "c").get("clients"))
        wait_until(lambda: consumer.stats().connections)
        client, = server.stats("events", "c")["clients"]
        ours, = consumer.stats().connections
    return ours.negotiated, client


def test_the_negotiated_values_are_in_the_statistics_of_both_ends(server):
    config = Config(
        output_buffer_size=128, output_buffer_timeout=0.05, msg_timeout=2.5, sample_rate=7,
        heartbeat_interval=5, topology_region="r", topology_zone="z",
        client_id="me", hostname="here", user_agent="mine/1.0",
    )
    answer, client = connected(server, config)
    expected = {
        "version": "1.3.0", "max_rdy_count": 2500, "max_msg_timeout": 900_000,
        "output_buffer_size": 128, "output_buffer_timeout": 50, "msg_timeout": 2500,
        "sample_rate": 7, "tls_v1": False, "snappy": False, "deflate": False,
        "max_deflate_level": 6, "auth_required": False,
    }
    assert {key: answer[key] for key in expected} == expected
    keys = ("client_id", "hostname", "user_agent", "sample_rate")
    assert [client[key] for key in keys] == ["me", "here", "mine/1.0", 7]


def test_max_rdy_count_of_the_server_caps_rdy(server_factory):
    server = server_factory(max_rdy_count=5)
    collector = Collector()
    with Producer([server.tcp_address]) as producer:
        producer.publish_many("events", [b"%d" % n for n in range(50)])
    consumer = Consumer("events", "c", collector, nsqd_tcp_addresses=[server.tcp_address],
                        max_in_flight=100)
    with consumer:
        wait_until(lambda: len(collector.messages) == 50)
        assert consumer.stats().connections[0].rdy == 5


def test_heartbeats_can_be_off_for_producers(server):
    """-1: nsqd sends none to a producer; a consumer cannot have that."""
    with Producer([server.tcp_address], config=Config(heartbeat_interval=-1)) as producer:
        producer.publish("events", b"x")
    with pytest.raises(ConfigError, match="heartbeat"):
        Consumer("events", "c", Collector(), nsqd_tcp_addresses=[server.tcp_address],
                 config=Config(heartbeat_interval=-1))


def test_a_value_beyond_the_servers_own_limit_is_refused(server_factory):
    server = server_factory(max_msg_timeout=60)
    errors = []
    consumer = Consumer(
        "events", "c", Collector(), nsqd_tcp_addresses=[server.tcp_address],
        config=Config(msg_timeout=61), on_error=errors.append,
    )
    with consumer:
        wait_until(lambda: errors)
    refusal = errors[0] if isinstance(errors[0], ServerError) else errors[0].__cause__
    assert refusal.code == "E_BAD_BODY" and "msg timeout (61000) is invalid" in str(refusal)
