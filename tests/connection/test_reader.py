"""What receives on a producer's connection: the reader, or the thread that publishes."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

from nsqclient import Config, Producer, PublishUnknownError
from nsqclient.connection.reader import SocketReader
from nsqclient.errors import ConnectionLostError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import CommandFailed
from nsqclient.protocol.frames import encode_message
from nsqclient.runtime.transport import RECV_SIZE, Transport
from tests.support.servers.scripted import BEAT, OK, ScriptedServer, error
from tests.support.waiting import wait_until

WAIT = 10.0


def answer(peer, count):
    """Answer so many publishes."""
    for _ in range(count):
        peer.line(), peer.sized()
        peer.send(OK)


def answer_all(peer):
    """Answer publishes until the connection ends: what an nsqd does."""
    peer.identify()
    with contextlib.suppress(EOFError, OSError):
        answer(peer, 10**9)


def is_resting(producer):
    """Return whether the reader of the only connection leaves the receiving to others."""
    (link,) = producer._nodes.ready
    return link.conn._socket_reader._is_paused


def rest(producer):
    """Publish until the reader rests."""
    def publish():
        producer.publish("t", b"x")
        return is_resting(producer)

    wait_until(publish)


@pytest.fixture
def world():
    """A producer, the lines that its server heard, and what ends the answer to "wait"."""
    heard = []
    go_on = threading.Event()

    def talk(peer):
        while True:
            heard.append(peer.line())
            if heard[-1] == b"NOP":
                continue
            peer.sized()
            if heard[-1] == b"PUB beat":
                peer.send(BEAT)
            elif heard[-1] == b"PUB wait":
                go_on.wait(WAIT)
            elif heard[-1] == b"PUB bad":
                peer.send(error("E_BAD_TOPIC bad"))
                return
            peer.send(OK)

    def script(peer):
        peer.identify()
        with contextlib.suppress(EOFError):
            talk(peer)

    with ScriptedServer(script) as server:
        with Producer([server.address], config=Config(heartbeat_interval=30)) as producer:
            yield producer, heard, go_on
            go_on.set()


def test_one_thread_receives_its_own_answers(world):
    """Publishes of one thread, one after the other, do not wake the reader."""
    producer, heard, _ = world
    rest(producer)
    assert heard and set(heard) == {b"PUB t"}


def test_the_reader_comes_back_when_nobody_publishes(world):
    """Soon after the last publish it receives again, so heartbeats are answered."""
    producer, _, _ = world
    rest(producer)
    wait_until(lambda: not is_resting(producer))


def test_a_helper_answers_a_heartbeat(world):
    """A heartbeat between a publish and its OK is answered, and is not taken for the OK."""
    producer, heard, _ = world
    rest(producer)
    producer.publish("beat", b"x")
    wait_until(lambda: heard[-1] == b"NOP")


def test_the_reader_settles_what_a_helper_does_not(world):
    """A Future's callback runs on the reader's thread, though a helper received its answer."""
    producer, heard, go_on = world
    rest(producer)
    helper = threading.Thread(target=producer.publish, args=("wait", b"x"))
    helper.start()
    wait_until(lambda: heard[-1] == b"PUB wait")
    names = []
    future = producer.publish_async("t", b"x")
    future.add_done_callback(lambda _: names.append(threading.current_thread().name))
    go_on.set()
    helper.join(WAIT)
    assert future.result(WAIT) is None
    wait_until(lambda: names)
    assert names[0].startswith("nsq-reader")


def test_a_refusal_that_a_helper_receives(world):
    """The caller hears nsqd's error, and the reader ends the connection."""
    producer, _, _ = world
    rest(producer)
    with pytest.raises(Exception, match="E_BAD_TOPIC"):
        producer.publish("bad", b"x", timeout=WAIT)
    wait_until(lambda: not producer._nodes.ready)


@pytest.mark.parametrize("place", ["wait", "recv"])
def test_an_interrupted_helper_harms_nobody(monkeypatch, place):
    """Ctrl-C while a thread receives: the next publish is stored, perhaps on a new connection."""
    method = getattr(Transport, place)

    def interrupt(*args, **kwargs):
        if threading.current_thread() is threading.main_thread() and interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        return method(*args, **kwargs)

    interrupts = []
    with ScriptedServer(answer_all, *[answer_all] * (place == "recv")) as server:
        with Producer([server.address]) as producer:
            rest(producer)
            monkeypatch.setattr(Transport, place, interrupt)
            interrupts.append(1)
            with pytest.raises(KeyboardInterrupt):
                producer.publish("t", b"x")
            producer.publish("t", b"x", timeout=WAIT)


def test_silence_that_a_helper_meets_ends_the_connection():
    """A publish with a long timeout to a dead nsqd: lost after two heartbeats, as ever."""
    def script(peer):
        peer.identify()
        answer(peer, 1)
        peer.until_closed()

    with ScriptedServer(script) as server:
        config = Config(heartbeat_interval=1.0)
        with Producer([server.address], config=config, retry_unknown=False) as producer:
            producer.publish("t", b"x")
            with pytest.raises(PublishUnknownError, match="silent for 2 s"):
                producer.publish("t", b"x", timeout=60)


class Wire:
    """A transport on which a test says what comes; it fails a test that did not expect to read."""

    def __init__(self, *received):
        self.received = list(received)

    def wait(self, timeout, *, for_write=False):
        assert timeout is None or timeout >= 0
        return bool(self.received)

    def recv(self, size):
        return self.received.pop(0) if self.received else None


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
    """A SocketReader without threads."""
    delegate = SimpleNamespace(on_published=lambda conn, token, error: on_published(token))
    conn = SimpleNamespace(address="nsqd:4150")
    return SocketReader(conn, core, threading.Lock(), lambda: False, delegate, timeout)


def test_nobody_helps_before_the_reader_runs(core):
    """A publish just after the connection was opened leaves its answer to the reader."""
    published = []
    reader = make_reader(core, published.append)
    reader.receive_until(str, lambda: False, time.monotonic() + WAIT)
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        reader.run(Wire(OK, b""))
    assert published == ["a"]


def test_nobody_helps_after_the_reader_has_ended(core):
    """The socket may be given back, and its number be another one's."""
    reader = make_reader(core, lambda token: None)
    wire = Wire(b"")
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        reader.run(wire)
    wire.received.append(OK)
    reader.receive_until(str, lambda: False, time.monotonic() + WAIT)
    assert wire.received == [OK]


def test_a_reader_that_did_not_run_for_long_looks_before_it_calls_nsqd_silent(core, monkeypatch):
    """A process that was stopped for longer than nsqd may be silent reads what has come."""
    published = []
    clock = [1000.0]
    monkeypatch.setattr("nsqclient.connection.reader.time.monotonic", lambda: clock[0])

    def on_published(token):
        clock[0] += 100.0 * (not published)  # stopped, once, between two reads
        published.append(token)

    reader = make_reader(core, on_published)
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        reader.run(Wire(OK, OK, b""))
    assert published == ["a", "b"]


def test_a_helper_keeps_its_deadline_though_bytes_come_all_the_time(core):
    """Heartbeats without end, say: the reader goes on with them."""
    reader = make_reader(core, lambda token: None)
    reader._transport = Wire(*[BEAT] * 1000)
    reader._receive_lock.release()  # as a reader does that rests
    reader.receive_until(str, lambda: False, time.monotonic())
    assert len(reader._transport.received) > 900
    assert reader._receive_lock.acquire(blocking=False)


def test_an_interrupted_helper_leaves_all_answers_to_the_reader(core):
    """Ctrl-C between two answers that came together: no publish of another thread waits on."""
    published = []

    def on_published(token):
        if interrupts:
            raise interrupts.pop()
        published.append(token)

    reader = make_reader(core, on_published)
    interrupts = [KeyboardInterrupt()]
    reader._transport = Wire(OK + OK)
    reader._receive_lock.release()  # as a reader does that rests
    with pytest.raises(KeyboardInterrupt):
        reader.receive_until(str, lambda: False, time.monotonic() + WAIT)
    assert reader._receive_lock.acquire(timeout=WAIT)
    with pytest.raises(ConnectionLostError, match="interrupted"):
        reader.run(Wire())
    assert published == ["a", "b"]


@pytest.mark.parametrize("method", ["send_publish", "data_to_send"])
def test_ctrl_c_between_a_command_and_its_answer(monkeypatch, method):
    """It ends the connection: no later answer is taken for that of another publish."""
    original = getattr(ClientProtocol, method)

    def interrupt(core, *args):
        result = original(core, *args)
        if threading.current_thread() is threading.main_thread() and interrupts:
            core._out.clear()  # what was to be sent is lost, and an answer is awaited
            interrupts.pop()
            raise KeyboardInterrupt
        return result

    interrupts = []
    with ScriptedServer(answer_all, answer_all) as server:
        with Producer([server.address]) as producer:
            producer.publish("t", b"x", timeout=WAIT)
            monkeypatch.setattr(ClientProtocol, method, interrupt)
            interrupts.append(1)
            with pytest.raises(KeyboardInterrupt):
                producer.publish("t", b"x")
            producer.publish("t", b"x", timeout=WAIT)


# -- a worker that receives the next message of an ordered partition


def message(body=b"x"):
    """The frame of a message."""
    return encode_message(1, 1, b"0123456789abcdef", body)


@pytest.fixture
def consuming():
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
    reader._is_paused = True
    reader._receive_lock.release()
    return SimpleNamespace(reader=reader, batches=batches, core=core, is_awake=lambda: (
        not reader._wakeup.locked()))


def test_a_worker_receives_messages_and_leaves_the_reader_resting(consuming):
    """This is what saves the switches of threads."""
    consuming.reader._transport = Wire(message())
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert [len(batch) for batch in consuming.batches] == [1]
    assert not consuming.is_awake() and not consuming.reader._receive_lock.locked()


def test_a_worker_answers_heartbeats_and_waits_on(consuming):
    """The thread that receives writes the NOP."""
    consuming.reader._transport = Wire(BEAT, message())
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert len(consuming.batches) == 1
    assert consuming.core.data_to_send() == b"NOP\n"


def test_the_reader_is_woken_when_no_message_came(consuming):
    """From then on it receives."""
    consuming.reader._transport = Wire()
    consuming.reader.receive_messages(time.monotonic())
    assert consuming.is_awake() and consuming.batches == []


def test_other_events_are_left_to_the_reader(consuming):
    """They may end the connection, or a stop may wait for them."""
    consuming.reader._transport = Wire(message() + error("E_FIN_FAILED late"))
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert len(consuming.batches) == 1
    assert [type(event) for event in consuming.reader.events] == [CommandFailed]
    assert consuming.is_awake()


def test_the_end_of_the_stream_is_left_to_the_reader(consuming):
    """It ends the connection."""
    consuming.reader._transport = Wire(b"")
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert "closed by the peer" in str(consuming.reader._failure) and consuming.is_awake()


def test_a_delegate_that_fails_ends_the_connection(consuming):
    """As on the reader: messages would be missing."""
    def fail(conn, batch):
        raise ZeroDivisionError

    consuming.reader._delegate.on_messages = fail
    consuming.reader._transport = Wire(message())
    with pytest.raises(ZeroDivisionError):
        consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert "messages were not taken" in str(consuming.reader._failure) and consuming.is_awake()


def test_a_reader_that_receives_is_asked_to_rest(consuming):
    """The worker does not wait for it."""
    assert consuming.reader._receive_lock.acquire(blocking=False)
    consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert consuming.reader._is_requested


def test_reads_are_small_where_few_bytes_come(consuming):
    """A large buffer costs more than the rest of the read; one follows a read that was full."""
    sizes = []

    class Sized(Wire):
        def recv(self, size):
            sizes.append(size)
            return super().recv(size)

    large = message(b"y" * 50_000)
    consuming.reader._may_have_more = False
    consuming.reader._transport = Sized(message(), large[:16384], large[16384:])
    for _ in range(2):
        consuming.reader.receive_messages(time.monotonic() + WAIT)
    assert sizes == [16 * 1024, 16 * 1024, RECV_SIZE] and len(consuming.batches) == 2
