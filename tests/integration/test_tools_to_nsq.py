"""to_nsq beside the original, on a real nsqd.

Deliberate differences are on the page docs/tools/to_nsq.rst.
"""

import signal
import subprocess

import pytest

from tests.integration.test_consumer import take
from tests.support.docs.tool_runs import end, run_tool, tool
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

KINDS = ["ours", "original"]


@pytest.fixture
def nsqd(real_nsqd):
    return real_nsqd()


def words(nsqd, *more, topic="t"):
    return [f"--topic={topic}", f"--nsqd-tcp-address={nsqd.tcp_address}", *more]


def stored(nsqd, topic="t", counter="message_count"):
    return take(nsqd, topic, nsqd.stats(topic).get(counter, 0))


@pytest.mark.parametrize("data, more", [
    (b"\n\none\r\n\n", []),
    (b"\x00\xff\n" + "h\u00e9".encode() + b"\n", []),
    (b"a,b,", ["--delimiter=,"]),
    (b"", []),
    (b"".join(b"%d\n" % number for number in range(2000)), []),
])
def test_the_messages_are_those_of_the_original(nsqd, data, more):
    results = []
    for kind in KINDS:
        done = run_tool(kind, "to_nsq", *words(nsqd, *more, topic=kind), stdin=data)
        results.append((done.returncode, done.stdout, stored(nsqd, kind)))
    assert results[0] == results[1] and results[0][0] == 0


def test_several_nsqds_each_get_everything(nsqd, real_nsqd):
    other = real_nsqd()
    for kind in KINDS:
        done = run_tool(
            kind, "to_nsq", *words(nsqd, topic=kind), f"--nsqd-tcp-address={other.tcp_address}",
            f"--nsqd-tcp-address={nsqd.tcp_address}", stdin=b"a\nb\n")
        assert done.returncode == 0
        assert stored(nsqd, kind) == stored(other, kind) == [b"a", b"b"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_is_too_large_is_status_1(nsqd, kind):
    done = run_tool(kind, "to_nsq", *words(nsqd), stdin=b"a\n" + b"x" * 1_048_577 + b"\nb\n")
    assert done.returncode == 1 and stored(nsqd) == [b"a"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_nsqd_that_is_down_is_status_1(kind):
    done = run_tool(
        kind, "to_nsq", "--topic=t", f"--nsqd-tcp-address=127.0.0.1:{free_port()}",
        *(["--producer-opt=publish_timeout,300ms"] if kind == "ours" else []), stdin=b"a\n")
    assert done.returncode == 1
    assert kind == "original" or b"0 records stored" in done.stderr


def test_an_nsqd_that_comes_back_gets_the_rest(nsqd):
    with tool("ours", "to_nsq", *words(nsqd), stdin=subprocess.PIPE) as process:
        process.stdin.write(b"a\n")
        process.stdin.flush()
        wait_until(lambda: nsqd.stats("t").get("message_count"))
        nsqd.restart()
        process.stdin.write(b"b\n")
        process.stdin.close()
        assert process.wait(30) == 0
    wait_until(lambda: nsqd.stats("t").get("depth") == 2)
    assert sorted(stored(nsqd, counter="depth")) == [b"a", b"b"]


def test_a_signal_ends_a_slow_run_at_once(nsqd):
    with tool("ours", "to_nsq", *words(nsqd, "--rate=1"), stdin=subprocess.PIPE,
              stderr=subprocess.PIPE) as process:
        process.stdin.write(b"x\n" * 100)
        process.stdin.close()
        wait_until(lambda: nsqd.stats("t").get("message_count"))
        assert end(process, signal.SIGINT) == 0
        assert b" read, but not published" in process.stderr.read()
