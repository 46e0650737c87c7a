"""The connection that several publishes use at once."""

import contextlib
import threading
import time

import pytest

from nsqclient.config import Config
from nsqclient.connection.blocking import STORED
from nsqclient import Producer
from nsqclient.errors import (
    ClosedError, ConnectError, ConnectionLostError, PublishUnknownError, ServerError,
)
from nsqclient.producer.outcome import StaleConnection
from nsqclient.producer.pipelined import PipelinedConnection
from nsqclient.producer.pool import Pipeline
from nsqclient.protocol import commands
from nsqclient.protocol.client import expect_ok
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dialing import DIRECT
from tests.support.servers.scripted import BEAT, OK, ScriptedServer, error
from tests.support.waiting import wait_until

WAIT = 20.0
LATE = ConnectError("n:1", "late")


class Script:
    """A server that reads publishes, and answers when the test says so."""

    def __init__(self, count=3):
        self._count = count
        self._answers = threading.Semaphore(0)
        self._data = []
        self.bodies = []
        self.heard = []

    def __call__(self, peer):
        peer.identify()
        self.serve(peer)

    def serve(self, peer):
        for _ in range(self._count):
            peer.line()
            self.bodies.append(peer.sized())
        while self._answers.acquire(timeout=WAIT):
            data = self._data.pop(0)
            if data is None:
                return
            peer.send(data)
            if data == BEAT:
                self.heard.append(peer.line())

    def answer(self, *data):
        """Send these; None closes the connection."""
        for one in data:
            self._data.append(one)
            self._answers.release()


class Publishes:
    """Publishes under way on one connection, each in a thread of its own."""

    def __init__(self, conn, script):
        self._conn, self._script = conn, script
        self._threads = []
        self.results = {}
        self.late = set()  # these give up

    def start(self, *names):
        """Publish each name, in this order on the wire."""
        for name in names:
            thread = threading.Thread(target=self._run, args=(name,))
            thread.start()
            self._threads.append(thread)
            wait_until(lambda name=name: name in self._script.bodies)

    def _run(self, name):
        try:
            self._conn.begin(commands.pub("t", name), expect_ok)
            while (answer := self._conn.wait(time.monotonic() + 0.01)) is None:
                if name in self.late:
                    raise LATE
            self.results[name] = answer.error
        except Exception as exc:
            self.results[name] = exc
        finally:
            self._conn.leave()

    def join(self):
        for thread in self._threads:
            thread.join(WAIT)
        assert not self._conn._pending
        return self.results


def idle(peer):
    """A script: answers nothing but IDENTIFY."""
    peer.identify()
    peer.until_closed()


def publish(conn, body, seconds=WAIT):
    """Publish on this thread."""
    try:
        conn.begin(commands.pub("t", body), expect_ok)
        return conn.wait(time.monotonic() + seconds)
    finally:
        conn.leave()


@contextlib.contextmanager
def connected(script):
    with ScriptedServer(script) as server:
        conn = PipelinedConnection(server.address, Config())
        conn.open(Deadline(WAIT))
        try:
            yield conn
        finally:
            conn.close()
            script.answer(None)
            assert conn.join(Deadline(WAIT))


def test_each_publish_gets_its_own_response():
    """All three are sent before the first is answered; a heartbeat among the answers is, too."""
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        script.answer(OK, BEAT, OK)
        wait_until(lambda: len(publishes.results) == 2)
        assert publishes.results == {b"a": None, b"b": None} and script.heard == [b"NOP"]
        script.answer(OK)
        assert publishes.join() == dict.fromkeys([b"a", b"b", b"c"])
        assert conn.used_at > conn.opened_at and not conn.is_closed


def test_a_refusal_ends_the_connection_and_the_others_are_not_read():
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        script.answer(OK, error("E_BAD_TOPIC"), None)
        results = publishes.join()
        assert results[b"a"] is None and isinstance(results[b"b"], ServerError)
        assert isinstance(results[b"c"], StaleConnection)
        assert conn.is_closed
        with pytest.raises(StaleConnection):
            publish(conn, b"d")


def test_a_lost_connection_leaves_the_outcome_of_all_unknown():
    """Each gets the error, not StaleConnection: nsqd may have read it."""
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        script.answer(None)
        assert [type(each) for each in publishes.join().values()] == [ConnectionLostError] * 3


def test_a_publish_that_is_late_ends_alone():
    """The response to it comes nevertheless, and is nobody else's."""
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        publishes.late |= {b"a", b"b"}
        wait_until(lambda: publishes.results == {b"a": LATE, b"b": LATE})
        assert not conn.is_closed
        script.answer(OK, OK, OK)
        assert publishes.join() == {b"a": LATE, b"b": LATE, b"c": None}


def test_a_retired_connection_ends_with_its_last_publish():
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        conn.retire()
        with pytest.raises(StaleConnection):
            publish(conn, b"d")
        script.answer(OK, OK, OK)
        assert publishes.join() == dict.fromkeys([b"a", b"b", b"c"])
        wait_until(lambda: conn.is_ended)


def test_a_connection_that_nobody_uses_ends_when_it_is_retired():
    with connected(Script(0)) as conn:
        conn.retire()
        assert conn.is_closed and conn.is_ended


def test_a_short_timeout_does_not_end_the_publishes_of_others():
    """The oldest publish ends without an answer; nsqd answers later."""
    script = Script(2)
    with ScriptedServer(script) as server, Producer(
            [server.address], retry_unknown=False) as producer:
        short = producer.publish_async("a", b"short", timeout=0.2)
        wait_until(lambda: b"short" in script.bodies)
        other = producer.publish_async("b", b"other", timeout=WAIT)
        wait_until(lambda: b"other" in script.bodies)
        assert isinstance(short.exception(WAIT), PublishUnknownError)
        script.answer(OK, OK)
        assert other.result(WAIT) is None
        script.answer(None)


@pytest.mark.parametrize("retry_unknown", [False, True])
def test_a_publish_that_goes_to_another_nsqd_does_not_end_the_others(retry_unknown):
    """The nsqd takes no further publish on this connection, and may still answer."""
    script = Script(2)

    def serve(peer):
        peer.identify()
        peer.line(), peer.sized()
        peer.send(OK)
        script.serve(peer)

    with ScriptedServer(serve) as server, ScriptedServer(idle) as spare, Producer(
            [server.address], retry_unknown=retry_unknown, sticky=True) as producer:
        producer.publish_async("t", b"x").result(WAIT)
        producer._core.nodes.set_addresses({DIRECT: [server.address, spare.address]})
        wait_until(lambda: len(producer.stats().connected) == 2)
        short = producer.publish_async("a", b"short", timeout=0.4)
        wait_until(lambda: b"short" in script.bodies)
        other = producer.publish_async("b", b"other", timeout=WAIT)
        wait_until(lambda: b"other" in script.bodies)
        assert isinstance(short.exception(WAIT), PublishUnknownError)
        script.answer(OK, OK)
        assert other.result(WAIT) is None
        script.answer(None)


def test_all_that_wait_for_the_connection_share_it():
    wanted = []
    script = Script(0)
    pipeline = Pipeline("n:1", Config(), lambda: wanted.append(pipeline.missing()))
    found = []
    with connected(script) as conn:
        threads = [
            threading.Thread(target=lambda: found.append(
                pipeline.wait(time.monotonic() + WAIT, lambda: False)))
            for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(wanted) == 2)
        pipeline.add(conn)
        for thread in threads:
            thread.join(WAIT)
        assert found == [conn, conn] and pipeline.take(time.monotonic()) is conn and 1 in wanted
        conn.close()
        assert pipeline.take(time.monotonic() + 1) is None
        assert pipeline.connections() == []


def test_a_connection_that_is_replaced_is_closed():
    """Otherwise it would count as the one connection, and none would be dialed after the next."""
    pipeline = Pipeline("n:1", Config(), lambda: None)
    with connected(Script(0)) as former, connected(Script(0)) as conn:
        pipeline.add(former)
        pipeline.add(conn)
        assert former.is_closed and pipeline.take(time.monotonic()) is conn
        assert pipeline.connections() == [conn]


def test_bytes_that_another_thread_left_are_sent(monkeypatch):
    """send() returns while another thread is writing, which may stop before the end."""
    with connected(Script(0)) as conn:
        drained = []
        monkeypatch.setattr(conn, "send", lambda queue, waits: True)
        monkeypatch.setattr(conn, "drain", lambda timeout: drained.append(timeout) or True)
        assert publish(conn, b"x", 0.01) is None
        assert len(drained) == 2


def test_nothing_is_queued_behind_bytes_that_nsqd_does_not_take():
    """Publishes that have ended without an answer would fill the memory."""
    go_on = threading.Event()

    def script(peer):
        peer.identify()
        assert go_on.wait(WAIT)
        peer.line()
        assert len(peer.sized()) == 2**24
        peer.line()
        assert peer.sized() == b"next"
        peer.send(OK, OK)
        peer.until_closed()

    with ScriptedServer(script) as server:
        conn = PipelinedConnection(server.address, Config())
        conn.open(Deadline(WAIT))
        assert publish(conn, b"x" * 2**24, 0.01) is None
        conn.begin(commands.pub("t", b"next"), expect_ok)
        assert conn.wait(time.monotonic() + 0.01) is None
        assert not conn.has_begun and not conn.is_closed
        go_on.set()
        assert conn.wait(time.monotonic() + WAIT) == STORED and conn.has_begun
        conn.close()
        assert conn.join(Deadline(WAIT))


def test_where_no_reader_can_be_started_nothing_is_left(monkeypatch):
    script = Script(0)
    with ScriptedServer(script) as server:
        conn = PipelinedConnection(server.address, Config())
        monkeypatch.setattr("nsqclient.runtime.threads.LibraryThread.launch", _refuse)
        with pytest.raises(ConnectError, match="cannot start a thread"):
            conn.open(Deadline(WAIT))
        conn.close()
        script.answer(None)
        with pytest.raises(StaleConnection) as raised:
            publish(conn, b"x")
        assert isinstance(raised.value.__cause__, ClosedError)


def _refuse(thread):
    raise RuntimeError("can't start new thread")
