"""The nsqds of a producer: who is dialed when, who is used, and what a lost connection means."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NegotiationError,
    NotNSQError,
    NSQConnectionError,
)
from nsqclient.protocol import commands
from nsqclient.publishing import links as module
from nsqclient.publishing.attempts import Attempt
from nsqclient.publishing.link import JustEnded
from nsqclient.publishing.links import Links
from nsqclient.publishing.verdicts import Verdict
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dial_queue import DIRECT, Standing
from nsqclient.runtime.dial_scheduler import MAX_DIALS
from nsqclient.runtime.threads import LibraryThread
from tests.support.inline_thread import InlineThread
from tests.support.ports import free_port
from tests.support.scripted import OK, ScriptedServer, error, response
from tests.support.silent import silent_addresses
from tests.support.waiting import wait_until

WAIT = 10.0
PUB = commands.pub("t", b"x", 10)


@pytest.fixture
def make_links():
    """Factory of Links that are closed after the test."""
    made = []

    def make(*addresses, sticky=False, **options):
        made.append(Links(addresses, Config(**options), sticky))
        return made[-1]

    yield make
    for links in made:
        assert links.close(Deadline(WAIT)) == []


def answering(*answers):
    """A script: answers each publish so, then waits for the end."""
    def script(peer):
        peer.identify()
        for answer in answers:
            peer.line(), peer.sized()
            peer.send(answer)
        peer.until_closed()

    return script


def idle(peer):
    """A script: takes the connection and does nothing."""
    peer.identify()
    peer.until_closed()


def deaf(peer):
    """A script: takes the connection and does not even answer IDENTIFY."""
    peer.until_closed()


def publish(links):
    """Publish once; return the attempt, settled."""
    attempt = Attempt()
    links.take(Deadline(WAIT)).send(PUB, attempt, Deadline(WAIT))
    assert attempt.wait(WAIT)
    return attempt


def test_nothing_is_dialed_before_it_is_needed(make_links):
    """The first take() dials, in the background."""
    with ScriptedServer(idle) as server:
        links = make_links(server.address)
        assert links.ready == ()
        assert links.take(Deadline(WAIT)).address == server.address
        links.close(Deadline(WAIT))


def test_the_connected_ones_take_turns(make_links):
    """Round robin, or always the same where that is asked for."""
    for sticky, count in ((False, 2), (True, 1)):
        with ScriptedServer(idle) as one, ScriptedServer(idle) as two:
            links = make_links(one.address, two.address, sticky=sticky)
            links.take(Deadline(WAIT))
            wait_until(lambda: len(links.ready) == 2)
            assert len({links.take(Deadline(WAIT)).address for _ in range(10)}) == count
            links.close(Deadline(WAIT))


def test_no_number_of_deaf_addresses_delays_one_that_is_alive(make_links, monkeypatch):
    """They are dialed side by side: the first that answers is used, and close() ends the others."""
    monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT", 6 * WAIT)
    with silent_addresses(MAX_DIALS - 1, accepts=True) as deaf, ScriptedServer(idle) as server:
        links = make_links(*deaf, server.address)
        assert links.take(Deadline(WAIT)).address == server.address
        assert [link.failures for link in links._links.values()] == [0] * MAX_DIALS
        assert links.close(Deadline(WAIT)) == []


def test_close_ends_a_dial(make_links):
    """A dial of an address that does not answer ends with close(), not seconds later."""
    with ScriptedServer(deaf) as server:
        links = make_links(server.address)
        with pytest.raises(ConnectError, match="in time"):
            links.take(Deadline(0.1))
        began = time.monotonic()
        assert links.close(Deadline(WAIT)) == []
        assert time.monotonic() - began < 3
        with pytest.raises(ClosedError):
            links.take(Deadline(WAIT))


def test_who_waits_is_told_of_close(make_links):
    """take() does not wait on when the producer is closed."""
    links = make_links(f"127.0.0.1:{free_port()}")
    timer = threading.Timer(0.1, links.close, [Deadline(WAIT)])
    timer.start()
    with pytest.raises(ClosedError):
        links.take(Deadline(WAIT))
    timer.join()


@pytest.mark.parametrize("make_thread", [LibraryThread, InlineThread])
def test_a_reason_that_time_does_not_heal_is_told_at_once(make_links, make_thread):
    """What is no nsqd today is none in a second, also where the dial ends before anybody waits."""
    def http(peer):
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.until_closed()

    with ScriptedServer(http) as server:
        with pytest.raises(NotNSQError):
            links = make_links(server.address)
            links._dials._make_thread = make_thread
            links.take(Deadline(WAIT))


def test_an_unexpected_error_of_a_dial_is_no_end(make_links, monkeypatch, caplog):
    """The dial is logged and counts as failed; the next one is tried."""
    opened = Connection.open
    errors = [RuntimeError("a bug")]

    def fail_once(conn, *arguments):
        if errors:
            raise errors.pop()
        opened(conn, *arguments)

    monkeypatch.setattr(Connection, "open", fail_once)
    with ScriptedServer(idle) as server:
        links = make_links(server.address)
        assert links.take(Deadline(WAIT)).address == server.address
        links.close(Deadline(WAIT))
    assert "a bug" in caplog.text


@pytest.mark.parametrize(("role", "dials"), [("nsq-dialer", 1), ("nsq-reader", 2)])
def test_a_thread_that_cannot_start_is_told_in_time(make_links, no_thread, role, dials):
    """Whoever waits hears why at the deadline; when there are threads again, all is well."""
    with ScriptedServer(*[idle] * dials) as server:
        links = make_links(server.address)
        with no_thread(role), pytest.raises(NSQConnectionError, match="no thread"):
            links.take(Deadline(0.3))
        assert links.take(Deadline(WAIT)).address == server.address
        links.close(Deadline(WAIT))


def test_verdicts_reach_their_attempts(make_links):
    """nsqd's OK and nsqd's errors settle the publish they answer."""
    with ScriptedServer(answering(OK, error("E_BAD_TOPIC t"))) as server:
        links = make_links(server.address)
        assert publish(links).verdict is Verdict.STORED
        refused = publish(links)
        assert refused.verdict is Verdict.REJECTED and refused.error.code == "E_BAD_TOPIC"


@pytest.mark.parametrize(
    ("last", "verdict"),
    [(error("E_BAD_TOPIC t"), Verdict.NOT_READ), (b"", Verdict.UNKNOWN)],
    ids=["refused", "closed"],
)
def test_publishes_behind_the_end_of_a_connection(make_links, last, verdict):
    """Behind a refusal nothing is read; behind a plain end nobody knows."""
    def script(peer):
        peer.identify()
        for _ in range(2):
            peer.line(), peer.sized()
        peer.send(last)

    with ScriptedServer(script) as server:
        link = make_links(server.address).take(Deadline(WAIT))
        first, second = Attempt(), Attempt()
        for attempt in (first, second):
            link.send(PUB, attempt, Deadline(WAIT))
        assert second.wait(WAIT) and second.verdict is verdict


def test_a_garbled_answer_is_no_verdict(make_links):
    """An answer that is not OK and no error leaves the publish unknown, at once."""
    with ScriptedServer(answering(response(b"\xb0K"))) as server:
        assert publish(make_links(server.address)).verdict is Verdict.UNKNOWN


def test_a_connection_that_ended_takes_nothing(make_links):
    """Sending to it says that nothing was sent, and it is not used again."""
    taken = threading.Event()

    def leave(peer):
        peer.identify()
        taken.wait(WAIT)

    with ScriptedServer(leave, idle) as server:
        links = make_links(server.address)
        link = links.take(Deadline(WAIT))
        conn = link.conn
        taken.set()
        wait_until(lambda: conn.is_closed)
        link.conn = conn  # as a publisher sees it that took it just before
        with pytest.raises(JustEnded):
            link.send(PUB, Attempt(), Deadline(WAIT))
        link.conn = conn
        assert not link.is_alive()
        assert links.take(Deadline(WAIT)).is_alive()
        links.close(Deadline(WAIT))


def test_one_that_takes_connections_and_loses_them_is_not_dialed_in_a_circle(make_links):
    """A connection that ends before it stored anything is a failure: the next dial waits."""
    dials = []

    def leave(peer):
        dials.append(time.monotonic())
        peer.identify()
        peer.line()

    def publish_until(limit):
        while time.monotonic() < limit:
            attempt = Attempt()
            try:
                links.take(Deadline(limit - time.monotonic())).send(PUB, attempt, Deadline(1))
            except ConnectError:
                continue
            attempt.wait(1)

    with ScriptedServer(*[leave] * 3, idle) as server:
        links = make_links(server.address)
        publish_until(time.monotonic() + 2)
        wait_until(lambda: links.ready)
        links.close(Deadline(WAIT))
    assert all(later - earlier > 0.2 for earlier, later in zip(dials, dials[1:]))


def test_one_that_cannot_store_rests(make_links):
    """E_PUB_FAILED: nsqd is up, its disk is full; the others are used meanwhile."""
    with ScriptedServer(answering(error("E_PUB_FAILED disk"))) as full:
        links = make_links(full.address)
        assert publish(links).verdict is Verdict.REJECTED
        wait_until(lambda: links.ready == ())
        (link,) = links._links.values()
        assert link.refusals == 1 and link.rests_until > time.monotonic()


def test_discovered_addresses_come_and_go(make_links):
    """New ones are used; those that are not named and not connected are forgotten."""
    with ScriptedServer(idle) as server:
        links = make_links("127.0.0.1:1")
        links.set_addresses({DIRECT: [server.address]})
        assert links.addresses == [server.address]
        links.take(Deadline(WAIT))
        links.set_addresses({DIRECT: ["127.0.0.1:1"]})
        assert set(links.addresses) == {server.address, "127.0.0.1:1"}
        links.close(Deadline(WAIT))


def test_an_nsqd_that_was_lost_is_dialed_before_new_ones(make_links):
    """One that worked and does not take us now still comes before those that were never tried."""
    taken = threading.Event()

    def leave(peer):
        peer.identify()
        peer.line(), peer.sized()
        peer.send(OK)
        taken.wait(WAIT)

    with ScriptedServer(leave) as server, silent_addresses(50) as silent:
        links = make_links(server.address)
        assert publish(links).verdict is Verdict.STORED
        dials, order = links._dials, {}
        links._dials = SimpleNamespace(
            put=lambda address, sources, standing: order.update({address: standing}),
            set_sources=dials.set_sources,
        )
        links.set_addresses({DIRECT: [*silent, server.address]})
        taken.set()
        wait_until(lambda: not links.ready)
        with links._changed.lock:
            links._want_the_rest(time.monotonic(), hurry=True)
        links._dials = dials
    assert order.pop(server.address) is Standing.LOST
    assert set(order) == set(silent) and set(order.values()) == {Standing.UNTRIED}


def test_what_no_nsqlookupd_names_any_more_is_not_dialed(make_links):
    """It leaves the queue; what is being dialed goes on, and is dropped with the next answer."""
    with silent_addresses(2 * MAX_DIALS, accepts=True) as silent:
        links = make_links(*silent)
        with pytest.raises(ConnectError, match="in time"):
            links.take(Deadline(0.1))
        wait_until(lambda: sum(bool(link.dialed) for link in links._links.values()) == MAX_DIALS)
        links.set_addresses({DIRECT: []})
        assert len(links.addresses) == MAX_DIALS
        assert all(link.dialed for link in links._links.values())
        assert not any(address in links._dials for address in set(silent) - set(links.addresses))


def test_without_any_address_the_reason_is_that_of_the_lookup(make_links):
    """No nsqd is known: take() waits, then says why."""
    links = make_links()
    with pytest.raises(ConnectError, match="no nsqd"):
        links.take(Deadline(0.05))
    links.discovery_error = NegotiationError("nobody answers")
    with pytest.raises(NegotiationError):
        links.take(Deadline(0.05))


def test_a_child_gives_back_the_sockets_of_its_parent(make_links):
    """abandon() closes what is open and what is being opened, without a word to nsqd."""
    with ScriptedServer(idle) as one, ScriptedServer(deaf) as two:
        links = make_links(one.address, two.address)
        link = links.take(Deadline(WAIT))
        wait_until(lambda: any(other.dialed for other in links._links.values()))
        abandoned = []
        conns = [link.conn, *[o.dialed for o in links._links.values() if o.dialed is not None]]
        for conn in conns:
            conn.abandon = lambda conn=conn: abandoned.append(conn)
        links.abandon()
        assert set(abandoned) == set(conns) and len(conns) == 2
        links.close(Deadline(WAIT))


def test_lost_connections_are_joined(make_links):
    """No reader thread of an earlier connection is left after close()."""
    with ScriptedServer(answering(OK), answering(OK)) as server:
        links = make_links(server.address)
        publish(links)
        links.ready[0].conn.close("test")
        wait_until(lambda: links.ready == ())
        assert isinstance(links._reason(), ConnectionLostError)
        publish(links)
        assert links.close(Deadline(WAIT)) == []
