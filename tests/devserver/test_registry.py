"""The registry by value: who is found where, and until when."""

import pytest

from nsqclient.devserver.registry import Peer, Registry
from nsqclient.protocol.lookupd import Identity


def make_peer(number: int, now: float = 0.0) -> Peer:
    """A peer named by a number."""
    identity = Identity(f"host{number}", f"host{number}", 4151, 4150, "1.3.0")
    return Peer(f"127.0.0.1:{number}", identity, now)


@pytest.fixture
def registry():
    """An empty registry with the real one's timeouts."""
    return Registry(300.0, 45.0)


@pytest.fixture
def peer(registry):
    """A peer that has identified itself at time 0."""
    peer = make_peer(1)
    registry.identify(peer)
    return peer


def test_a_channel_brings_its_topic(registry, peer):
    """Registering a channel makes its producer found under the topic."""
    registry.register(peer, "t", "c")
    assert registry.topics() == ["t"]
    assert registry.lookup("t", 0.0) == (["c"], [peer])


def test_an_unknown_topic(registry):
    """An unknown topic is no topic, and has no channels."""
    assert registry.lookup("t", 0.0) is None
    assert registry.channels("t") == []


def test_topics_and_channels_stay_without_producer(registry, peer):
    """When the last nsqd leaves, names stay and producers go, ephemeral names too."""
    registry.register(peer, "t#ephemeral", "c#ephemeral")
    registry.drop(peer)
    assert registry.lookup("t#ephemeral", 0.0) == (["c#ephemeral"], [])
    assert registry.nodes(0.0) == []


def test_ephemeral_names_vanish_with_the_last_unregister(registry, peer):
    """An ephemeral name goes when its last producer unregisters it; others stay."""
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


def test_unregistering_what_is_not_there_does_nothing(registry, peer):
    """UNREGISTER of an unknown topic or channel changes nothing."""
    registry.unregister(peer, "t", "c")
    registry.unregister(peer, "t", None)
    assert registry.topics() == []


def test_inactive_producers_are_hidden_until_they_ping(registry, peer):
    """A producer silent for longer than the timeout is in no answer; a PING brings it back."""
    registry.register(peer, "t", None)
    assert registry.lookup("t", 300.0).producers == [peer]
    assert registry.lookup("t", 300.1) == ([], [])
    assert registry.nodes(300.1) == []
    peer.last_update = 300.1
    assert registry.lookup("t", 300.1).producers == [peer]


def test_a_tombstone_hides_one_producer_of_one_topic_for_a_while(registry, peer):
    """A tombstoned producer is missing in /lookup and marked in /nodes until it wears off."""
    other = make_peer(2)
    for topic in ("t", "u"):
        registry.register(peer, topic, None)
        registry.register(other, topic, None)
    registry.tombstone("t", "host1:4151", 100.0)
    assert registry.lookup("t", 100.0).producers == [other]
    assert registry.lookup("u", 100.0).producers == [peer, other]
    assert registry.nodes(100.0)[0] == (peer, ["t", "u"], [True, False])
    assert registry.lookup("t", 145.0).producers == [peer, other]
    assert registry.nodes(145.0)[0].tombstones == [False, False]


def test_a_tombstone_survives_register_but_not_reconnecting(registry, peer):
    """Registering again on the same connection keeps the tombstone; a new one has none."""
    registry.register(peer, "t", None)
    registry.tombstone("t", "host1:4151", 0.0)
    registry.register(peer, "t", None)
    assert registry.lookup("t", 1.0).producers == []
    registry.drop(peer)
    again = make_peer(1)
    registry.register(again, "t", None)
    assert registry.lookup("t", 1.0).producers == [again]


def test_a_tombstone_for_nobody_changes_nothing(registry, peer):
    """An unknown node or topic is no error."""
    registry.register(peer, "t", None)
    registry.tombstone("t", "nobody:1", 0.0)
    registry.tombstone("nope", "host1:4151", 0.0)
    assert registry.lookup("t", 0.0).producers == [peer]


def test_created_names_have_no_producer(registry):
    """A channel created by HTTP brings its topic, and both have no producer."""
    registry.create("t")
    registry.create("u", "c")
    assert registry.topics() == ["t", "u"]
    assert registry.lookup("u", 0.0) == (["c"], [])


def test_deleting_a_topic_takes_its_channels(registry, peer):
    """A deleted topic is gone with its channels, also for the nsqd that still has it."""
    registry.register(peer, "t", "c")
    registry.delete_topic("t")
    registry.delete_topic("t")
    assert (registry.lookup("t", 0.0), registry.channels("t")) == (None, [])
    assert registry.nodes(0.0) == [(peer, [], [])]


def test_deleting_a_channel(registry, peer):
    """A channel is deleted once; the second time there is none."""
    registry.register(peer, "t", "c")
    assert registry.delete_channel("t", "c")
    assert not registry.delete_channel("t", "c")
    assert registry.lookup("t", 0.0) == ([], [peer])


def test_a_star_matches_every_topic(registry, peer):
    """The wildcard quirk of the real one: every channel, every producer once."""
    registry.register(peer, "t", "c")
    registry.register(peer, "u", "d")
    assert registry.lookup("*", 0.0) == (["c", "d"], [peer])
    assert registry.channels("*") == ["c", "d"]


def test_everything_for_debug(registry, peer):
    """The debug view has a key for the client, the topic and the channel."""
    registry.register(peer, "t", "c")
    keys = [":".join(key) for key, entries in registry.entries() if entries]
    assert keys == ["client::", "channel:t:c", "topic:t:"]
