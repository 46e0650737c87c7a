"""How many modules a message passes: a person reads a hot path in one sitting."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


class ModuleRecorder:
    """Counts the calls of functions in nsqclient, by module.

    A thread takes its profile function over when it begins: start those of interest inside of
    ``installed()``. What runs inside of ``record()`` is counted.

    Args:
        threads: how the names of the threads begin that are watched.
    """

    def __init__(self, *threads: str) -> None:
        self._threads = threads
        self.calls: Counter[str] = Counter()
        self._is_recording = False
        self._names: dict[str, str | None] = {}

    def _profile(self, frame, event, argument):
        if event != "call" or not self._is_recording:
            return
        file = frame.f_code.co_filename
        name = self._names.get(file, "")
        if name == "":
            path = Path(file)
            is_ours = PACKAGE in path.parents
            name = str(path.relative_to(PACKAGE).with_suffix("")) if is_ours else None
            self._names[file] = name
        if name is not None and threading.current_thread().name.startswith(self._threads):
            self.calls[name] += 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch this thread and all that are started inside of the block."""
        before = sys.getprofile()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)

    def record(self, work: Callable[[], object]) -> None:
        """Run ``work``, and count what runs meanwhile."""
        self._is_recording = True
        try:
            work()
        finally:
            self._is_recording = False

    def modules(self, messages: int) -> list[str]:
        """Return the modules that ran for more than one of ten messages, by name.

        The lock is left out: it is no step of the way, but what ``with`` calls.
        """
        return sorted(
            name for name, count in self.calls.items()
            if count > messages / 10 and name != "runtime/lock"
        )


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
    """From the socket to the handler, and back to FIN."""
    tcp, http = nsqd
    recorder, handled = ModuleRecorder("nsq-reader", "nsq-worker"), []

    def publish(count: int) -> None:
        with NsqdHTTP(http) as client:
            client.mpub("t", [b"x"] * count)

    def consume() -> None:
        wanted = len(handled) + MESSAGES
        publish(MESSAGES)
        wait_until(lambda: consumer.stats().total.finished == wanted)

    with recorder.installed():
        consumer = Consumer(
            "t", "c", handled.append, nsqd_tcp_addresses=[tcp], max_in_flight=max_in_flight)
        with consumer:
            consume()
            recorder.record(consume)
    modules = recorder.modules(MESSAGES)
    assert len(modules) <= 11, "\n".join(modules)


@pytest.mark.skipif(not HAS_INTERPRETER_LOCK, reason="threads lie idle for long under the profiler")
def test_a_publish_passes_few_modules(nsqd):
    """From the call to the answer, in the thread that publishes."""
    tcp, _ = nsqd
    recorder = ModuleRecorder(threading.current_thread().name)

    def publish() -> None:
        for _ in range(MESSAGES):
            producer.publish("t", b"x")

    with Producer([tcp]) as producer:
        publish()  # which dials
        with recorder.installed():
            recorder.record(publish)
    modules = recorder.modules(MESSAGES)
    assert len(modules) <= 5, "\n".join(modules)
