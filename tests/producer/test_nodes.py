"""The nsqds of a producer: the order of dials, the choice, and lost connections."""

import contextlib
import threading
import time

import pytest

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import (
    ClosedError, ConnectError, NegotiationError, NotNSQError, NSQConnectionError,
    ReentrantCallError, ServerError,
)
from nsqclient.producer.nodes import NodePool
from nsqclient.producer.publisher import Publisher
from nsqclient.producer.stats import Statistics
from nsqclient.protocol import commands
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import DIRECT, MAX_DIALS
from nsqclient.runtime.threads import LibraryThread
from tests.support.faults.interrupts import Interruption
from tests.support.faults.silent_addresses import silent_addresses
from tests.support.inline_thread import InlineThread
from tests.support.servers.ports import free_port
from tests.support.servers.scripted import ScriptedServer, error
from tests.support.waiting import wait_until

WAIT = 10.0
PUB = commands.pub("t", b"x")


@pytest.fixture
def make_links():
    """Factory of NodePool that are closed after the test."""
    made = []

    def make(*addresses, **options):
        made.append(NodePool(addresses, Config(**options)))
        return made[-1]

    yield make
    for nodes in made:
        assert nodes.close(Deadline(WAIT)) == []


def refusing(peer):
    """A script: cannot store, and waits for the end."""
    peer.identify()
    peer.line(), peer.sized()
    peer.send(error("E_PUB_FAILED disk"))
    peer.until_closed()


def idle(peer):
    peer.identify()
    peer.until_closed()


def deaf_after(dialed):
    """A script: takes the connection, sets an event, and does not even answer IDENTIFY."""
    def script(peer):
        dialed.set()
        peer.until_closed()

    return script


def acquire(nodes, timeout=WAIT):
    """Return a node that is connected."""
    return nodes.acquire(Deadline(timeout))


def publish(nodes, timeout=WAIT):
    """Publish once; return why it failed."""
    publisher = Publisher(nodes, True, Statistics())
    until = time.monotonic() + timeout
    return publisher.attempt(acquire(nodes, timeout), PUB, until, timeout).error


def test_close_ends_a_dial(make_links):
    dialed = threading.Event()
    with ScriptedServer(deaf_after(dialed)) as server:
        nodes = make_links(server.address)
        with pytest.raises(ConnectError, match="in time"):
            acquire(nodes, 0.1)
        assert dialed.wait(WAIT)
        began = time.monotonic()
        assert nodes.close(Deadline(WAIT)) == []
        assert time.monotonic() - began < 3
        with pytest.raises(ClosedError):
            acquire(nodes)


def test_a_publisher_that_waits_is_woken_by_close(make_links):
    nodes = make_links(f"127.0.0.1:{free_port()}")
    timer = threading.Timer(0.1, nodes.close, [Deadline(WAIT)])
    timer.start()
    with pytest.raises(ClosedError):
        acquire(nodes)
    timer.join()


@pytest.mark.parametrize("make_thread", [LibraryThread, InlineThread])
def test_a_permanent_reason_fails_at_once(make_links, make_thread):
    def http(peer):
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.until_closed()

    with ScriptedServer(http) as server:
        with pytest.raises(NotNSQError):
            nodes = make_links(server.address)
            nodes._dials._make_thread = make_thread
            acquire(nodes)


def test_an_unexpected_error_of_a_dial_is_no_end(make_links, monkeypatch, caplog):
    opened = BlockingConnection.open
    errors = [RuntimeError("a bug")]

    def fail_once(conn, *arguments):
        if errors:
            raise errors.pop()
        opened(conn, *arguments)

    monkeypatch.setattr(BlockingConnection, "open", fail_once)
    with ScriptedServer(idle) as server:
        nodes = make_links(server.address)
        assert acquire(nodes).address == server.address
        nodes.close(Deadline(WAIT))
    assert "a bug" in caplog.text


def test_a_dial_that_gets_no_thread_is_an_error_in_time(make_links, no_thread, caplog):
    with ScriptedServer(idle) as server:
        nodes = make_links(server.address)
        with no_thread("nsq-dialer"), pytest.raises(NSQConnectionError):
            acquire(nodes, 0.3)
        wait_until(lambda: "cannot start a thread to" in caplog.text)
        assert acquire(nodes).address == server.address
        nodes.close(Deadline(WAIT))


def test_the_timer_waits_for_no_nsqd(make_links):
    """A finalizer may run there, and nobody else would have any dialed."""
    nodes = make_links()
    nodes.timer._thread = threading.current_thread()
    with pytest.raises(ReentrantCallError):
        acquire(nodes)


@pytest.fixture
def pauses(monkeypatch):
    """The failures before each pause between two dials; none takes time."""
    found = []
    monkeypatch.setattr("nsqclient.producer.nodes.reconnect_delay",
                        lambda failures, maximum, rng: found.append(failures) or 0.0)
    return found


def test_an_nsqd_that_loses_its_connections_is_not_dialed_without_a_pause(
    make_links, pauses, monkeypatch
):
    monkeypatch.setattr("nsqclient.producer.nodes._BRIEF", 10 * WAIT)
    dials = []

    def leave(peer):
        dials.append(peer)
        peer.identify()
        peer.line()

    with ScriptedServer(*[leave] * 4) as server:
        nodes = make_links(server.address)
        while len(dials) < 4:
            publish(nodes)
        nodes.close(Deadline(WAIT))
    assert len(pauses) >= 3


def test_an_nsqd_that_cannot_store_is_dialed_again_at_once(make_links, pauses):
    """E_PUB_FAILED belongs to the publish: others go on."""
    with ScriptedServer(refusing, idle) as full:
        nodes = make_links(full.address)
        assert isinstance(publish(nodes), ServerError)
        (node,) = nodes._nodes.values()
        assert acquire(nodes) is node and node.failures == 0 and pauses == []
        nodes.close(Deadline(WAIT))


def test_a_publish_does_not_wait_for_an_nsqd_that_others_have_left(make_links):
    """The last connection to the nsqd ended during the wait. Another nsqd is connected."""
    with ScriptedServer(idle) as server:
        nodes = make_links(server.address)
        left = nodes.node_at("127.0.0.1:1")
        acquire(nodes)
        began = time.monotonic()
        assert nodes.wait_for_connection(
            left, left.pool, began + WAIT, 1.0, lambda: False) is None
        assert time.monotonic() - began < WAIT / 2
        nodes.close(Deadline(WAIT))


def test_close_ends_the_pause_of_a_publish(make_links):
    nodes = make_links()
    timer = threading.Timer(0.1, nodes.close, [Deadline(WAIT)])
    timer.start()
    began = time.monotonic()
    nodes.pause(WAIT)
    timer.join()
    assert time.monotonic() - began < WAIT / 2


def test_discovered_addresses_come_and_go(make_links):
    with ScriptedServer(idle) as server:
        nodes = make_links("127.0.0.1:1")
        nodes.set_addresses({DIRECT: [server.address]})
        assert nodes.addresses == [server.address]
        assert acquire(nodes).has_worked
        nodes.set_addresses({DIRECT: ["127.0.0.1:1"]})
        assert set(nodes.addresses) == {server.address, "127.0.0.1:1"}
        nodes.close(Deadline(WAIT))


def test_an_nsqd_that_was_lost_is_dialed_before_new_ones(make_links):
    nodes, order = make_links("127.0.0.1:1", "127.0.0.1:2"), {}
    nodes._nodes["127.0.0.1:2"].has_worked = True
    nodes._dials.put = lambda conn, sources, **known: order.update({conn.address: known})
    nodes._is_async = False
    nodes._check(time.monotonic())
    assert order == {"127.0.0.1:1": {"has_worked": False, "failures": 0},
                     "127.0.0.1:2": {"has_worked": True, "failures": 0}}


@pytest.mark.parametrize("place", ["before the dial", "in the dial"])
def test_an_exception_of_a_time_limit_in_a_dial_does_not_end_the_dials(
    make_links, monkeypatch, place
):
    opened, errors = BlockingConnection.open, [MemoryError()]

    def fail_once(work):
        def run(*arguments):
            if errors:
                raise errors.pop()
            work(*arguments)

        return run

    with ScriptedServer(idle) as server:
        nodes = make_links(server.address)
        if place == "in the dial":
            monkeypatch.setattr(BlockingConnection, "open", fail_once(opened))
        else:
            nodes._dials._dial = fail_once(nodes.dial)
        assert acquire(nodes).address == server.address and not errors
        nodes.close(Deadline(WAIT))


def test_a_dial_that_is_interrupted_at_any_point_loses_no_connection(make_links, monkeypatch):
    """After it was opened it is in the pool, or closed, whenever the exception comes."""
    def opened(conn, deadline):
        conn.used_at = conn.heard_at = conn.opened_at = time.monotonic() + WAIT

    monkeypatch.setattr(BlockingConnection, "open", opened)
    number, has_come = 0, True
    while has_come:
        nodes = make_links()
        node = nodes.node_at("n:1")
        conn = BlockingConnection(node.address, Config())
        node.pool.dialing.add(conn)
        interruption = Interruption(number)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            nodes.dial(conn)
        if conn.opened_at > 0:
            assert conn.is_closed != (conn in node.pool.idle), interruption.place
        assert node.pool.connections() == list(node.pool.idle), interruption.place
        assert node in nodes.connected or not node.pool.idle, interruption.place
        nodes._check(time.monotonic())
        number, has_come = number + 1, interruption.has_come
    assert number > 30 and nodes.connected == (node,)


def test_what_no_nsqlookupd_names_any_more_is_not_dialed(make_links):
    with silent_addresses(2 * MAX_DIALS, accepts=True) as silent:
        nodes = make_links(*silent)
        with pytest.raises(ConnectError, match="in time"):
            acquire(nodes, 0.1)
        wait_until(lambda: len(nodes._dials._under_way) == MAX_DIALS)
        nodes.set_addresses({DIRECT: []})
        assert nodes.addresses == []
        wait_until(lambda: not nodes._dials._under_way)


def test_without_any_address_the_reason_is_that_of_the_lookup(make_links):
    nodes = make_links()
    with pytest.raises(ConnectError, match="no nsqd"):
        acquire(nodes, 0.05)
    nodes.discovery_error = NegotiationError("nobody answers")
    with pytest.raises(NegotiationError):
        acquire(nodes, 0.05)


def test_a_child_gives_back_the_sockets_of_its_parent(make_links):
    dialed = threading.Event()
    with ScriptedServer(idle) as one, ScriptedServer(deaf_after(dialed)) as two:
        nodes = make_links(one.address, two.address)
        acquire(nodes)
        assert dialed.wait(WAIT)
        pools = [node.pool for node in nodes._nodes.values()]
        conns = [conn for pool in pools for conn in pool.connections()]
        conns += [conn for pool in pools for conn in pool.dialing]
        abandoned = []
        for conn in conns:
            conn.abandon = lambda conn=conn: abandoned.append(conn)
        nodes.abandon()
        assert set(abandoned) == set(conns) and len(conns) == 2
        nodes.close(Deadline(WAIT))
