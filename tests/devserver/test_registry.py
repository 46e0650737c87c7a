"""The registry by value: which producers are found under which name, and until when."""

import pytest

from nsqclient.devserver.protocol.lookupd import Identity
from nsqclient.devserver.protocol.lookupd import PeerInfo, Registry


def make_peer(number: int, now: float = 0.0) -> PeerInfo:
    identity = Identity(f"host{number}", f"host{number}", 4151, 4150, "1.3.0")
    return PeerInfo(f"127.0.0.1:{number}", identity, now)


@pytest.fixture
def registry():
    return Registry(300.0, 45.0)


@pytest.fixture
def peer(registry):
    peer = make_peer(1)
    registry.identify(peer)
    return peer


def test_ephemeral_names_vanish_with_the_last_unregister(registry, peer):
    other = make_peer(2)
    for one in (peer, other):
        registry.register(one, "t#ephemeral", "c#ephemeral")
        registry.register(one, "t", "c")
    registry.unregister(peer, "t#ephemeral", "c#ephemeral")
    assert registry.channels("t#ephemeral") == ["c#ephemeral"]
    registry.unregister(other, "t#ephemeral", "c#ephemeral")
    assert registry.channels("t#ephemeral") == []
    for one in (peer, other):
        registry.unregister(one, "t#ephemeral", None)
        registry.unregister(one, "t", None)
    assert registry.topics() == ["t"]
    assert registry.lookup("t", 0.0) == (["c"], [])
    registry.register(peer, "u#ephemeral", "c#ephemeral")
    registry.drop(peer)  # its connection has closed: the names stay
    assert registry.lookup("u#ephemeral", 0.0) == (["c#ephemeral"], [])
    assert [peer for peer, _ in registry.nodes(0.0)] == []


def test_inactive_producers_are_hidden_until_they_ping(registry, peer):
    registry.register(peer, "t", None)
    assert registry.lookup("t", 300.0)[1] == [peer]
    assert registry.lookup("t", 300.1) == ([], [])
    assert registry.nodes(300.1) == []
    peer.last_update = 300.1
    assert registry.lookup("t", 300.1)[1] == [peer]


def test_a_tombstone_hides_one_producer_of_one_topic_for_a_while(registry, peer):
    other = make_peer(2)
    for topic in ("t", "u"):
        registry.register(peer, topic, None)
        registry.register(other, topic, None)
    registry.tombstone("t", "host1:4151", 100.0)
    assert registry.lookup("t", 100.0)[1] == [other]
    assert registry.lookup("u", 100.0)[1] == [peer, other]
    assert registry.nodes(100.0)[0] == (peer, {"t": True, "u": False})
    assert registry.lookup("t", 145.0)[1] == [peer, other]
    assert registry.nodes(145.0)[0] == (peer, {"t": False, "u": False})


def test_a_tombstone_survives_register_but_not_reconnecting(registry, peer):
    registry.register(peer, "t", None)
    registry.tombstone("t", "host1:4151", 0.0)
    registry.register(peer, "t", None)
    assert registry.lookup("t", 1.0)[1] == []
    registry.drop(peer)
    again = make_peer(1)
    registry.register(again, "t", None)
    assert registry.lookup("t", 1.0)[1] == [again]


def test_deleting_a_topic_deletes_its_channels(registry, peer):
    registry.register(peer, "t", "c")
    registry.delete_topic("t")
    registry.delete_topic("t")
    assert (registry.lookup("t", 0.0), registry.channels("t")) == (None, [])
    assert registry.nodes(0.0) == [(peer, {})]
