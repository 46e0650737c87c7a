"""Calls from finalizers and signal handlers, in the middle of other calls of the same thread."""

import gc
import signal
import sys

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient.errors import ReentrantCallError
from tests.faults.dialogues import FULL
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 20_000 if FULL else 1000


@pytest.fixture
def eager_collector():
    """The garbage collector runs after every few objects, in any thread."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(7, 2, 2)
    yield
    gc.set_threshold(*before)
    gc.collect()


class Handle:
    """A job that holds a message and answers it when it is garbage collected."""

    def __init__(self, message):
        self.message = message
        self.itself = self  # only the garbage collector finds it

    def __del__(self):
        if self.message.attempts == 1 and int(self.message.body) % 3 == 0:
            self.message.requeue()
        else:
            self.message.finish()


def test_finalizers_answer_messages_wherever_the_collector_runs_them(
    server, eager_collector, monkeypatch
):
    """The reader's and the workers' threads included; every message is finished."""
    failures = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: failures.append(args.exc_value)
                        if "Handle.__del__" in f"{args.object} {args.err_msg}" else None)

    def handle(message):
        message.enable_async()
        Handle(message)

    with Consumer(
        "events", "c", handle, nsqd_tcp_addresses=[server.tcp_address], max_in_flight=50,
        workers=2, config=Config(default_requeue_delay=0, max_attempts=0, max_backoff_duration=0),
    ) as consumer:
        server.post("/mpub", b"\n".join(b"%d" % n for n in range(COUNT)), topic="events")

        def is_done():
            [object() for _ in range(100)]
            return consumer.stats().total.finished == COUNT

        wait_until(is_done, 120)
        assert consumer.stats().total.requeued == len(range(0, COUNT, 3))
    assert failures == []


def test_a_finalizer_that_publishes_in_mid_publish_gets_through(
    server, eager_collector, monkeypatch
):
    """The finalizer never waits for its own thread. The interrupted publishes are stored."""
    published, errors = [], []  # one finalizer may run in the middle of another
    monkeypatch.setattr(sys, "unraisablehook", lambda args: errors.append(type(args.exc_value))
                        if "Audit.__del__" in f"{args.object} {args.err_msg}" else None)

    class Audit:
        def __init__(self):
            self.itself = self

        def __del__(self):
            producer.publish_async("audit", b"x")
            published.append(None)

    def is_collected():
        gc.collect()  # does nothing while another thread collects
        return len(published) + len(errors) == COUNT // 2 * 2

    with Producer([server.tcp_address]) as producer:
        for _ in range(COUNT // 2):
            Audit()
            producer.publish("events", b"x", timeout=20)
            producer.publish_async("events", b"x")
            Audit()
            producer.stats()
        assert producer.flush(20)
        wait_until(is_collected)
        assert producer.flush(20)
    assert published and errors == []
    wait_until(lambda: server.stats("audit")["message_count"] == len(published))
    wait_until(lambda: server.stats("events")["message_count"] == COUNT // 2 * 2)


@pytest.mark.parametrize("way", ["publish", "publish_async"])
def test_a_signal_handler_that_publishes_gets_through_or_a_typed_error(server, way):
    """The handler never waits for the thread that it interrupts. publish_async() succeeds."""
    outcomes, running = [], []  # a call appends in one step, even if another signal comes

    def on_alarm(signum, frame):
        if len(running) > 3:  # on a busy machine a publish may take longer than the interval
            return
        running.append(None)
        try:
            getattr(producer, way)("audit", b"x")
        except ReentrantCallError:
            outcomes.append("refused")
        else:
            outcomes.append("published")
        finally:
            running.pop()

    former = signal.signal(signal.SIGALRM, on_alarm)
    with Producer([server.tcp_address]) as producer:
        producer.publish("events", b"x")
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
        try:
            for _ in range(COUNT):
                producer.publish("events", b"x", timeout=20)
                producer.publish_async("events", b"x")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
        assert producer.flush(20)
    published = outcomes.count("published")
    assert published > 10
    if way == "publish_async":
        assert "refused" not in outcomes
        wait_until(lambda: server.stats("audit")["message_count"] == published)
    wait_until(lambda: server.stats("events")["message_count"] == 2 * COUNT + 1)
