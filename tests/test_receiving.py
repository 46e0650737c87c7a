"""Who receives on a producer's connection: the reader, or the thread that waits for its answer."""

from __future__ import annotations

import contextlib
import threading

import pytest

from nsqclient import Config, Producer, PublishUnknown
from nsqclient.errors import ConnectionLostError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.receiving import Receiver
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import Transport
from tests.support.scripted import BEAT, OK, ScriptedServer, error
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
    """Tell whether the reader of the only connection leaves the receiving to others."""
    (link,) = producer._links.ready
    return link.conn._receiver._is_resting


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
    wait_until(lambda: not producer._links.ready)


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
            with pytest.raises(PublishUnknown, match="silent for 2 s"):
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


def make_receiver(core, dispatch, patience=60.0):
    """A Receiver without threads."""
    return Receiver("nsqd:4150", core, threading.Lock(), lambda: False, dispatch, patience)


def test_nobody_helps_before_the_reader_runs(core):
    """A publish just after the connection was opened leaves its answer to the reader."""
    told = []
    receiver = make_receiver(core, told.extend)
    receiver.help(str, lambda: False, Deadline(WAIT))
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        receiver.run(Wire(OK, b""))
    assert [event.token for event in told] == ["a"]


def test_nobody_helps_after_the_reader_has_ended(core):
    """The socket may be given back, and its number be another one's."""
    receiver = make_receiver(core, lambda events: None)
    wire = Wire(b"")
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        receiver.run(wire)
    wire.received.append(OK)
    receiver.help(str, lambda: False, Deadline(WAIT))
    assert wire.received == [OK]


def test_who_did_not_run_for_long_looks_before_it_calls_nsqd_silent(core, monkeypatch):
    """A process that was stopped for longer than nsqd may be silent reads what has come."""
    told = []
    clock = [1000.0]
    monkeypatch.setattr("nsqclient.receiving.time.monotonic", lambda: clock[0])

    def dispatch(events):
        clock[0] += 100.0 * (len(told) == 0)  # stopped, once, between two reads
        told.extend(events)

    receiver = make_receiver(core, dispatch)
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        receiver.run(Wire(OK, OK, b""))
    assert [event.token for event in told] == ["a", "b"]


def test_an_interrupted_helper_leaves_all_verdicts_to_the_reader(core):
    """Ctrl-C between two answers that came together: no publish of another thread waits on."""
    told = []

    def dispatch(events):
        if interrupts:
            raise interrupts.pop()
        told.extend(event.token for event in events)

    receiver = make_receiver(core, dispatch)
    interrupts = [KeyboardInterrupt()]
    receiver._transport = Wire(OK + OK)
    receiver._turn.release()  # as a reader does that rests
    with pytest.raises(KeyboardInterrupt):
        receiver.help(str, lambda: False, Deadline(WAIT))
    assert receiver._turn.acquire(timeout=WAIT)
    with pytest.raises(ConnectionLostError, match="interrupted"):
        receiver.run(Wire())
    assert told == ["a", "b"]


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
