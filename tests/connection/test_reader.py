"""What receives on a connection: the reader, or a worker in its place."""

import contextlib
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from nsqclient import Config
from nsqclient.connection.connection import Connection
from nsqclient.connection.reader import SocketReader
from nsqclient.errors import ConnectionLostError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import CommandFailed
from nsqclient.protocol.frames import encode_message
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import RECV_SIZE, Transport
from tests.support.servers.scripted import BEAT, OK, ScriptedServer, error

WAIT = 10.0


class Counted(Transport):
    """A transport that notes the sizes of its reads."""

    def __init__(self, *args):
        super().__init__(*args)
        self.sizes = []

    def recv(self, size):
        self.sizes.append(size)
        return super().recv(size)


@pytest.fixture
def wire():
    """Both ends of a connection: our transport, and the socket of nsqd."""
    ours, nsqd = socket.socketpair()
    transport = Counted(ours, "nsqd:4150")
    with nsqd:
        yield SimpleNamespace(transport=transport, nsqd=nsqd)
    transport.close()


@pytest.fixture
def core():
    """A producer's dialogue that waits for the answers to three publishes."""
    core = ClientProtocol()
    core.send_identify({})
    core.receive_data(OK)
    core.take_events()
    for name in ("a", "b", "c"):
        core.send_publish(b"", name)
    core.data_to_send()
    return core


def make_reader(core, on_published, timeout=60.0):
    delegate = SimpleNamespace(on_published=lambda conn, token, error: on_published(token))
    conn = SimpleNamespace(address="nsqd:4150")
    return SocketReader(conn, core, threading.Lock(), lambda: False, delegate, timeout)


def test_a_reader_that_did_not_run_for_long_looks_before_it_calls_nsqd_silent(
    core, wire, monkeypatch
):
    """A process that was stopped for longer than nsqd may be silent reads what has come."""
    published = []
    clock = [1000.0]
    monkeypatch.setattr("nsqclient.connection.reader.time.monotonic", lambda: clock[0])

    def on_published(token):
        clock[0] += 100.0  # stopped for a while, between two reads
        published.append(token)
        wire.nsqd.send(OK) if len(published) < 2 else wire.nsqd.close()

    reader = make_reader(core, on_published)
    wire.nsqd.send(OK)
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        reader.run(wire.transport)
    assert published == ["a", "b"]


@pytest.mark.parametrize("method", ["send_publish", "data_to_send"])
def test_ctrl_c_between_a_command_and_its_answer(monkeypatch, method):
    """The connection ends, so a late answer cannot be taken for the answer to another publish."""
    def answer_all(peer):
        peer.identify()
        with contextlib.suppress(EOFError, OSError):
            while True:
                peer.line(), peer.sized()
                peer.send(OK)

    original = getattr(ClientProtocol, method)

    def interrupt(core, *args):
        result = original(core, *args)
        if threading.current_thread() is threading.main_thread() and interrupts:
            core._out.clear()  # what was to be sent is lost, and an answer is awaited
            interrupts.pop()
            raise KeyboardInterrupt
        return result

    interrupts = []
    ended = []
    delegate = SimpleNamespace(on_closed=lambda conn, error, unanswered: ended.append(unanswered))
    with ScriptedServer(answer_all) as server:
        conn = Connection(server.address, Config(), delegate)
        conn.open(Deadline(WAIT))
        conn.start()
        monkeypatch.setattr(ClientProtocol, method, interrupt)
        interrupts.append(1)
        with pytest.raises(KeyboardInterrupt):
            conn.send(lambda core: core.send_publish(b"PUB t\n\0\0\0\1x", "token"))
        assert conn.is_closed and conn.join(Deadline(WAIT))
    assert ended == [["token"]]


def message(body=b"x"):
    return encode_message(1, 1, b"0123456789abcdef", body)


@pytest.fixture
def consuming(wire):
    """A reader that rests, on a subscribed connection; and what its delegate was called with."""
    core = ClientProtocol()
    core.send_identify({})
    core.receive_data(OK)
    core.send_sub("t", "c")
    core.receive_data(OK)
    core.take_events(), core.data_to_send()
    batches = []
    delegate = SimpleNamespace(on_messages=lambda conn, batch: batches.append(batch))
    conn = SimpleNamespace(address="nsqd:4150")
    reader = SocketReader(conn, core, threading.Lock(), lambda: True, delegate, 60.0)
    reader.attach(wire.transport)
    reader.is_paused = True
    reader._receive_lock.release()
    return SimpleNamespace(reader=reader, batches=batches, core=core, wire=wire, is_awake=lambda: (
        not reader._wakeup.locked()))


def test_a_worker_receives_messages_and_leaves_the_reader_resting(consuming):
    """This is what saves the switches of threads."""
    consuming.wire.nsqd.send(message())
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert [len(batch) for batch in consuming.batches] == [1]
    assert not consuming.is_awake() and not consuming.reader._receive_lock.locked()


def test_a_worker_answers_heartbeats_and_waits_on(consuming):
    consuming.wire.nsqd.send(BEAT + message())
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert len(consuming.batches) == 1
    assert consuming.core.data_to_send() == b"NOP\n"


def test_the_reader_is_woken_when_no_message_came(consuming):
    consuming.reader.receive_messages(time.monotonic())
    assert consuming.is_awake() and consuming.batches == []


def test_other_events_are_left_to_the_reader(consuming):
    """Other events may end the connection, or a stop may wait for them."""
    consuming.wire.nsqd.send(message() + error("E_FIN_FAILED late"))
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert len(consuming.batches) == 1
    assert [type(event) for event in consuming.core.events] == [CommandFailed]
    assert consuming.is_awake()


def test_the_end_of_the_stream_is_left_to_the_reader(consuming):
    consuming.wire.nsqd.close()
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert "closed by the peer" in str(consuming.reader._failure) and consuming.is_awake()


@pytest.mark.parametrize("failure", [ZeroDivisionError, SystemExit])
def test_a_delegate_that_fails_ends_the_connection(consuming, failure):
    """As on the reader: messages would be missing."""
    def fail(conn, batch):
        raise failure

    consuming.reader._delegate.on_messages = fail
    consuming.wire.nsqd.send(message())
    with pytest.raises(failure):
        consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert "messages were not taken" in str(consuming.reader._failure) and consuming.is_awake()


def test_a_reader_that_receives_is_asked_to_rest(consuming):
    assert consuming.reader._receive_lock.acquire(blocking=False)
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert consuming.reader._is_requested


def test_a_read_is_large_after_one_that_was_full(consuming):
    """A large buffer costs more than the rest of a small read."""
    transport, nsqd = consuming.wire.transport, consuming.wire.nsqd
    for body in (b"x", b"y" * 50_000):
        nsqd.send(message(body))
        consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert len(consuming.batches) == 2 and transport.sizes == [RECV_SIZE]
    nsqd.send(message())
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert len(consuming.batches) == 3 and transport.sizes == [RECV_SIZE]
