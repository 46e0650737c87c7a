"""The end: close() raced by other threads or called in a signal handler, and interpreter exit."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

from nsqclient import ClosedError, Consumer, Producer, PublishError
from tests.support.processes import STARTS_NO_THREAD_AT_ITS_END, in_child, run_program
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until
from tests.support.servers.scripted import ScriptedServer


@pytest.mark.skipif(
    STARTS_NO_THREAD_AT_ITS_END, reason="this Python starts no thread while the process ends")
def test_a_script_that_ends_without_close_has_everything_stored(server):
    """What is pending at the end of the process is flushed."""
    done = run_program("publish_and_end", server.tcp_address, "5000")
    assert (done.returncode, done.stderr) == (0, "")
    assert server.stats("events")["depth"] == 5000


def test_where_no_thread_can_be_started_start_raises_what_python_says(monkeypatch, server):
    """And once there are threads, the same consumer starts, and stops."""
    def refuse(self):
        raise RuntimeError("can't start new thread")

    received = threading.Event()
    consumer = Consumer("events", "c", lambda message: received.set(),
                        nsqd_tcp_addresses=[server.tcp_address])
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            consumer.start()
    with consumer, Producer([server.tcp_address]) as producer:
        producer.publish("events", b"x")
        assert received.wait(20)


def test_a_script_that_cannot_publish_ends_soon_and_says_so():
    """With no nsqd the end waits five seconds, and says what has no result."""
    began = time.monotonic()
    done = run_program("publish_and_end", f"127.0.0.1:{free_port()}", "10")
    assert done.returncode == 0
    assert "no outcome at exit: 10 publishes to events" in done.stderr
    assert 4.5 < time.monotonic() - began < 40


@pytest.mark.parametrize("seed", [1, 2])
def test_eight_threads_may_close_at_once(server, seed):
    """12 rounds: every call ends with an outcome or ClosedError, no thread is left."""
    done = run_program("close_races", server.tcp_address, "12", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes["closed"] >= 12 * 6 and outcomes["stored"]
    assert set(outcomes) <= {
        "stored", "returned", "closed", "PublishUnknownError", "PublishNotSentError"
    }


def test_close_ends_in_time_while_nsqd_is_away():
    """The same without any nsqd: no call hangs."""
    done = run_program("close_races", f"127.0.0.1:{free_port()}", "1", "3")
    assert done.returncode == 0, done.stdout + done.stderr


def test_close_works_in_a_signal_handler(server):
    """A handler that interrupts publish_async anywhere may close: it returns in time."""
    def child():
        closed = []
        producer = Producer([server.tcp_address])

        def close(signum, frame):
            began = time.monotonic()
            closed.append(producer.close(0.5))
            closed.append(time.monotonic() - began)

        signal.signal(signal.SIGUSR1, close)
        producer.publish("events", b"x")
        # Sent by a thread, so that it comes at any moment of the loop.
        threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1]).start()
        try:
            while True:
                producer.publish_async("events", b"x")
        except ClosedError:
            pass
        assert closed[1] < 3

    for _ in range(3):
        assert in_child(child) == 0


def test_close_works_in_a_signal_handler_that_interrupts_a_lock(server):
    """Even where the interrupted thread holds the lock that close() needs."""
    def child():
        producer = Producer([server.tcp_address])
        producer.publish_async("events", b"x").result(5)
        closed = []
        signal.signal(signal.SIGUSR1, lambda signum, frame: closed.append(producer.close(0.3)))
        with producer._async._space.lock:
            signal.raise_signal(signal.SIGUSR1)
        assert closed == [False]
        assert producer.close(5)

    assert in_child(child) == 0


def test_close_ends_the_wait_of_a_publish():
    """A publish that nobody answers ends with close(), and says what is known."""
    def silent(peer):
        peer.identify()
        peer.until_closed()

    with ScriptedServer(silent) as server:
        producer = Producer([server.address])
        errors = []

        def publish():
            try:
                producer.publish("t", b"x", timeout=20)
            except PublishError as exc:
                errors.append(exc)

        thread = threading.Thread(target=publish)
        thread.start()
        began = time.monotonic()
        wait_until(lambda: producer.stats().connected)
        assert producer.close(0.2) is False
        thread.join()
        assert len(errors) == 1 and time.monotonic() - began < 15
