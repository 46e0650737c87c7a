"""The connection that several publishes use at once."""

import contextlib
import threading
import time

import pytest

from nsqclient.config import Config
from nsqclient.errors import ClosedError, ConnectError, ConnectionLostError, ServerError
from nsqclient.producer.outcome import StaleConnection
from nsqclient.producer.pipelined import PipelinedConnection
from nsqclient.producer.pool import Pipeline
from nsqclient.protocol import commands
from nsqclient.runtime.deadline import Deadline
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
            now = time.monotonic()
            answer = self._conn.exchange(commands.pub("t", name), now + 0.01)
            while answer is None:
                if name in self.late:
                    raise LATE
                now = time.monotonic()
                answer = self._conn.wait(now + 0.01)
            self.results[name] = answer.error
        except Exception as exc:
            self.results[name] = exc
        finally:
            self._conn.leave()

    def join(self):
        for thread in self._threads:
            thread.join(WAIT)
        assert not self._conn._waiters
        return self.results


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
            conn.exchange(commands.pub("t", b"d"), time.monotonic() + WAIT)


def test_a_lost_connection_leaves_the_outcome_of_all_unknown():
    """Each gets the error, not StaleConnection: nsqd may have read it."""
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        script.answer(None)
        assert [type(each) for each in publishes.join().values()] == [ConnectionLostError] * 3


def test_the_oldest_publish_that_is_late_ends_the_connection():
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        publishes.late.add(b"a")
        results = publishes.join()
        assert results.pop(b"a") is LATE and conn.is_closed
        assert [type(each) for each in results.values()] == [ConnectionLostError] * 2


def test_a_later_publish_that_is_late_ends_alone():
    """The response to it comes nevertheless, and is nobody else's."""
    script = Script()
    with connected(script) as conn:
        publishes = Publishes(conn, script)
        publishes.start(b"a", b"b", b"c")
        publishes.late.add(b"b")
        wait_until(lambda: publishes.results == {b"b": LATE})
        assert not conn.is_closed
        script.answer(OK, OK, OK)
        assert publishes.join() == {b"a": None, b"b": LATE, b"c": None}


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
        assert found == [conn, conn] and pipeline.take(0.0) is conn and 1 in wanted
        conn.close()
        assert pipeline.take(0.0) is None and pipeline.connections() == []


def test_a_connection_that_is_replaced_is_closed():
    """Otherwise it would count as the one connection, and none would be dialed after the next."""
    pipeline = Pipeline("n:1", Config(), lambda: None)
    with connected(Script(0)) as former, connected(Script(0)) as conn:
        pipeline.add(former)
        pipeline.add(conn)
        assert former.is_closed and pipeline.take(0.0) is conn
        assert pipeline.connections() == [conn]


def test_bytes_that_another_thread_left_are_sent(monkeypatch):
    """send() says that all is sent if another thread is writing, which may stop before the end."""
    with connected(Script(0)) as conn:
        drained = []
        monkeypatch.setattr(conn._conn, "send", lambda queue, waits: True)
        monkeypatch.setattr(conn._conn, "drain", lambda timeout: drained.append(timeout) or True)
        assert conn.exchange(b"PUB", time.monotonic() + 0.01) is None
        assert len(drained) == 1


def test_where_no_reader_can_be_started_nothing_is_left(monkeypatch):
    """The dial fails, and is tried again as any other."""
    script = Script(0)
    with ScriptedServer(script) as server:
        conn = PipelinedConnection(server.address, Config())
        monkeypatch.setattr("nsqclient.runtime.threads.LibraryThread.launch", _refuse)
        with pytest.raises(ConnectError, match="no thread"):
            conn.open(Deadline(WAIT))
        conn.close()
        script.answer(None)
        with pytest.raises(StaleConnection) as raised:
            conn.exchange(commands.pub("t", b"x"), time.monotonic() + WAIT)
        assert isinstance(raised.value.__cause__, ClosedError)


def _refuse(thread):
    raise RuntimeError("can't start new thread")
