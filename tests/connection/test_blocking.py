"""A connection that one publish at a time has to itself."""

import contextlib
import gc
import socket
import threading
import time

import pytest

from nsqclient.config import Config
from nsqclient.connection import exchange as system_calls
from nsqclient.connection.blocking import STORED, STORED_FRAME, BlockingConnection
from nsqclient.errors import (
    ConnectionLostError, NegotiationError, RemoteProtocolError, ServerError,
)
from nsqclient.protocol import commands
from nsqclient.protocol.client import expect_ok
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


def exchange(conn, command=PUB, seconds=WAIT):
    """Send a publish; return nsqd's answer, None if it has not come in time."""
    until = time.monotonic() + seconds
    data = None
    if conn.is_plain:
        conn.sent, data = system_calls.exchange(conn.fd, command, 0, seconds)
    if data == STORED_FRAME:
        return STORED
    conn.begin(command, expect_ok)
    return conn.wait(until, data)


def wait(conn, seconds=WAIT):
    """Wait on for the answer to the publish that was sent."""
    return conn.wait(time.monotonic() + seconds)


def test_a_heartbeat_before_the_answer_is_answered_and_is_not_taken_for_it():
    script = answering(BEAT + OK, [BEAT, OK], OK)
    with connected(script) as conn:
        for _ in range(3):
            assert exchange(conn) == STORED
    assert script.nops == 2


def test_an_answer_in_pieces_is_read_to_its_end():
    with connected(answering([OK[:3], OK[3:9], OK[9:]], OK)) as conn:
        assert exchange(conn) == exchange(conn) == STORED
        assert not conn.is_ended


def test_a_refusal_is_returned_and_ends_the_connection():
    with connected(answering(error("E_BAD_MESSAGE too big"))) as conn:
        assert exchange(conn).error.code == "E_BAD_MESSAGE"
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
        refusal = exchange(conn, commands.pub("t", b"x" * 2**24)).error
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
        timer = threading.Timer(0.1, conn.cut, ["too late"])
        timer.start()
        with pytest.raises(ConnectionLostError, match="too late"):
            exchange(conn)
        timer.join()
        assert conn.is_ended
        conn.close()
        conn.cut("once more")  # does no harm


def test_a_publish_without_an_answer_goes_on_and_nothing_is_sent_twice():
    """The caller decides after each wait; here the answer comes in halves between two waits."""
    go_on = threading.Semaphore(0)

    def script(peer):
        peer.identify()
        assert (peer.line(), peer.sized()) == (b"PUB t", b"x")
        for part in OK[:5], OK[5:]:
            assert go_on.acquire(timeout=WAIT)
            peer.send(part)
        assert peer.until_closed() == b""

    with connected(script) as conn:
        assert exchange(conn, seconds=0.01) is None and conn.progress == 0
        go_on.release()
        wait_until(conn.has_unread)
        assert wait(conn, 0.01) is None
        go_on.release()
        assert wait(conn) == STORED and not conn.is_ended


def test_a_large_command_is_written_on_after_a_wait():
    """Progress is visible during the write. A heartbeat is answered after the command."""
    read = threading.Event()

    def script(peer):
        peer.identify()
        assert peer.line() == b"PUB t"
        peer.send(BEAT)
        assert read.wait(WAIT)
        assert len(peer.sized()) == 2**24 and peer.line() == b"NOP"
        peer.send(OK)
        peer.until_closed()

    with connected(script) as conn:
        assert exchange(conn, commands.pub("t", b"x" * 2**24), 0.05) is None
        assert conn.progress > 0
        read.set()
        assert wait(conn) == STORED


def test_an_answer_with_a_heartbeat_ends_the_connection_if_the_nop_cannot_be_sent(monkeypatch):
    with connected(answering(BEAT + OK)) as conn:
        monkeypatch.setattr(conn._transport, "send_some", lambda data: 0)
        assert exchange(conn) == STORED and conn.is_ended


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


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_connection_that_nobody_refers_to_is_closed(is_answered):
    """A thread that is interrupted may lose it at any moment."""
    script = answering(*[OK] * is_answered)
    with ScriptedServer(script) as server:
        conn = BlockingConnection(server.address, Config())
        conn.open(Deadline(WAIT))
        assert exchange(conn, seconds=WAIT * is_answered) == (STORED if is_answered else None)
        gc.disable()
        try:
            del conn
            server.join()
        finally:
            gc.enable()
    assert script.heard == [b"" if is_answered else PUB]


def test_the_default_timeout_of_the_program_changes_nothing():
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.5)
    try:
        with connected(answering(OK)) as conn:
            assert exchange(conn) == STORED
    finally:
        socket.setdefaulttimeout(before)


def test_a_patched_socket_module_is_refused(monkeypatch):
    """What gevent puts in place of it does not block the thread; the error says what to do."""
    patched = type("socket", (socket.socket,), {"__module__": "gevent._socket3"})
    monkeypatch.setattr(socket, "socket", patched)
    with pytest.raises(NegotiationError, match="patched by gevent._socket3"):
        BlockingConnection("127.0.0.1:4150", Config()).open(Deadline(WAIT))
