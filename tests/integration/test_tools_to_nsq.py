"""to_nsq beside the original, on a real nsqd.

Deliberate differences:

- A last record without a delimiter is published whole; the original loses its last byte.
- Records that are read together are published together.
- Delimiters of several bytes and with escapes are taken; the original takes one byte.
- An nsqd that is down is tried for ``publish_timeout`` before the tool ends with status 1; the
  original ends at once. What the others stored is said.
- ``--version`` exists. Words that are no flags are messages; the original ignores them.
"""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from nsqclient import Config, Consumer
from tests.support.docs.tool_runs import run_tool, tool
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

KINDS = ["ours", "original"]


@pytest.fixture
def nsqd(real_nsqd):
    """A real nsqd."""
    return real_nsqd()


def words(nsqd, *more, topic="t"):
    """Words that publish to a topic of one nsqd."""
    return [f"--topic={topic}", f"--nsqd-tcp-address={nsqd.tcp_address}", *more]


def stored(nsqd, topic="t"):
    """The bodies of a topic, in order."""
    count = nsqd.stats(topic).get("message_count", 0)
    consumer = Consumer(
        topic, "c", nsqd_tcp_addresses=[nsqd.tcp_address], config=Config(max_in_flight=100))
    bodies = []
    with consumer:
        for message in consumer.messages(timeout=20) if count else ():
            bodies.append(message.body)
            if len(bodies) == count:
                message.finish()
                break
    return bodies


@pytest.mark.parametrize(
    ("data", "more"),
    [
        (b"one\ntwo\n", []),
        (b"\n\none\r\n\n", []),
        (b"\x00\xff\n" + "h\u00e9".encode() + b"\n", []),
        (b"a,b,", ["--delimiter=,"]),
        (b"", []),
        (b"".join(b"%d\n" % number for number in range(2000)), []),
    ],
)
def test_the_messages_are_those_of_the_original(nsqd, data, more):
    """The same stdin gives the same messages in the same order, and status 0."""
    results = []
    for kind in KINDS:
        done = run_tool(kind, "to_nsq", *words(nsqd, *more, topic=kind), stdin=data)
        results.append((done.returncode, done.stdout, stored(nsqd, kind)))
    assert results[0] == results[1] and results[0][0] == 0


def test_several_nsqds_each_get_everything(nsqd, real_nsqd):
    """As with the original; the same address twice is one."""
    other = real_nsqd()
    for kind in KINDS:
        done = run_tool(
            kind, "to_nsq", *words(nsqd, topic=kind), f"--nsqd-tcp-address={other.tcp_address}",
            f"--nsqd-tcp-address={nsqd.tcp_address}", stdin=b"a\nb\n")
        assert done.returncode == 0
        assert stored(nsqd, kind) == stored(other, kind) == [b"a", b"b"]


def test_round_robin_publishes_each_record_once(nsqd):
    """An nsqd that is down is passed over."""
    dead = f"127.0.0.1:{free_port()}"
    done = run_tool("ours", "to_nsq", *words(nsqd, "--round-robin"), f"--nsqd-tcp-address={dead}",
                    stdin=b"a\nb\n")
    assert done.returncode == 0 and stored(nsqd) == [b"a", b"b"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_is_too_large_is_status_1(nsqd, kind):
    """What stands before it is stored."""
    done = run_tool(kind, "to_nsq", *words(nsqd), stdin=b"a\n" + b"x" * 1_048_577 + b"\nb\n")
    assert done.returncode == 1 and stored(nsqd) == [b"a"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_nsqd_that_is_down_is_status_1(kind):
    """Ours tries for publish_timeout, and says how much was stored."""
    done = run_tool(
        kind, "to_nsq", "--topic=t", f"--nsqd-tcp-address=127.0.0.1:{free_port()}",
        *(["--producer-opt=publish_timeout,300ms"] if kind == "ours" else []), stdin=b"a\n")
    assert done.returncode == 1
    assert kind == "original" or b"0 records stored" in done.stderr


def test_an_nsqd_that_comes_back_gets_the_rest(nsqd):
    """A restart of nsqd in the middle loses no record."""
    with tool("ours", "to_nsq", *words(nsqd), stdin=subprocess.PIPE) as process:
        process.stdin.write(b"a\n")
        process.stdin.flush()
        wait_until(lambda: nsqd.stats("t").get("message_count"))
        nsqd.restart()
        process.stdin.write(b"b\n")
        process.stdin.close()
        assert process.wait(30) == 0
    wait_until(lambda: nsqd.stats("t").get("depth") == 2)
    assert sorted(set(_drain(nsqd, 2))) == [b"a", b"b"]


def _drain(nsqd, count):
    """The first bodies of a topic."""
    consumer = Consumer("t", "c", nsqd_tcp_addresses=[nsqd.tcp_address])
    with consumer:
        for _, message in zip(range(count), consumer.messages(timeout=20)):
            message.finish()
            yield message.body


def test_lines_leave_when_they_come(nsqd):
    """A live input is not held back for a fuller batch; SIGTERM ends it with status 0."""
    with tool("ours", "to_nsq", *words(nsqd), stdin=subprocess.PIPE) as process:
        process.stdin.write(b"now\n")
        process.stdin.flush()
        wait_until(lambda: nsqd.stats("t").get("message_count") == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_rate_limit_holds(nsqd):
    """--rate=50 needs at least 0.6 s for 31 records, and not much more."""
    began = time.monotonic()
    done = run_tool("ours", "to_nsq", *words(nsqd, "--rate=50"), stdin=b"x\n" * 31)
    assert done.returncode == 0 and 0.6 <= time.monotonic() - began < 10
    assert b"Throttling messages rate to max:50/second" in done.stderr
    assert nsqd.stats("t")["message_count"] == 31


def test_a_signal_ends_a_slow_run_at_once(nsqd):
    """What was read and not published is counted in the log."""
    with tool("ours", "to_nsq", *words(nsqd, "--rate=1"), stdin=subprocess.PIPE,
              stderr=subprocess.PIPE) as process:
        process.stdin.write(b"x\n" * 100)
        process.stdin.close()
        wait_until(lambda: nsqd.stats("t").get("message_count"))
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert b" read, but not published" in process.stderr.read()


def test_deferred_messages_are_held_back_in_order(nsqd):
    """--defer holds messages back; they are deferred in the channel, in order of the input."""
    nsqd.post("/topic/create", topic="t")
    nsqd.post("/channel/create", topic="t", channel="c")
    done = run_tool("ours", "to_nsq", *words(nsqd, "--defer=1h"), stdin=b"a\nb\nc\n")
    assert done.returncode == 0
    wait_until(lambda: nsqd.stats("t", "c")["deferred_count"] == 3)
