"""The stop procedure with parts that do not behave: it goes on, and reports."""

import threading
import time
from types import SimpleNamespace

import pytest

from nsqclient import Consumer
from nsqclient.consumer.shutdown import Shutdown
from nsqclient.consumer.in_flight import InFlightTable
from nsqclient.runtime.timer import Timer
from nsqclient.runtime.workers import WorkerPool
from tests.support.consumer_context import make_context
from tests.support.servers.scripted import CLOSE_WAIT, ScriptedServer, message
from tests.support.waiting import wait_until


class FakeConnection:
    def __init__(self, log, behaviour):
        self._log, self.behaviour = log, behaviour

    def drain(self, timeout):
        assert 0 <= timeout <= 0.5
        self._log.append("drain")

    def close(self):
        self._log.append("close")

    def join(self, deadline):
        if self.behaviour == "stuck":
            deadline.wait_until(lambda: False)
        return self.behaviour != "stuck"


class FakeSubscription:
    address = "nsqd:4150"
    was_drained = is_lost = False

    def __init__(self, log, behaviour):
        self._log = log
        self.in_flight = InFlightTable()
        self.counters = self.in_flight.counters
        self.conn = FakeConnection(log, behaviour)

    def flush(self, *, waits):
        assert not waits
        self._log.append("FIN")

    def post_cls(self):
        self._log.append("CLS")
        self.was_drained = self.conn.behaviour != "lost"
        return self.was_drained


class World:
    def __init__(self, behaviour="good", batch=None):
        self.log = []
        self.sub = FakeSubscription(self.log, behaviour)
        connections = SimpleNamespace(
            stop=lambda: [self.sub], subscriptions=lambda: [self.sub],
            dials=SimpleNamespace(join=lambda deadline: []),
        )
        flow = SimpleNamespace(stop=lambda: self.log.append("no RDY"))
        processor = SimpleNamespace(
            running={},
            workers=WorkerPool("nsq-worker", 0, print), requeue_queued=lambda: 0,
            run_on_worker=lambda task: task(),
        )
        self.background = WorkerPool("nsq-background", 1, lambda task: task())
        self.background.start()
        self.procedure = Shutdown(
            make_context(timer=Timer()), connections, flow, processor, self.background, batch)

    def stop(self, timeout=5.0):
        began = time.monotonic()
        report = self.procedure.stop(timeout, wait=True)
        assert time.monotonic() - began < timeout + 1.5
        return report


def test_a_stop_takes_its_steps_in_order():
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


def test_a_reader_that_does_not_end_is_named():
    """Only this one, although it uses up the time. Nothing is lost by it: the report is true."""
    report = World("stuck").stop()
    assert report and report.threads == ("nsq-reader-nsqd:4150",)


@pytest.mark.parametrize("step", ["flush", "requeue_pending"])
def test_a_step_that_fails_does_not_skip_the_end(step, caplog):
    batch = SimpleNamespace(flush=lambda: None, requeue_pending=lambda: None)
    setattr(batch, step, lambda: 1 / 0)
    world = World(batch=batch)
    assert not world.stop().complete
    assert world.log[-1] == "close"
    assert "a step failed" in caplog.text


def test_a_caller_that_does_not_wait_gets_an_incomplete_report():
    """A handler cannot wait for its own end."""
    world = World()
    report = world.procedure.stop(5.0, wait=False)
    assert not report.complete or world.log[-1] == "close"
    assert world.stop().complete


def test_a_message_that_comes_after_cls_is_requeued():
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
        wait_until(lambda: consumer._core.processor.requeues_incoming)
        has_begun.set()
        stopper.join(30)
    assert handled == []


@pytest.mark.parametrize("answers", [True, False])
def test_a_message_whose_connection_is_lost_during_the_stop_is_abandoned(answers):
    began, is_lost = threading.Event(), threading.Event()

    def script(peer):
        peer.subscribe()
        assert peer.line() == b"RDY 1"
        peer.send(message())
        assert peer.line() == b"CLS"

    def handle(message):
        if not answers:
            message.enable_async()
        began.set()
        assert is_lost.wait(20)

    with ScriptedServer(script) as server:
        with Consumer("t", "c", handle, nsqd_tcp_addresses=[server.address],
                      on_disconnect=lambda address: is_lost.set()) as consumer:
            assert began.wait(20)
            report = consumer.stop()
    assert (report.finished, report.abandoned, bool(report)) == (0, 1, False)
