"""The Connection against a scripted server: dialogue, ends, and the rule for writing."""

import socket
import threading
import time

import pytest

from nsqclient import (
    Config, ConnectError, Connection, ConnectionLostError, NotNSQError,
    NSQConnectionError, RemoteProtocolError, ServerError,
)
from nsqclient.protocol import commands
from nsqclient.runtime.deadline import Deadline
from tests.support.faults.silent_addresses import silent_addresses
from tests.support.servers.scripted import BEAT, OK, ScriptedServer, error, response
from tests.support.waiting import wait_until


class Recorder:
    """A delegate that keeps all its calls."""

    def __init__(self):
        self.messages = []
        self.published = []
        self.closed = []
        self.ended = threading.Event()

    def on_messages(self, conn, batch):
        self.messages += batch

    def on_published(self, conn, token, error):
        self.published.append((token, error and error.code))

    def on_closed(self, conn, error, unanswered):
        self.closed.append((error, unanswered))
        self.ended.set()


def connect(server, subscribe=None, config=None, delegate=None):
    """Open a connection to the scripted server and start it."""
    delegate = delegate or Recorder()
    conn = Connection(server.address, config or Config(), delegate)
    conn.open(Deadline(30), subscribe=subscribe)
    conn.start()
    return conn, delegate


def finish(conn, delegate):
    """Close, wait for the end, return how it was reported."""
    conn.close()
    assert conn.join(Deadline(30))
    assert len(delegate.closed) == 1
    return delegate.closed[0]


@pytest.mark.parametrize(("answer", "expected"), [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", NotNSQError),
    (b"\xff\xff\xff\xff", RemoteProtocolError), (b"\x7f\xff\xff\xff", RemoteProtocolError),
    (response(b"not json"), RemoteProtocolError), (error("E_BAD_BODY nope"), ServerError),
    (b"", ConnectError),
])
def test_a_strange_answer_to_identify(answer, expected):
    def script(peer):
        peer.identify(answer)
        if answer:
            peer.until_closed()

    with ScriptedServer(script) as server:
        conn = Connection(server.address, Config(), Recorder())
        with pytest.raises(expected):
            conn.open(Deadline(30))


def test_a_deaf_server_costs_the_deadline_only():
    with ScriptedServer(lambda peer: peer.until_closed()) as server:
        conn = Connection(server.address, Config(), Recorder())
        with pytest.raises(ConnectError, match="no answer within 0.2 s"):
            conn.open(Deadline(0.2))


def test_silence_ends_the_connection():
    def script(peer):
        peer.subscribe()
        peer.until_closed()

    with ScriptedServer(script) as server:
        conn, delegate = connect(
            server, subscribe=("t", "c"), config=Config(read_timeout=1, heartbeat_interval=1)
        )
        assert delegate.ended.wait(30)
        reason, _ = finish(conn, delegate)
    assert "silent for 1 s" in str(reason)


def test_close_while_another_thread_opens():
    reached = threading.Event()

    def script(peer):
        peer.exactly(4)
        reached.set()
        peer.until_closed()

    with ScriptedServer(script) as server:
        conn = Connection(server.address, Config(), Recorder())
        closer = threading.Thread(target=lambda: reached.wait(30) and conn.close())
        closer.start()
        with pytest.raises(ConnectError):
            conn.open(Deadline(20))
        closer.join()


def is_being_dialed(conn):
    """True if the kernel waits for an answer to SYN."""
    sock = conn._dialed
    return sock is not None and sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\2"


@pytest.mark.parametrize("begins", ["before", "during"])
def test_close_ends_a_dial_that_nobody_answers(begins):
    """close() does not wait for dial_timeout, whether TCP connects or not."""
    with silent_addresses(1) as (address,):
        conn = Connection(address, Config(dial_timeout=60), Recorder())
        closer = threading.Thread(
            target=lambda: wait_until(lambda: is_being_dialed(conn)) and conn.close()
        )
        conn.close() if begins == "before" else closer.start()
        began = time.monotonic()
        with pytest.raises(ConnectError):
            conn.open(Deadline(60))
        assert time.monotonic() - began < 30
        if begins == "during":
            closer.join()


def test_close_before_start_calls_the_delegate_once():
    with ScriptedServer(lambda peer: peer.identify() and peer.until_closed()) as server:
        delegate = Recorder()
        conn = Connection(server.address, Config(), delegate)
        conn.open(Deadline(30))
        conn.close()
        conn.start()
        conn.close()
        assert len(delegate.closed) == 1


@pytest.mark.parametrize("turn", range(5))
def test_nobody_hangs_when_the_peer_writes_before_it_reads(turn):
    """Small buffers, a peer that writes all before it reads, senders at the same time.

    Every simpler rule for writing hangs here: the reader waits to write the NOPs, the sender
    waits for the reader, and the peer waits for both.
    """
    beats, publishes, size = 400, 40, 20_000

    def script(peer):
        peer.identify()
        for _ in range(beats):
            peer.send(BEAT * 50)
        nops = oks = 0
        while not nops or oks < publishes:  # one NOP may answer many heartbeats
            if peer.line() == b"NOP":
                nops += 1
            else:
                assert len(peer.sized()) == size
                oks += 1
                peer.send(OK)
        peer.until_closed()

    with ScriptedServer(script, buffer_size=4096) as server:
        config = Config(write_timeout=10)
        conn, delegate = connect(server, config=config)
        command = commands.pub("t", b"x" * size)

        def publish(first):
            for number in range(first, publishes, 4):
                conn.send(lambda core: core.send_publish(command, number))

        threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        wait_until(lambda: len(delegate.published) == publishes, timeout=20)
        finish(conn, delegate)


def test_a_peer_that_stops_reading_costs_the_write_timeout():
    release = threading.Event()

    def script(peer):
        peer.identify()
        release.wait(20)

    with ScriptedServer(script, buffer_size=4096) as server:
        conn, delegate = connect(server, config=Config(write_timeout=0.2))
        command = commands.pub("t", b"x" * 1_000_000)
        with pytest.raises(NSQConnectionError, match="0.2 s"):
            for number in range(50):
                conn.send(lambda core: core.send_publish(command, number))
        assert delegate.ended.wait(30)
        release.set()
        _, unanswered = finish(conn, delegate)
    assert unanswered


def test_what_nsqd_said_is_heard_when_our_write_fails(monkeypatch):
    """An outcome, and the reason of the end, count though the reader cannot answer a heartbeat."""
    heard = threading.Event()

    def script(peer):
        peer.identify()
        for _ in range(3):
            peer.line(), peer.sized()
        heard.wait(30)
        peer.send(BEAT, OK, error("E_BAD_MESSAGE too big"))

    def fail(wait, deadline=None):
        conn._writer._transport.shutdown()
        raise ConnectionLostError(server.address, "reset by the peer")

    with ScriptedServer(script) as server:
        conn, delegate = connect(server)
        for token in range(3):
            conn.send(lambda core: core.send_publish(commands.pub("t", b"x"), token))
        monkeypatch.setattr(conn._writer, "flush", fail)
        heard.set()
        assert delegate.ended.wait(30)
        assert delegate.published == [(0, None), (1, "E_BAD_MESSAGE")]
        (reason, unanswered), = delegate.closed
        assert isinstance(reason, ServerError) and unanswered == [2]
        assert conn.join(Deadline(30))
