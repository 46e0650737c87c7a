"""Connections to one chosen nsqd: the leader of a partition."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from nsqclient import Config
from nsqclient.connection.connection import Connection
from nsqclient.devserver import Nsqd
from nsqclient.errors import ClosedError, ConnectError, NSQError
from nsqclient.producer.outcome import BusyConnection, PublishOutcome
from nsqclient.partitioned import producer_nodes as module
from nsqclient.partitioned.producer_nodes import PartitionNodePool
from nsqclient.protocol import commands
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dial_scheduler import MAX_DIALS
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

WAIT = 30.0
LOOKUPD = "127.0.0.1:1"


def connect(nodes, address, name=""):
    """Return the connection for a publish to a partition, once it is there."""
    asked = set()
    return wait_until(lambda: nodes.try_connect(address, name, asked))


@pytest.fixture
def nodes(leak_guard):
    """A pool that knows no nsqd yet."""
    pool = PartitionNodePool([], Config(), False, [LOOKUPD])
    yield pool
    assert pool.close(Deadline(WAIT)) == []


def test_chosen_nsqd_is_dialed_on_a_thread_of_the_pool(nodes, monkeypatch):
    """The thread that publishes waits, and an exception in it leaves no half of a dial."""
    dialers = []
    real = Connection.open

    def dial(conn, deadline):
        dialers.append(threading.current_thread())
        return real(conn, deadline)

    monkeypatch.setattr(Connection, "open", dial)
    with Nsqd() as server:
        node = connect(nodes, server.tcp_address)
        assert node.conn is not None and nodes.ready == (node,)
        assert connect(nodes, server.tcp_address) is node
        assert len(dialers) == 1 and dialers != [threading.current_thread()]


def test_threads_that_choose_the_same_nsqd_share_one_dial(nodes):
    """All of them get the same connection."""
    found = []
    with Nsqd() as server:
        threads = [
            threading.Thread(
                target=lambda: found.append(connect(nodes, server.tcp_address).conn))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert len(found) == 8 and len(set(found)) == 1


def test_chosen_nsqd_is_dialed_before_others(nodes, monkeypatch):
    """Also where it was queued behind them: a publish waits for this one alone."""
    addresses = [f"127.0.0.1:{port}" for port in range(1, 2 * MAX_DIALS)]
    dialed, may_end = [], threading.Semaphore(0)

    def dial(conn, deadline):
        dialed.append(conn.address)
        may_end.acquire(timeout=WAIT)
        raise ConnectError(conn.address, "refused")

    def wait_for(call, *arguments):
        with contextlib.suppress(NSQError):
            call(*arguments)

    monkeypatch.setattr(Connection, "open", dial)
    nodes.set_addresses({LOOKUPD: addresses})
    threads = [threading.Thread(target=wait_for, args=arguments)
               for arguments in (
                   [nodes.acquire, Deadline(WAIT), nodes.pipelined],
                   [connect, nodes, addresses[-1]])]
    threads[0].start()
    wait_until(lambda: len(dialed) == MAX_DIALS)
    threads[1].start()
    wait_until(lambda: nodes._nodes[addresses[-1]].is_wanted)
    may_end.release()
    wait_until(lambda: len(dialed) > MAX_DIALS)
    assert dialed[MAX_DIALS] == addresses[-1]
    may_end.release(1000)
    assert nodes.close(Deadline(WAIT)) == []
    for thread in threads:
        thread.join(WAIT)


def test_failed_dial_is_the_error_and_the_next_call_dials_again(nodes):
    """The caller decides how long it pauses in between."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with pytest.raises(ConnectError, match="refused"):
        connect(nodes, address)
    with Nsqd(tcp_port=port):
        assert connect(nodes, address).conn is not None


def test_chosen_nsqd_stays_when_lookups_do_not_name_it(nodes, monkeypatch):
    """While a publish waits for its dial, an answer of an nsqlookupd does not drop it."""
    with Nsqd() as server:
        dispatch = nodes._dials.dispatch

        def dispatch_after_an_answer():
            nodes.set_addresses({LOOKUPD: []})
            dispatch()

        monkeypatch.setattr(nodes._dials, "dispatch", dispatch_after_an_answer)
        assert connect(nodes, server.tcp_address).conn is not None


def test_close_during_a_dial_ends_it(nodes, monkeypatch):
    """The publish that waits for it gets a ClosedError."""
    closers = []

    def dial(conn, deadline):
        closers.append(threading.Thread(target=nodes.close, args=[Deadline(WAIT)]))
        closers[0].start()
        wait_until(lambda: conn.is_closed)
        raise ConnectError(conn.address, "closed during the dial")

    monkeypatch.setattr(Connection, "open", dial)
    with pytest.raises(ClosedError):
        connect(nodes, "127.0.0.1:4150")
    closers[0].join(WAIT)
    with pytest.raises(ClosedError):
        connect(nodes, "127.0.0.1:4150")


class Token:
    """Of a publish; keeps the outcome."""

    outcome = None

    def settle(self, outcome, error):
        self.outcome = outcome


def publish(node, name):
    """Publish to a partition; return the token."""
    token = Token()
    node.send_to_partition(commands.pub("t", b"x"), token, time.monotonic() + WAIT, name)
    return token


def is_stored(*tokens):
    return all(token.outcome is PublishOutcome.STORED for token in tokens)


def test_an_nsqd_whose_connection_ended_leaves_no_publish_unanswered(nodes):
    """Its partitions are left out only while it is dialed, or rests after a dial that failed."""
    with Nsqd() as server:
        address = server.tcp_address
        node = connect(nodes, address, "t 0")
        node.has_stored, node.partition_name = True, "t 0"
        server.faults.drop_connections()
        wait_until(lambda: node.conn is None)
        assert nodes.unanswered_names(0.0) == set()
    with pytest.raises(ConnectError):
        connect(nodes, address, "t 0")
    assert nodes.unanswered_names(0.0) == {"t 0"}
    node.retry_at = 0.0
    assert nodes.unanswered_names(0.0) == set()


def test_further_connections_that_nothing_uses_are_closed(nodes):
    """Without another publish, too; the first connection to an nsqd stays."""
    with Nsqd() as server:
        address = server.tcp_address
        first = connect(nodes, address, "t 0")
        server.faults.hold_answers("PUB")
        token = publish(first, "t 0")
        second = connect(nodes, address, "t 1")
        assert second is not first
        server.faults.release_answers()
        wait_until(lambda: is_stored(token))
        nodes.close_idle()
        assert not second.conn.is_closed

        def has_one_left():
            for node in nodes._slots(address):
                node.used_at -= 2 * module._IDLE_TIME
            nodes.close_idle()
            return nodes._slots(address) == [first]

        wait_until(has_one_left)
        assert not first.conn.is_closed


def test_a_connection_with_an_answer_that_was_not_read_yet_stays_open(nodes, monkeypatch):
    """It came while this process was suspended, so nsqd is not silent."""
    with Nsqd() as server:
        node = connect(nodes, server.tcp_address, "t 0")
        server.faults.hold_answers("PUB")
        publish(node, "t 0")
        node.used_at -= 10.0
        monkeypatch.setattr(Connection, "has_unread", True)
        nodes.close_unanswered(3.0)
        assert not node.conn.is_closed and not nodes._suspects
        monkeypatch.setattr(Connection, "has_unread", False)
        conn = node.conn
        nodes.close_unanswered(3.0)
        assert conn.is_closed


def test_partition_has_its_connection_until_the_answer(nodes):
    """Another one is refused, and nothing of it is sent; further publishes of its own are not."""
    with Nsqd() as server:
        node = connect(nodes, server.tcp_address, "t 0")
        server.faults.hold_answers("PUB")
        first, second = publish(node, "t 0"), publish(node, "t 0")
        with pytest.raises(BusyConnection, match="has not answered t 0"):
            publish(node, "t 1")
        assert connect(nodes, server.tcp_address, "t 0") is node
        server.faults.release_answers()
        wait_until(lambda: is_stored(first, second))
        third = publish(node, "t 1")
        wait_until(lambda: is_stored(third))
        assert node.partition_name == "t 1"
        assert [command.name for command in server.commands].count("PUB") == 3


def test_partition_beside_an_unanswered_one_gets_a_connection_of_its_own(nodes):
    """And keeps it, while both are free."""
    with Nsqd() as server:
        first = connect(nodes, server.tcp_address, "t 0")
        server.faults.hold_answers("PUB")
        token = publish(first, "t 0")
        second = connect(nodes, server.tcp_address, "t 1")
        assert second is not first
        other = publish(second, "t 1")
        server.faults.release_answers()
        wait_until(lambda: is_stored(token, other))
        for _ in range(2):
            assert connect(nodes, server.tcp_address, "t 1") is second
            assert connect(nodes, server.tcp_address, "t 0") is first


def test_connection_that_is_to_be_closed_takes_no_publish(nodes, monkeypatch):
    """Nor is it closed while one awaits its answer: its outcome would be unknown."""
    with Nsqd() as server:
        first = connect(nodes, server.tcp_address, "t 0")
        server.faults.hold_answers("PUB")
        token = publish(first, "t 0")
        second = connect(nodes, server.tcp_address, "t 1")
        server.faults.release_answers()
        other = publish(second, "t 1")
        wait_until(lambda: is_stored(token, other))
        server.faults.hold_answers("PUB")
        token = publish(first, "t 0")
        assert not first.retire() and second.retire()
        assert connect(nodes, server.tcp_address, "t 1") not in (first, second)
        with pytest.raises(BusyConnection):
            publish(second, "t 1")
        server.faults.release_answers()
        wait_until(lambda: is_stored(token))
        assert connect(nodes, server.tcp_address, "t 1") is first
        monkeypatch.setattr(module, "_IDLE_TIME", 0.0)
        nodes.close_idle()
        wait_until(lambda: nodes._slots(server.tcp_address) == [first])
