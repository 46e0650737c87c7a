"""Every endpoint of both HTTP APIs, and registered ports, on both kinds of server."""

import pytest

from nsqclient.config import Config
from nsqclient.errors import NSQHTTPTransportError, NSQHTTPStatusError
from nsqclient.http import NsqdHTTP, NsqlookupdHTTP
from tests.support.waiting import wait_until


@pytest.fixture
def nsqd(server):
    with NsqdHTTP(server.http_address) as client:
        yield client


def _refused(call, *arguments):
    with pytest.raises(NSQHTTPStatusError) as caught:
        call(*arguments)
    return caught.value.status, caught.value.message


def test_ping_info_and_stats_of_nsqd_are_read(server, nsqd):
    nsqd.ping()
    info = nsqd.info()
    assert server.tcp_address.endswith(f":{info.tcp_port}") and info.version
    assert nsqd.stats().health == "OK"
    assert server.kind == "embedded" or "Health: OK" in nsqd.stats_text()


def test_every_way_to_publish_over_http_stores_the_bodies(nsqd):
    nsqd.create_topic("t")
    nsqd.create_channel("t", "c")
    nsqd.pub("t", b"one")
    nsqd.pub("t", b"two", defer=60)
    nsqd.mpub("t", [b"a\nb", b"\x00"])
    topic = wait_until(lambda: _settled(nsqd))
    channel = topic.channel("c")
    assert (topic.message_count, topic.message_bytes) == (4, 10)
    assert (channel.depth, channel.deferred_count, channel.client_count) == (3, 1, 0)


def _settled(nsqd):
    topic = nsqd.stats("t", include_clients=False).topic("t")
    return topic if topic.channel("c").message_count == 4 else None


def test_topics_and_channels_are_created_paused_emptied_and_deleted(nsqd):
    nsqd.create_topic("t")
    nsqd.pause_topic("t")
    nsqd.pub("t", b"x")
    assert nsqd.stats("t").topic("t").paused
    nsqd.empty_topic("t")
    nsqd.unpause_topic("t")
    nsqd.create_channel("t", "c")
    nsqd.pause_channel("t", "c")
    assert nsqd.stats("t", "c").topic("t").channel("c").paused
    nsqd.empty_channel("t", "c")
    nsqd.unpause_channel("t", "c")
    nsqd.delete_channel("t", "c")
    assert _refused(nsqd.delete_channel, "t", "c") == (404, "CHANNEL_NOT_FOUND")
    nsqd.delete_topic("t")
    assert _refused(nsqd.delete_topic, "t") == (404, "TOPIC_NOT_FOUND")


@pytest.mark.real
def test_options_of_nsqd_can_be_set(real_nsqd):
    """The embedded one has no /config."""
    with NsqdHTTP(real_nsqd().http_address) as nsqd:
        nsqd.set_lookupd_tcp_addresses([])
        assert nsqd.get_option("nsqlookupd_tcp_addresses") in ([], None)
        assert _refused(nsqd.get_option, "nope") == (400, "INVALID_OPTION")
        nsqd.set_log_level("error")
        assert _refused(nsqd.set_log_level, "nope") == (400, "INVALID_VALUE")


@pytest.mark.parametrize("size", [2000, 900_000])
def test_a_body_above_the_limit_of_nsqd_is_refused(server_factory, size):
    """nsqd closes before it has read a large body, and the reset may overtake its answer."""
    server = server_factory(max_msg_size=1000)
    with NsqdHTTP(server.http_address, Config(nsqd_max_msg_size=10**6)) as nsqd:
        with pytest.raises((NSQHTTPStatusError, NSQHTTPTransportError)) as caught:
            nsqd.pub("t", b"x" * size)
        assert "MSG_TOO_BIG" in str(caught.value) or "--max-msg-size" in caught.value.hint
        nsqd.pub("t", b"x" * 1000)


def test_the_client_goes_on_after_a_restart_of_nsqd(server, nsqd):
    nsqd.ping()
    server.stop()
    with pytest.raises(NSQHTTPTransportError):
        nsqd.ping()
    server.start()
    nsqd.ping()


def test_every_endpoint_of_nsqlookupd_is_read(lookupd_factory, server_factory):
    lookupd = lookupd_factory()
    server = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address])
    with NsqlookupdHTTP(lookupd.http_address) as client, NsqdHTTP(server.http_address) as nsqd:
        client.ping()
        assert client.info().version
        assert _refused(client.lookup, "t") == (404, "TOPIC_NOT_FOUND")
        client.create_topic("t")
        client.create_channel("t", "c")
        assert client.lookup("t").producers == ()
        wait_until(client.nodes)
        nsqd.create_topic("t")
        found = wait_until(lambda: client.lookup("t").producers)[0]
        assert found.tcp_address.split(":")[1] == server.tcp_address.split(":")[1]
        assert client.topics() == ("t",) and client.channels("t") == ("c",)
        client.tombstone_topic("t", found.http_address)
        assert client.lookup("t").producers == ()
        assert client.nodes()[0].tombstoned == ("t",)
        assert _refused(client.delete_channel, "t", "nope") == (404, "CHANNEL_NOT_FOUND")
        client.delete_topic("t")
        assert client.topics() == ()


def test_ports_to_register_can_be_given(server_factory, lookupd_factory):
    lookupd = lookupd_factory()
    server = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address],
                            broadcast_tcp_port=14150, broadcast_http_port=70000)
    wait_until(lambda: lookupd.get("/nodes").json()["producers"])
    producer, = lookupd.get("/nodes").json()["producers"]
    assert (producer["tcp_port"], producer["http_port"]) == (14150, 70000)
    assert server.tcp_address.endswith(f":{server.get('/info').json()['tcp_port']}")
