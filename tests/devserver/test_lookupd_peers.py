"""nsqd's side of nsqlookupd: registration, changes, reconnecting, channels; nsqlookupd's ports."""

import logging
import socket
import time

import pytest

from nsqclient.devserver.broker import TopicChange
from nsqclient.devserver.http_server import HTTPServer
from nsqclient.devserver.lookupd_peers import LookupdPeer, LookupdPeers, read_channels
from nsqclient.devserver.nsqlookupd import Nsqlookupd
from nsqclient.devserver.protocol.lookupd import Identity
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

NSQD = Identity("127.0.0.1", "there", 4151, 4150, "1.3.0")


@pytest.fixture
def lookupd(leak_guard):
    with Nsqlookupd() as lookupd:
        yield lookupd


@pytest.fixture
def has() -> list[tuple[str, str | None]]:
    """The broker of the peers: topics and channels without an nsqd."""
    return []


@pytest.fixture
def make(leak_guard, has):
    made = []

    def make(*addresses):
        peers = LookupdPeers(addresses, lambda: NSQD, lambda: list(has))
        made.append(peers)
        peers.start()
        return peers

    yield make
    for peers in made:
        peers.stop()


def nodes(lookupd: Nsqlookupd) -> list[list[str]]:
    return [sorted(topics) for _, topics in lookupd._registry.nodes(time.time())]


def test_lost_connection_is_dialed_and_registered_again(make, lookupd, has, monkeypatch):
    """A PING is enough to notice it."""
    monkeypatch.setattr("nsqclient.devserver.lookupd_peers.PING_INTERVAL", 0.05)
    make(lookupd.tcp_address)
    has[:] = [("t", "c")]
    lookupd.drop_producers()
    wait_until(lambda: nodes(lookupd) == [["t"]])


def test_nsqlookupd_that_starts_later_is_registered_with(make, has):
    port = free_port()
    peers = make(f"127.0.0.1:{port}")
    with Nsqlookupd(tcp_port=port) as lookupd:
        has[:] = [("t", None)]
        peers.notify(TopicChange(True, "t", None))
        wait_until(lambda: nodes(lookupd) == [["t"]])
        peers.stop()
        peers.notify(TopicChange(True, "u", None))
        wait_until(lambda: nodes(lookupd) == [])


def test_channels_of_all_nsqlookupds_are_merged(make, lookupd):
    with Nsqlookupd() as other:
        for registry in (lookupd._registry, other._registry):
            registry.create("t", "c")
        other._registry.create("t", "d")
        other._registry.create("t", "e#ephemeral")
        peers = make(lookupd.tcp_address, other.tcp_address)
        assert peers.channels_of("t") == ["c", "d"]
        assert peers.channels_of("unknown") == []


def test_channels_of_an_unreachable_nsqlookupd_are_left_out(make, lookupd, caplog):
    peers = make(f"127.0.0.1:{free_port()}")
    assert peers.channels_of("t") == []
    assert "no available nsqlookupd" in caplog.text
    peers = make(lookupd.tcp_address)
    lookupd.stop()
    assert peers.channels_of("t") == []
    assert "failed to query nsqlookupd" in caplog.text


@pytest.mark.parametrize("answer", [{}, [], {"channels": 1}])
def test_response_without_channels_is_an_error(leak_guard, answer):
    server = HTTPServer("test-http", "127.0.0.1", 0, [
        ("GET", "/channels", lambda request: answer)])
    server.start()
    try:
        with pytest.raises(ValueError, match="not a list of channels"):
            read_channels(server.address, "t")
    finally:
        server.stop()


def test_http_port_as_tcp_address_is_logged(make, lookupd, caplog):
    make(lookupd.http_address)
    assert "this looks like nsqlookupd's HTTP port" in caplog.text


def test_silent_peer_is_given_up_after_the_time_limit(leak_guard, caplog, monkeypatch):
    monkeypatch.setattr("nsqclient.devserver.lookupd_peers.IO_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, caplog.at_level(logging.WARNING):
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        peer = LookupdPeer(address, lambda: NSQD, lambda: [])
        peer.start()
        wait_until(lambda: "no answer within 0.05 s" in caplog.text)
        peer.stop()


def test_stop_interrupts_a_wait_for_an_answer(leak_guard, monkeypatch):
    monkeypatch.setattr("nsqclient.devserver.lookupd_peers.IO_TIMEOUT", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        peer = LookupdPeer(address, lambda: NSQD, lambda: [])
        peer.start()
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(4) == b"  V1"
            peer.stop()


def test_http_port_in_use_frees_the_tcp_port(lookupd):
    port = int(lookupd.http_address.rpartition(":")[2])
    other = Nsqlookupd(http_port=port)
    with pytest.raises(OSError, match="cannot listen on"):
        other.start()
    other.stop()
