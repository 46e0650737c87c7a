"""A connection that one publish at a time has to itself."""

import contextlib
import gc
import socket
import threading
import time

import pytest

from nsqclient.config import Config
from nsqclient.connection.blocking import BlockingConnection
from nsqclient.errors import (
    ConnectError, ConnectionLostError, NegotiationError, RemoteProtocolError, ServerError,
)
from nsqclient.protocol import commands
from nsqclient.runtime.deadline import Deadline
from tests.support.servers.scripted import BEAT, OK, ScriptedServer, error, response
from tests.support.waiting import wait_until

WAIT = 20.0
PUB = commands.pub("t", b"x")


def answering(*answers):
    """A script: answers each publish so, then reads until the end."""
    def script(peer):
        peer.identify()
        for answer in answers:
            while peer.line() == b"NOP":
                script.nops += 1
            peer.sized()
            for part in answer if isinstance(answer, list) else [answer]:
                peer.send(part)
        heard.append(peer.until_closed())

    heard = script.heard = []
    script.nops = 0
    return script


@contextlib.contextmanager
def connected(script, **options):
    with ScriptedServer(script) as server:
        conn = BlockingConnection(server.address, Config(**options))
        conn.open(Deadline(WAIT))
        try:
            yield conn
        finally:
            conn.close()


def exchange(conn, command=PUB):
    """Send a publish; return nsqd's error."""
    conn.exchange_under_way = {"until": time.monotonic() + WAIT}
    return conn.exchange(command)


def test_a_heartbeat_before_the_answer_is_answered_and_is_not_taken_for_it():
    """Together with the OK, and alone."""
    script = answering(BEAT + OK, [BEAT, OK], OK)
    with connected(script) as conn:
        for _ in range(3):
            assert exchange(conn) is None
    assert script.nops == 2


def test_an_answer_in_pieces_is_read_to_its_end():
    """And leaves the connection for the next publish."""
    with connected(answering([OK[:3], OK[3:9], OK[9:]], OK)) as conn:
        assert exchange(conn) is None and exchange(conn) is None
        assert not conn.is_ended and not conn.exchange_under_way


def test_a_refusal_is_returned_and_ends_the_connection():
    with connected(answering(error("E_BAD_MESSAGE too big"))) as conn:
        assert exchange(conn).code == "E_BAD_MESSAGE"
        assert conn.is_ended


def test_the_reason_is_read_though_the_command_could_not_be_written():
    """nsqd refuses a large body while it is still sent, and closes."""
    def script(peer):
        peer.identify()
        peer.line(), peer.exactly(4)
        peer.send(error("E_BAD_MESSAGE too big"))
        peer.sock.shutdown(socket.SHUT_WR)
        refused.wait(WAIT)

    refused = threading.Event()
    with connected(script) as conn:
        threading.Timer(0.2, refused.set).start()
        refusal = exchange(conn, commands.pub("t", b"x" * 2**24, 2**24))
        assert isinstance(refusal, ServerError) and refusal.code == "E_BAD_MESSAGE"


@pytest.mark.parametrize("answer", [response(b"\xb0K"), b"\0\0\0\0"])
def test_an_answer_that_is_none_is_an_error(answer):
    with connected(answering(answer)) as conn, pytest.raises(RemoteProtocolError):
        exchange(conn)


def test_the_end_of_the_stream_is_an_error():
    def script(peer):
        peer.identify()
        peer.line(), peer.sized()

    with connected(script) as conn, pytest.raises(ConnectionLostError, match="closed by the peer"):
        exchange(conn)


def test_a_cut_ends_the_call_that_waits():
    with connected(answering()) as conn:
        under_way = conn.exchange_under_way = {"until": 0.0}
        timer = threading.Timer(0.1, conn.cut, [ConnectError("n:1", "too late"), under_way])
        timer.start()
        with pytest.raises(ConnectError, match="too late"):
            conn.exchange(PUB)
        timer.join()
        assert conn.is_cut and conn.is_ended
        conn.close()
        assert conn.cut(ConnectError("n:1", "once more"))  # does no harm


def test_a_cut_that_comes_after_the_answer_does_nothing():
    """The next publish is not hit."""
    with connected(answering(OK, OK)) as conn:
        under_way = conn.exchange_under_way = {"until": 0.0}
        assert conn.exchange(PUB) is None
        assert not conn.cut(ConnectError("n:1", "too late"), under_way)
        assert exchange(conn) is None and not conn.is_ended


def test_an_answer_that_comes_after_the_cut_counts_and_ends_the_connection():
    """The timer has taken the claim, and is about to shut it down."""
    with connected(answering(OK)) as conn:
        conn.exchange_under_way = {}
        assert conn.exchange(PUB) is None
        assert conn.is_ended


def test_a_look_answers_a_heartbeat_and_finds_the_end():
    go_on, is_open = threading.Event(), threading.Event()

    def script(peer):
        peer.identify()
        is_open.wait(WAIT)
        peer.send(BEAT)
        assert peer.line() == b"NOP"
        go_on.wait(WAIT)

    with connected(script) as conn:
        is_open.set()
        wait_until(conn.has_unread)
        assert conn.look() and not conn.has_unread()
        go_on.set()
        wait_until(conn.has_unread)
        assert not conn.look()


def test_a_connection_that_nobody_refers_to_is_closed():
    """A thread that is interrupted may lose it at any moment."""
    script = answering(OK)
    with ScriptedServer(script) as server:
        conn = BlockingConnection(server.address, Config())
        conn.open(Deadline(WAIT))
        assert exchange(conn) is None
        del conn
        gc.collect()
        server.join()
    assert script.heard == [b""]


def test_the_default_timeout_of_the_program_changes_nothing():
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.5)
    try:
        with connected(answering(OK)) as conn:
            assert conn._transport._sock.gettimeout() is None
            assert exchange(conn) is None
    finally:
        socket.setdefaulttimeout(before)


def test_a_patched_socket_module_is_refused(monkeypatch):
    """What gevent puts in place of it does not block the thread; the error says what to do."""
    patched = type("socket", (socket.socket,), {"__module__": "gevent._socket3"})
    monkeypatch.setattr(socket, "socket", patched)
    with pytest.raises(NegotiationError, match="patched by gevent._socket3"):
        BlockingConnection("127.0.0.1:4150", Config()).open(Deadline(WAIT))
