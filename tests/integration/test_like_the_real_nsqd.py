"""The embedded nsqd beside the real one: command lines and the data path."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from nsqclient.cli import main
from nsqclient.devserver import Nsqd
from nsqclient.devserver.persistence import DataPathError
from tests.support.servers.raw_client import RawClient
from tests.support.servers.real_servers import program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

ANY = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=127.0.0.1"]

#: Taken: the server starts.
TAKEN = [
    "--max-deflate-level=1 --max-deflate-level=9",
    "--tls-min-version=",
    "--e2e-processing-latency-percentile=1.0 --e2e-processing-latency-percentile=0.5,0.99",
    "--e2e-processing-latency-window-time=-1s",
    "--mem-queue-size=-1 --max-msg-size=-1 --max-body-size=-1 --max-rdy-count=-1",
    "--max-output-buffer-size=-1 --max-channel-consumers=-1 --max-bytes-per-file=-1",
    "--msg-timeout=0 --max-msg-timeout=0 --max-req-timeout=0 --max-heartbeat-interval=0",
    "--msg-timeout=-1s --max-msg-timeout=-5s --max-req-timeout=-5s --max-heartbeat-interval=-1s",
    "--output-buffer-timeout=0 --min-output-buffer-timeout=-1s --max-output-buffer-timeout=-1s",
    "--broadcast-tcp-port=-1 --broadcast-http-port=70000",
    "--statsd-interval=0 --statsd-udp-packet-size=-1 --sync-every=0 --sync-timeout=-1s",
    "--https-address=nowhere",
    "--http-address=",
    "--tcp-address=",
    "--worker-id 5 --bogus",
    "stray words",
    "--log-level=INFO --verbose",
]

#: Refused, with this exit status.
REFUSED = [
    ("--max-deflate-level=0", 1),
    ("--max-deflate-level=10", 1),
    ("--node-id=-1", 1),
    ("--node-id=1024", 1),
    ("--tls-required", 1),
    ("--tls-client-auth-policy=bogus", 1),
    ("--tls-cert=/none", 1),
    ("--tls-root-ca-file=/none", 1),
    ("--data-path=/none", 1),
    ("--tls-required=maybe", 2),
    ("--tls-min-version=ssl3.0", 2),
    ("--worker-id=5", 2),
    ("--broadcast-http-port=x", 2),
    ("--log-level=", 2),
    ("--max-msg-size=1.5", 2),
    ("--deflate=maybe", 2),
    ("--auth-http-request-method=post", 2),
]


@pytest.fixture(params=["embedded", "real"])
def command(request):
    if request.param == "real":
        return [str(program("nsqd"))]
    return [sys.executable, "-m", "nsqclient", "nsqd"]


@contextmanager
def running(command, words, folder):
    """Start it with these flags; yields the process and its log."""
    log = folder / "log"
    data = [] if "--data-path" in words else [f"--data-path={folder}"]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*command, *ANY, *data, *words.split()], stderr=stderr)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", TAKEN)
def test_these_are_taken(command, words, tmp_path):
    with running(command, words, tmp_path) as (process, log):
        wait_until(
            lambda: process.poll() is not None or re.search("TCP: listening", log.read_text()),
            timeout=60)
        if "http-address=" not in words and process.poll() is None:
            wait_until(lambda: "HTTP: listening" in log.read_text(), timeout=60)
        assert process.poll() is None, log.read_text()
        process.terminate()
        # The real one listens before it takes signals: on a busy machine SIGTERM ends it before.
        ends = (0,) if command[0] == sys.executable else (0, -signal.SIGTERM)
        assert process.wait(60) in ends


@pytest.mark.parametrize("words, status", REFUSED)
def test_these_are_refused(words, status, tmp_path, capsys):
    with running([str(program("nsqd"))], words, tmp_path) as (process, log):
        assert process.wait(60) == status
        assert log.read_text()
    # Ours is 2 for every value that is wrong on the command line.
    assert main(["nsqd", *ANY, f"--data-path={tmp_path}", *words.split()]) in (status, 2)
    assert capsys.readouterr().err


def publish(server, count):
    for _ in range(count):
        server.post("/pub", b"x" * 100, topic="t")


def test_messages_of_a_real_nsqd_are_not_ignored(real_nsqd):
    """The embedded nsqd does not start, says why, and leaves the files as they are."""
    real = real_nsqd()
    publish(real, 3)
    real.stop()
    before = sorted((path.name, path.read_bytes()) for path in real.data_path.iterdir())
    with pytest.raises(DataPathError, match=r"message files of a real nsqd \(t\."):
        Nsqd(data_path=str(real.data_path)).start()
    after = sorted((path.name, path.read_bytes()) for path in real.data_path.iterdir())
    assert after == before
    real.start()
    assert real.stats("t")["depth"] == 3


def test_a_killed_nsqds_messages_are_found_too(real_nsqd):
    """Those on disk, although its notes do not count them."""
    real = real_nsqd(mem_queue_size=1)
    publish(real, 5)
    real.kill()
    with pytest.raises(DataPathError, match="message files"):
        Nsqd(data_path=str(real.data_path)).start()


def test_topics_of_a_real_nsqd_without_messages_are_taken_over(real_nsqd):
    real = real_nsqd()
    with RawClient(real.tcp_address) as consumer:
        consumer.subscribe("t", "c", ready=1)
        publish(real, 1)
        consumer.send(b"FIN %b\n" % consumer.read_message()[0])
        wait_until(lambda: real.stats("t", "c")["in_flight_count"] == 0)
    real.stop()
    with Nsqd(data_path=str(real.data_path)) as nsqd:
        assert nsqd.registrations() == [("t", "c")]
