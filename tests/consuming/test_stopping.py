"""The stop procedure with parts that do not behave: it goes on, and reports."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from nsqclient import Consumer
from nsqclient.consuming.in_flight import InFlight
from nsqclient.consuming.stopping import StopProcedure
from nsqclient.errors import ConnectionLostError
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool
from tests.support.scripted import CLOSE_WAIT, ScriptedServer, message
from tests.support.waiting import wait_until


class FakeConnection:
    """Confirms CLS, or does not."""

    def __init__(self, sub, log, behaviour):
        self._sub, self._log, self._behaviour = sub, log, behaviour

    def post(self, queue):
        self._log.append("CLS")
        if self._behaviour == "lost":
            raise ConnectionLostError("nsqd:4150", "gone")
        if self._behaviour == "good":
            self._sub.procedure.on_drained(self._sub)
        return self._behaviour != "full"

    def drain(self, timeout):
        assert 0 <= timeout <= 0.5
        self._log.append("drain")

    def close(self):
        self._log.append("close")

    def join(self, deadline):
        return self._behaviour != "stuck"


class FakeSubscription:
    """A connection of a consumer, and its last bytes."""

    address = "nsqd:4150"

    def __init__(self, log, behaviour):
        self._log = log
        self.in_flight = InFlight()
        self.counts = self.in_flight.counts
        self.conn = FakeConnection(self, log, behaviour)

    def post_finished(self):
        self._log.append("FIN")

    def flush_rest(self):
        self._log.append("rest")


class World:
    """A procedure with one connection."""

    def __init__(self, behaviour="good"):
        self.log = []
        self.sub = FakeSubscription(self.log, behaviour)
        membership = SimpleNamespace(
            stop=lambda: [self.sub], subscriptions=lambda: [self.sub],
            join_dials=lambda deadline: [],
        )
        flow = SimpleNamespace(stop=lambda: self.log.append("no RDY"))
        handling = SimpleNamespace(
            running={}, wait_for_turns=lambda deadline: None, flush=lambda: None
        )
        self.chores = WorkerPool("nsq-chores", 1, lambda chore: chore())
        self.chores.start()
        self.procedure = self.sub.procedure = StopProcedure(
            membership, flow, handling, WorkerPool("nsq-worker", 0, print), Timer(), self.chores
        )

    def stop(self, timeout=5.0):
        began = time.monotonic()
        report = self.procedure.stop(timeout, wait=True)
        assert time.monotonic() - began < timeout + 1.5
        return report


def test_the_order():
    """No RDY, CLS, the last FINs, then the end of the connection."""
    world = World()
    assert world.stop().complete
    assert world.log == ["no RDY", "CLS", "FIN", "drain", "close"]


def test_a_lost_connection_is_not_waited_for():
    """Where CLS cannot be sent, no CLOSE_WAIT will come."""
    def seconds() -> float:
        world = World("lost")
        began = time.monotonic()
        assert world.stop()
        return time.monotonic() - began

    # Once is enough: a machine may be busy, and a CLOSE_WAIT that is awaited takes a second always.
    assert any(seconds() < 0.9 for _ in range(20))


def test_a_connection_that_takes_nothing_is_left_to_a_chore():
    """The stop waits a second for CLOSE_WAIT, and for nothing else."""
    world = World("full")
    assert world.stop().complete
    assert "rest" in world.log


def test_a_reader_that_does_not_end_is_named():
    """Nothing is lost by it, so the report is true."""
    report = World("stuck").stop()
    assert report and report.threads == ("nsq-reader-nsqd:4150",)


@pytest.mark.parametrize("hook", ["before_workers_end", "after_workers_end"])
def test_a_step_that_fails_does_not_skip_the_end(hook, caplog):
    """Connections are closed and threads end, whatever happens to the last batch."""
    world = World()
    setattr(world.procedure, hook, lambda: 1 / 0)
    assert not world.stop().complete
    assert world.log[-1] == "close"
    assert "a step failed" in caplog.text


def test_later_calls_get_the_same_report():
    """And wait for it, each as long as it was asked to."""
    world = World()
    results = []
    threads = [threading.Thread(target=lambda: results.append(world.stop())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result is results[0] for result in results)
    assert world.log.count("CLS") == 1


def test_who_does_not_wait_gets_an_incomplete_report():
    """A handler cannot wait for its own end."""
    world = World()
    report = world.procedure.stop(5.0, wait=False)
    assert not report.complete or world.log[-1] == "close"
    assert world.stop().complete


def test_a_message_that_comes_after_cls_goes_back():
    """It reaches no handler, and is requeued at once."""
    has_begun = threading.Event()
    handled = []

    def script(peer):
        peer.subscribe()
        assert peer.line() == b"RDY 1"
        assert peer.line() == b"CLS"
        assert has_begun.wait(20)
        peer.send(message(), CLOSE_WAIT)
        assert peer.line() == b"REQ " + b"0" * 16 + b" 0"
        peer.until_closed()

    with ScriptedServer(script) as server:
        consumer = Consumer("t", "c", handled.append, nsqd_tcp_addresses=[server.address]).start()
        wait_until(lambda: [conn.rdy for conn in consumer.stats().connections] == [1])
        stopper = threading.Thread(target=consumer.stop)
        stopper.start()
        wait_until(lambda: consumer._stopping.hands_back)
        has_begun.set()
        stopper.join(30)
    assert handled == []
