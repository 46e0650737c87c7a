"""The end: close() called in a signal handler, and interpreter exit."""

import signal
import threading
import time

import pytest

from nsqclient import ClosedError, Producer
from tests.support.processes import STARTS_NO_THREAD_AT_ITS_END, in_child, run_program
from tests.support.servers.ports import free_port


@pytest.mark.skipif(
    STARTS_NO_THREAD_AT_ITS_END, reason="this Python starts no thread while the process ends")
def test_a_script_that_ends_without_close_has_everything_stored(server):
    """What is pending at the end of the process is flushed."""
    done = run_program("publish_and_end", server.tcp_address, "5000")
    assert (done.returncode, done.stderr) == (0, "")
    assert server.stats("events")["depth"] == 5000


def test_a_script_that_cannot_publish_ends_soon_and_says_so():
    """With no nsqd the end waits five seconds, and says what has no result."""
    began = time.monotonic()
    done = run_program("publish_and_end", f"127.0.0.1:{free_port()}", "10")
    assert done.returncode == 0
    assert "no outcome at exit: 10 publishes to events" in done.stderr
    assert 4.5 < time.monotonic() - began < 40


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
