"""The depth of a channel, and the nsqds whose depth is unknown."""

import contextlib
import socket

import pytest

from nsqclient.config import Config
from nsqclient.consumer.channel_depth import DepthQuery, is_at
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths
from nsqclient.http.models import NsqdInfo
from tests.support.servers.http_api import registered
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until

#: A port on which nothing listens.
NOWHERE = "127.0.0.1:1"


def depths(nsqd=(), http=(), lookupd=(), choose=None, **more):
    sources = NsqdSources(nsqd, [lookupd] if lookupd else [], choose, nsqd_http=http)
    return DepthQuery("t", "c", Config(), sources, **more).fetch()


def test_depths_are_known_when_every_nsqd_has_answered():
    one, two = ChannelDepth(3, 1, 1), ChannelDepth(4, 0, 1)
    both = ChannelDepths({"a:1": one, "b:1": two})
    assert (both.is_complete, both.waiting, both.in_flight) == (True, 7, 1)
    half = ChannelDepths({"a:1": one}, {"b:1": "why"})
    assert (half.is_complete, half.waiting, half.in_flight) == (False, 3, 1)
    assert not ChannelDepths().is_complete


def test_what_is_paused_or_deferred_is_counted_apart(server_factory):
    one = server_factory()
    one.post("/topic/create", topic="t")
    one.post("/pub", b"x", topic="t")
    ask = [one.tcp_address], [one.http_address]
    assert depths(*ask).known[one.tcp_address] == ChannelDepth(1, 0, 0)
    one.post("/channel/create", topic="t", channel="c")
    one.post("/channel/pause", topic="t", channel="c")
    one.post("/pub", b"y", topic="t", defer="60000")
    wait_until(lambda: depths(*ask).deferred == 1)
    found = depths(*ask)
    assert found.known[one.tcp_address] == ChannelDepth(1, 0, 0, deferred=1, is_paused=True)
    assert (found.waiting, found.paused, found.in_flight) == (1, 1, 0)


def port_of(address):
    return int(address.rpartition(":")[2])


def test_the_usual_http_port_is_tried_where_no_address_is_given(server_factory, monkeypatch):
    one, other = server_factory(), server_factory()

    def ask(http_port):
        monkeypatch.setattr("nsqclient.http.nsqd._TO_HTTP_PORT",
                            http_port - port_of(one.tcp_address))
        return depths([one.tcp_address])

    assert ask(port_of(one.http_address)).is_complete
    found = ask(port_of(other.http_address))
    assert found.without_http == (one.tcp_address,)
    assert "this nsqd has the TCP port" in found.unknown[one.tcp_address]


def test_an_nsqd_has_no_http_address_if_nothing_listens_at_the_usual_port():
    found = depths([NOWHERE])
    assert found.without_http == (NOWHERE,) and "refused" in found.unknown[NOWHERE]


def test_an_nsqd_that_was_asked_or_connected_counts_when_it_is_not_listed_any_more(
    server_factory, lookupd_factory
):
    """It may be restarting. An nsqd that never answered or was connected does not count."""
    lookupd = lookupd_factory()
    servers = [server_factory(lookupd_tcp_addresses=[lookupd.tcp_address]) for _ in range(2)]
    for one in servers:
        one.post("/topic/create", topic="t")
    wait_until(lambda: len(registered(lookupd, "t")) == 2)
    query = DepthQuery("t", "c", Config(), NsqdSources([], [lookupd.http_address]))
    assert len(query.fetch().known) == 2
    kept = depths(lookupd=lookupd.http_address, choose=lambda addresses: [
        servers[0].tcp_address])  # nsqds that are filtered out are not consumed either
    assert list(kept.known) == [servers[0].tcp_address]
    servers[0].stop()
    wait_until(lambda: len(registered(lookupd, "t")) == 1)
    found = query.fetch(["b:4150"])
    assert list(found.unknown) == [servers[0].tcp_address, "b:4150"]
    assert list(found.known) == [servers[1].tcp_address]
    lookupd.stop()  # its last answer is enough
    servers[0].start()
    assert len(query.fetch().known) == 2


def test_a_topic_is_unknown_when_everyone_says_so(server_factory, lookupd_factory):
    """An nsqlookupd that knows the topic, and lists no nsqd, may have one in a restart."""
    lookupd, one = lookupd_factory(), server_factory()
    where = {"lookupd": lookupd.http_address}
    assert depths(**where).is_topic_unknown
    assert depths([one.tcp_address], [one.http_address], **where).is_topic_unknown
    assert not depths([one.tcp_address], [NOWHERE], **where).is_topic_unknown
    lookupd.post("/topic/create", topic="t")
    found = depths(**where)
    assert not found.is_topic_unknown and list(found.unknown) == [lookupd.http_address]


def test_an_nsqd_that_does_not_answer_is_unknown_with_the_reason(server_factory):
    one = server_factory()
    found = depths([one.tcp_address, NOWHERE], [one.http_address, NOWHERE])
    assert found.known == {one.tcp_address: ChannelDepth(0, 0, 0, has_topic=False)}
    assert list(found.unknown) == [NOWHERE] and "refused" in found.unknown[NOWHERE]


@pytest.fixture
def without_usual_port(server_factory):
    """Make nsqds without an HTTP server at the port behind the TCP port, nsqd's default."""
    with contextlib.ExitStack() as stack:
        def make():
            while True:
                server, held = server_factory(), stack.enter_context(socket.socket())
                with contextlib.suppress(OSError):  # the port is in use: another nsqd
                    held.bind(("127.0.0.1", port_of(server.tcp_address) + 1))
                    return server

        yield make


@pytest.mark.parametrize("http", [0, 1, 2])
def test_an_nsqd_without_an_http_port_is_unknown(without_usual_port, http):
    servers = [without_usual_port(), without_usual_port()]
    found = depths([one.tcp_address for one in servers],
                   [one.http_address for one in servers[:http]])
    assert len(found.known) == http and found.is_complete == (http == 2)
    assert found.without_http == tuple(one.tcp_address for one in servers[http:])


def test_nsqlookupd_knows_the_http_ports(server_factory, lookupd_factory):
    lookupd, alone = lookupd_factory(), server_factory()
    one = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address])
    one.post("/topic/create", topic="t")
    wait_until(lambda: registered(lookupd, "t"))
    where = {"lookupd": lookupd.http_address}
    assert depths(**where).is_complete and depths([one.tcp_address], **where).is_complete
    assert list(depths([alone.tcp_address], **where).unknown) == [alone.tcp_address]
    assert depths([alone.tcp_address], [alone.http_address], **where).is_complete


def test_a_nsqlookupd_that_does_not_answer_may_know_more(server_factory, lookupd_factory):
    lookupd, one = lookupd_factory(), server_factory()
    where = [one.tcp_address], [one.http_address]
    assert depths(*where, lookupd=lookupd.http_address).is_complete
    assert list(depths(*where, lookupd=NOWHERE).unknown) == [NOWHERE]


def test_a_producer_without_an_http_port_is_unknown():
    """As an nsqd that has switched it off registers itself."""
    with recording() as lookupd, socket.create_server(("127.0.0.1", 0)) as nsqd:
        port = nsqd.getsockname()[1]
        lookupd.body = b'{"producers": [{"broadcast_address": "127.0.0.1", "tcp_port": %d}]}' % port
        found = depths(lookupd=lookupd.address)
    assert found.without_http == (f"127.0.0.1:{port}",) == tuple(found.unknown)


def info(tcp_port, http_port, host="nsqd-1"):
    return NsqdInfo("1.3.0", host, host, http_port, tcp_port)


@pytest.mark.parametrize(("nsqd", "http", "said", "is_its"), [
    ("127.0.0.1:4150", "127.0.0.1:4151", info(4150, 4151), True),
    ("127.0.0.1:4150", "http://127.0.0.1:9999/", info(4150, 4151), True),
    ("NSQD-2:4150", "NSQD-2:9999", info(4150, 4151), True),
    # Another nsqd: its port, or its host. A container that maps the TCP port cannot be identified.
    ("127.0.0.1:4150", "localhost:4151", info(4150, 4151), False),  # names are not resolved
    ("127.0.0.1:4150", "127.0.0.1:5151", info(5150, 5151), False),
    ("127.0.0.1:4150", "192.0.2.1:4151", info(4150, 4151, "192.0.2.1"), False),
    ("127.0.0.1:14150", "127.0.0.1:14151", info(4150, 4151, "a"), False),
    # The HTTP API has an address of its own; nsqd announces the one of its TCP port.
    ("192.0.2.1:4150", "192.0.2.9:4151", info(4150, 4151, "192.0.2.1"), True),
])
def test_a_given_http_address_names_the_tcp_port_of_its_nsqd(nsqd, http, said, is_its):
    assert is_at(nsqd, http, said) is is_its


def test_two_addresses_of_one_nsqd_do_not_answer_for_two(server_factory):
    one = server_factory()
    port = port_of(one.http_address)
    found = depths([one.tcp_address, NOWHERE], [one.http_address, f"localhost:{port}"])
    assert list(found.known) == [one.tcp_address] and list(found.unknown) == [NOWHERE]
    assert not found.is_complete
