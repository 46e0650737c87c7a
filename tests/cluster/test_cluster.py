"""The nsqds of a cluster: their names, what several nsqlookupds say, and limits."""

import json
from contextlib import ExitStack, contextmanager

import pytest

from nsqclient.cluster.cluster import Cluster, Node, _mark_old
from tests.support.servers.http_recorder import recording


def info_of(address, hostname="true", tcp_port=4150, version="1.3.0"):
    host, port = address.split(":")
    return {"version": version, "broadcast_address": host, "hostname": hostname,
            "http_port": int(port), "tcp_port": tcp_port}


@contextmanager
def fake_nsqd(count=5, **info):
    """An nsqd with a topic; ``info`` replaces fields of its ``/info``."""
    with recording() as server:
        said = {**info_of(server.address), **info}
        stats = {"version": "1.3.0", "health": "OK", "topics": [
            {"topic_name": "events", "depth": 1, "message_count": count, "channels": []}]}
        server.reply = lambda request: json.dumps(
            said if request.path == "/info" else stats).encode()
        yield server


@contextmanager
def fake_lookupd(*producers, topics=("events",)):
    with recording() as server:
        server.body = json.dumps({
            "version": "1.3.0", "topics": list(topics), "channels": [],
            "producers": list(producers)}).encode()
        yield server


def listed(address, topics=("events",), tombstones=None, **values):
    """An nsqd as an nsqlookupd lists it."""
    return {**info_of(address), "remote_address": "r:1", "topics": list(topics),
            "tombstones": tombstones or [False] * len(topics), **values}


@pytest.fixture
def stack(leak_guard):
    with ExitStack() as found:
        yield found


def cluster_of(stack, lookupds=(), nsqds=()):
    return stack.enter_context(Cluster(
        [each.address for each in lookupds], [each.address for each in nsqds]))


def test_an_nsqd_cannot_take_the_name_of_another_one(stack):
    """A given address is the name; the announced address is shown as such, and is doubtful."""
    good, other = (stack.enter_context(fake_nsqd()) for _ in range(2))
    bad = stack.enter_context(fake_nsqd(**info_of(good.address)))
    found = cluster_of(stack, nsqds=[good, other, bad]).nodes()
    assert {each.address: each.announced for each in found.nodes} == {
        good.address: good.address, other.address: other.address, bad.address: good.address}
    [doubt] = found.failures
    assert (doubt.address, doubt.is_doubt) == (bad.address, True) and good.address in doubt.reason


def test_an_nsqd_is_found_by_its_announced_address_if_that_is_unique(stack):
    """The name of the original works, from the fields of /api/nodes."""
    nsqd = stack.enter_context(fake_nsqd(broadcast_address="container", http_port=4151))
    found = cluster_of(stack, nsqds=[nsqd]).nodes()
    assert found.named("container:4151") == found.named(nsqd.address) == found.nodes[0]
    assert found.named("other:4151") is None


@pytest.mark.parametrize("versions, old", [
    (["1.3.0", "1.3.0"], [False, False]),
    (["1.3.0", "1.2.1", "1.2.1"], [False, True, True]),
    (["1.3.0", "", "x"], [False, False, False]),
    (["1.10.0", "1.9.0"], [False, True]),
])
def test_an_nsqd_is_old_when_another_one_is_newer(versions, old):
    nodes = [Node(f"n{n}:1", "a:1", "a:2", "n", "h", 2, 1, version)
             for n, version in enumerate(versions)]
    assert [each.out_of_date for each in _mark_old(nodes)] == old


def test_a_tombstone_of_one_nsqlookupd_alone_is_not_shown(stack):
    """The other nsqlookupd still returns the nsqd. A tombstone of all that list it is shown."""
    hiding = stack.enter_context(fake_lookupd(listed("n:1", tombstones=[True])))
    showing = stack.enter_context(fake_lookupd(listed("n:1")))
    asked = cluster_of(stack, [hiding, showing])
    [node] = asked.nodes().nodes
    assert node.lookupds == (hiding.address, showing.address) and not node.tombstoned
    showing.body = hiding.body
    [node] = asked.nodes().nodes
    assert node.tombstoned == {"events"}
