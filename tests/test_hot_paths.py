"""How many modules a message passes: a person reads a hot path in one sitting."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import nsqclient
from nsqclient import Consumer, Producer
from nsqclient.http import NsqdHTTP
from tests.support.packages import HAS_INTERPRETER_LOCK
from tests.support.processes import user_environment
from tests.support.waiting import wait_until

PACKAGE = Path(nsqclient.__file__).parent
#: Messages that are watched, after as many that are not.
MESSAGES = 100


@contextmanager
def counted_calls(*threads: str) -> Iterator[Counter[str]]:
    """Count the calls of functions in this thread, and in those that start meanwhile, by file.

    Args:
        threads: how the names of the threads begin that are watched.
    """
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and threading.current_thread().name.startswith(threads):
            calls[frame.f_code.co_filename] += 1

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def modules(calls: Counter[str]) -> list[str]:
    """Return the modules of nsqclient that ran for more than one of ten messages.

    Left out are the lock and the comparison of the process, which are no steps of the way, and the
    system calls, which are compiled or in Python.
    """
    often = [Path(file) for file, count in calls.items() if count > MESSAGES / 10]
    names = [str(file.relative_to(PACKAGE)) for file in often if PACKAGE in file.parents]
    return sorted(set(names) - {
        "connection/exchange.py", "runtime/forking.py", "runtime/lock.py"})


@pytest.fixture
def nsqd() -> Iterator[tuple[str, str]]:
    """TCP and HTTP address of an embedded nsqd in a process of its own."""
    program = (
        "import sys\n"
        "from nsqclient.devserver import Nsqd\n"
        "with Nsqd() as nsqd:\n"
        "    print(nsqd.tcp_address, nsqd.http_address, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**user_environment(), "PYTHONPATH": str(PACKAGE.parent)},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        tcp, http = process.stdout.readline().split()
        yield tcp, http
        process.stdin.close()


@pytest.mark.parametrize("max_in_flight", [1, 100])
def test_a_consumed_message_passes_few_modules(nsqd, max_in_flight):
    tcp, http = nsqd
    handled = []

    def consume() -> None:
        wanted = len(handled) + MESSAGES
        with NsqdHTTP(http) as client:
            client.mpub("t", [b"x"] * MESSAGES)
        wait_until(lambda: consumer.stats().total.finished == wanted)

    consumer = Consumer(
        "t", "c", handled.append, nsqd_tcp_addresses=[tcp], max_in_flight=max_in_flight)
    with counted_calls("nsq-reader", "nsq-worker") as calls, consumer:
        consume()
        calls.clear()
        consume()
        passed = modules(calls.copy())
    assert len(passed) <= 10, "\n".join(passed)


@pytest.mark.skipif(not HAS_INTERPRETER_LOCK, reason="threads lie idle for long under the profiler")
def test_a_publish_passes_few_modules(nsqd):
    tcp, _ = nsqd

    def publish() -> None:
        for _ in range(MESSAGES):
            producer.publish("t", b"x")

    with Producer([tcp]) as producer:
        publish()  # which dials
        with counted_calls(threading.current_thread().name) as calls:
            publish()
    passed = modules(calls)
    assert len(passed) <= 4, "\n".join(passed)
