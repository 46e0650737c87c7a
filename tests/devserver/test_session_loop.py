"""The thread that serves all clients of a server."""

import contextlib
import logging
import socket
import threading

import pytest

from nsqclient.devserver import Nsqd
from nsqclient.devserver.command_handler import CommandHandler
from nsqclient.devserver.session_loop import SessionLoop
from tests.support.servers.raw_client import ERROR, MESSAGE, RESPONSE, Closed, RawClient
from tests.support.waiting import wait_until

OK = (RESPONSE, b"OK")
PUB = b"PUB t\n\0\0\0\1x"


@pytest.fixture
def auth_server(leak_guard):
    """A server that accepts and does not answer; ``close()`` ends what waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def address_of(server):
    """``host:port`` of a listening socket."""
    return "{}:{}".format(*server.getsockname())


def thread_names():
    """Names of the threads of embedded servers."""
    return [each.name for each in threading.enumerate() if each.name.startswith("nsq-devserver")]


def test_clients_share_one_thread(leak_guard):
    """Thirty clients take no more threads than one."""
    with Nsqd() as nsqd, contextlib.ExitStack() as stack:
        before = len(thread_names())
        clients = [stack.enter_context(RawClient(nsqd.tcp_address)) for _ in range(30)]
        for client in clients:
            assert client.ask(PUB) == OK
        assert len(thread_names()) == before


def test_a_client_that_does_not_read_delays_no_other(leak_guard):
    """The server keeps what the socket does not take, and serves the others."""
    with Nsqd() as nsqd, RawClient(nsqd.tcp_address) as deaf, RawClient(nsqd.tcp_address) as other:
        body = bytes(1024 * 1024)
        for _ in range(20):
            nsqd.publish("big", body)
        deaf.subscribe("big", "c")
        deaf.send(b"RDY 20\n")
        wait_until(lambda: {each.state for each in nsqd.messages("big", "c")} == {"in_flight"})
        for _ in range(100):
            assert other.ask(PUB) == OK
        assert sum(deaf.read_frame()[0] == MESSAGE for _ in range(20)) == 20


def test_auth_delays_no_other_client(auth_server):
    """A client waits for the auth server, in a thread that ends with the answer."""
    with Nsqd(auth_http_addresses=[address_of(auth_server)]) as nsqd, \
            RawClient(nsqd.tcp_address) as waiting, RawClient(nsqd.tcp_address) as other:
        before = len(thread_names())
        waiting.send(b"AUTH\n\0\0\0\1s" + PUB)
        request, _ = auth_server.accept()
        with request:
            assert other.ask(PUB)[1].startswith(b"E_AUTH_FIRST")
            assert len(thread_names()) == before + 1
        assert waiting.read_frame()[1].startswith(b"E_AUTH_FAILED")
        with pytest.raises(Closed):
            waiting.read_frame()
        wait_until(lambda: len(thread_names()) == before)


def test_stop_waits_for_a_client_that_authorizes(auth_server):
    """Its thread ends before stop() returns."""
    with Nsqd(auth_http_addresses=[address_of(auth_server)]) as nsqd, \
            RawClient(nsqd.tcp_address) as client:
        client.send(b"AUTH\n\0\0\0\1s")
        request, _ = auth_server.accept()
        stopping = threading.Thread(target=nsqd.stop)
        stopping.start()
        wait_until(lambda: nsqd.faults.drop_connections() == 0)  # stop() has dropped the client
        assert stopping.is_alive()
        request.close()
        stopping.join(60)
    assert thread_names() == []


def test_stop_in_time_names_a_client_that_authorizes(auth_server, caplog):
    """With a timeout it does not wait longer; the next stop() does."""
    nsqd = Nsqd(auth_http_addresses=[address_of(auth_server)])
    nsqd.start()
    with RawClient(nsqd.tcp_address) as client:
        client.send(b"AUTH\n\0\0\0\1s")
        request, _ = auth_server.accept()
        nsqd.stop(timeout=0.05)
        request.close()
    assert any("did not end in time" in each.getMessage() for each in caplog.records)
    wait_until(lambda: thread_names() == [])


@pytest.mark.parametrize(("error", "level"), [
    (RuntimeError("a fault"), logging.ERROR), (OSError(5, "a fault"), logging.DEBUG)])
def test_a_client_that_fails_ends_alone(leak_guard, monkeypatch, caplog, error, level):
    """Its connection is closed and the error logged; the others are served."""
    caplog.set_level(logging.DEBUG, "nsqclient.devserver")
    handle = CommandHandler.handle

    def fail(self, event, *args):
        if getattr(event, "topic", "") == "bad":
            raise error
        return handle(self, event, *args)

    monkeypatch.setattr(CommandHandler, "handle", fail)
    with Nsqd() as nsqd, RawClient(nsqd.tcp_address) as bad, RawClient(nsqd.tcp_address) as other:
        with pytest.raises(Closed):
            bad.ask(PUB.replace(b" t", b" bad"))
        assert other.ask(PUB) == OK
    assert any(each.levelno == level and "a fault" in (each.getMessage() + str(each.exc_info))
               for each in caplog.records)


def test_a_client_ends_alone_where_no_thread_can_be_started(auth_server, monkeypatch):
    """AUTH needs one; the others are served, and stop() works."""
    with Nsqd(auth_http_addresses=[address_of(auth_server)]) as nsqd, \
            RawClient(nsqd.tcp_address) as bad, RawClient(nsqd.tcp_address) as other:
        assert other.ask(PUB)[0] == ERROR
        with monkeypatch.context() as patch:
            def fail(_thread):
                raise RuntimeError("can't start new thread")

            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(Closed):
                bad.ask(b"AUTH\n\0\0\0\1s")
        with RawClient(nsqd.tcp_address) as later:
            assert later.ask(PUB)[1].startswith(b"E_AUTH_FIRST")


class Due:
    """A session that is due at a given time."""

    def __init__(self, due):
        self.due = due

    def next_due(self):
        """The time."""
        return self.due


def test_due_times_that_come_and_go_do_not_pile_up():
    """One session with many early due times leaves few entries."""
    loop = SessionLoop("test")
    late, early = Due(1e12), Due(1e12)
    loop._schedule(late)
    for number in range(10_000):
        early.due = 1e12 if number % 2 else float(-number)
        loop._schedule(early)
        loop._add_due({})
    assert len(loop._dues) < 100
    ready = {}
    late.due = early.due = 0.0
    loop._schedule(late)
    loop._schedule(early)
    loop._add_due(ready)
    assert ready == {late: False, early: False}


def test_stop_without_start():
    """It does nothing."""
    loop = SessionLoop("test")
    loop.stop()
    loop.stop()
