"""One producer for each process, made late, closed with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nsqclient import Producer
from nsqclient.contrib.process_producer import ProcessProducer
from nsqclient.devserver import Nsqd
from tests.support.processes import CHECKOUT, LIMIT, in_child, start_threads


@pytest.fixture
def holder(nsqd):
    """A holder of a producer for the running nsqd."""
    holder = ProcessProducer(lambda: Producer([nsqd.tcp_address]))
    yield holder
    holder.close()


def test_all_threads_get_the_same_producer(holder):
    """However many ask first, one is made."""
    seen = []
    for thread in start_threads(8, lambda: seen.append(holder.get())):
        thread.join()
    assert len(seen) == 8 and len(set(map(id, seen))) == 1


def test_after_close_a_new_one_is_made(holder, nsqd):
    """A closed producer is not handed out."""
    first = holder.get()
    assert holder.close()
    holder.get().publish("events", b"x")
    assert holder.get() is not first and len(nsqd.messages("events")) == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_publishes_by_itself(holder, nsqd):
    """Even when another thread was making the producer at the moment of the fork."""
    with holder._lock:
        assert in_child(lambda: holder.get().publish("events", b"child")) == 0
    holder.get().publish("events", b"parent")
    assert in_child(lambda: holder.get().publish("events", b"child")) == 0
    assert len(nsqd.messages("events")) == 3


def test_the_end_of_the_process_sends_what_is_pending():
    """What was published without waiting is stored when the process has ended."""
    program = (
        "import sys\n"
        "from nsqclient import Producer\n"
        "from nsqclient.contrib.process_producer import ProcessProducer\n"
        "holder = ProcessProducer(lambda: Producer([sys.argv[1]], linger=0.2))\n"
        "[holder.get().publish_async('events', b'x') for _ in range(100)]\n"
    )
    with Nsqd() as nsqd:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program, nsqd.tcp_address], cwd=CHECKOUT,
            capture_output=True, text=True, timeout=LIMIT)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(nsqd.messages("events")) == 100
