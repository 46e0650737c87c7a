"""Nothing depends on the wall clock, or on a process that never pauses."""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nsqclient
from tests.faults.dialogues import FULL, RECOVERY, SCAN, drain, make_channel
from tests.support.processes import CHECKOUT
from tests.support.waiting import wait_until

PACKAGE = Path(nsqclient.__file__).parent
#: Seconds for which a process is suspended; twice the heartbeats' patience and more.
SUSPENDED = 120.0 if FULL else 4.0
#: Packages and modules that show or store dates: there the wall clock is needed.
_DATES = {
    "admin", "cli", "cluster", "dead_letters.py", "contrib", "devserver", "metrics",
    "spark", "testing",
}

CLIENT = """
import sys, logging
from nsqclient import Config, Consumer, Producer
logging.basicConfig(level=logging.ERROR)
config = Config(heartbeat_interval=1, msg_timeout=1, max_attempts=0, max_backoff_duration=0)
with Producer([sys.argv[1]], config=config) as producer:
    with Consumer("events", "c", lambda m: print(m.body.decode(), flush=True),
                  nsqd_tcp_addresses=[sys.argv[1]], max_in_flight=10, config=config):
        for line in sys.stdin:
            producer.publish("events", line.strip().encode(), timeout=5)
"""


def wall_clock_calls(path: Path) -> list[int]:
    return [
        node.lineno for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow")
    ]


def test_the_client_never_asks_for_the_time_of_day():
    found = {
        name: lines
        for path in PACKAGE.rglob("*.py")
        if not {name := str(path.relative_to(PACKAGE)), name.partition("/")[0]} & _DATES
        and (lines := wall_clock_calls(path))
    }
    assert found == {}


@pytest.mark.slow
@pytest.mark.timeout(60 + SUSPENDED)
def test_a_process_that_was_suspended_publishes_and_consumes_again(server):
    make_channel(server, "events")
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CLIENT, server.tcp_address], text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:
        try:
            print("before", file=process.stdin, flush=True)
            assert process.stdout.readline() == "before\n"
            process.send_signal(signal.SIGSTOP)
            resume = time.monotonic() + SUSPENDED
            server.post("/pub", b"meanwhile", topic="events")
            wait_until(lambda: time.monotonic() > resume, SUSPENDED + 5)
            process.send_signal(signal.SIGCONT)
            resumed = time.monotonic()
            print("after", file=process.stdin, flush=True)
            due = {"meanwhile\n", "after\n"}  # "before" may come again: its FIN was not sent yet
            while due:
                due.discard(process.stdout.readline())
            assert time.monotonic() - resumed < RECOVERY + SCAN
            process.stdin.close()
            assert process.wait(10) == 0
        finally:
            process.kill()
    drain(server, "events")
