"""nsq_tail and nsq_stat beside the originals, on a real nsqd.

Deliberate differences are on the pages docs/tools/nsq_tail.rst and docs/tools/nsq_stat.rst.
"""

import signal
import subprocess

import pytest

from nsqclient import Producer
from tests.support.docs.tool_runs import command, run_tool, tool
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

KINDS = ["ours", "original"]
BODIES = [b"one", b"two\nlines", b"\x00\xff\r", "h\u00e9".encode(), b"five"]


@pytest.fixture
def nsqd(real_nsqd):
    return real_nsqd(msg_timeout=60.0)


def publish(nsqd, topic, *bodies):
    nsqd.create(topic, "c")
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish_many(topic, bodies)


def words(nsqd, *more, topic="t"):
    return [f"--topic={topic}", "--channel=c", f"--nsqd-tcp-address={nsqd.tcp_address}", *more]


def read(process, size):
    data = b""
    while len(data) < size:
        more = process.stdout.read(size - len(data))
        assert more, "it ended"
        data += more
    return data


@pytest.mark.parametrize("more", [[], ["--print-topic"], ["-n", "5"]])
def test_the_bytes_are_the_originals(nsqd, more):
    outputs = []
    for topic in KINDS:
        publish(nsqd, topic, *BODIES)
        prefix = len(f"{topic} | ") if "--print-topic" in more else 0
        size = sum(len(body) + 1 + prefix for body in BODIES)
        with tool(topic, "nsq_tail", *words(nsqd, *more, topic=topic)) as process:
            outputs.append(read(process, size).replace(f"{topic} |".encode(), b"t |"))
            if "-n" not in more:  # else it ends by itself, and a signal could come into its end
                process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert outputs[0] == outputs[1]


def test_bug_4_nsq_tail_n_exits_after_the_fin(nsqd):
    publish(nsqd, "t", *BODIES)
    done = run_tool("ours", "nsq_tail", *words(nsqd, "-n", "3"))
    assert done.returncode == 0 and done.stdout == b"one\ntwo\nlines\n\x00\xff\r\n"
    stats = wait_until(lambda: nsqd.stats("t", "c"))
    assert (stats["in_flight_count"], stats["depth"], stats["requeue_count"]) == (0, 2, 0)


def test_bug_4_nsq_tail_n_counts_in_total(nsqd):
    publish(nsqd, "a", b"1", b"2", b"3")
    publish(nsqd, "b", b"4", b"5", b"6")
    done = run_tool("ours", "nsq_tail", *words(nsqd, "--topic=b", "-n", "3", topic="a"))
    assert done.returncode == 0 and len(done.stdout.split()) == 3
    left = [nsqd.stats(topic, "c") for topic in "ab"]
    assert sum(stats["depth"] + stats["deferred_count"] for stats in left) == 3
    assert sum(stats["in_flight_count"] for stats in left) == 0


def test_a_closed_pipe_ends_it_with_status_0(nsqd):
    publish(nsqd, "t", *[b"line"] * 1000)
    first = command("ours", "nsq_tail", *words(nsqd, "--max-in-flight=1", "--log-level=warn"))
    with tool("ours", "nsq_tail", *first[4:], stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
    stats = nsqd.stats("t", "c")
    assert stats["in_flight_count"] == 0 and stats["depth"] > 0


def test_a_full_disk_is_status_1(nsqd):
    publish(nsqd, "t", b"x")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("ours", "nsq_tail", *words(nsqd)), stdout=full, stderr=subprocess.PIPE,
            timeout=60)
    assert done.returncode == 1 and b"No space left" in done.stderr
    assert nsqd.stats("t", "c")["depth"] == 1


def looks(nsqd, *more, topic="t"):
    return [f"--topic={topic}", f"--nsqd-tcp-address={nsqd.tcp_address}",
            f"--nsqd-http-address={nsqd.http_address}", *more]


def test_the_default_channel_is_ephemeral(nsqd):
    publish(nsqd, "t", b"before")
    with tool("ours", "nsq_tail", *looks(nsqd, "-n=1")) as process:
        name = wait_until(lambda: [c["channel_name"] for c in nsqd.stats("t")["channels"][1:]])[0]
        client = wait_until(lambda: nsqd.stats("t", name)["clients"])[0]
        nsqd.post("/pub", b"after", topic="t")
        assert process.communicate(timeout=20)[0] == b"after\n"
    assert name.startswith("tail") and name.endswith("#ephemeral") and len(name) == 20
    assert client["user_agent"].startswith("nsq_tail/") and " nsqclient/" in client["user_agent"]
    assert nsqd.stats("t", "c")["depth"] == 2


def test_a_topic_is_not_created_but_waited_for(nsqd):
    with tool("ours", "nsq_tail", *looks(nsqd, "-n=1"), stderr=subprocess.PIPE) as process:
        assert b"there is no topic t there" in process.stderr.readline() + process.stderr.readline()
        assert nsqd.stats()["topics"] == []
        publish(nsqd, "t", b"before")
        wait_until(lambda: len(nsqd.stats("t")["channels"]) == 2)
        nsqd.post("/pub", b"after", topic="t")
        assert process.communicate(timeout=20)[0] == b"after\n"
    assert nsqd.stats("t", "c")["depth"] == 2


@pytest.mark.parametrize("name", ["nsq_tail", "nsq_to_file", "nsq_to_file --topic-pattern=."])
def test_another_server_than_an_nsqlookupd_is_status_1(nsqd, name):
    """Here nsqd's HTTP port. A connection that is reset, as by its TCP port, is tried again."""
    name, *more = name.split()
    address = nsqd.http_address
    done = run_tool("ours", name, *(more or ["--topic=t"]), f"--lookupd-http-address={address}",
                    *(["--output-dir=/tmp"] if "file" in name else []))
    assert done.returncode == 1 and address.encode() in done.stderr


def test_one_dead_nsqd_of_two_is_waited_for(nsqd):
    publish(nsqd, "t", b"x")
    dead = f"--nsqd-tcp-address=127.0.0.1:{free_port()}"
    done = run_tool("ours", "nsq_tail", *words(nsqd, dead, "-n=1"))
    assert (done.returncode, done.stdout) == (0, b"x\n")


def test_rows_of_nsq_stat_are_those_of_the_original(real_nsqd):
    nsqd = real_nsqd(mem_queue_size=10)
    publish(nsqd, "t", *[b"x"] * 40)
    nsqd.post("/pub", b"later", topic="t", defer="3000000")
    flags = ["--topic=t", "--channel=c", "--interval=1s", "--count=2",
             f"--nsqd-http-address={nsqd.http_address}"]
    ours, original = (run_tool(kind, "nsq_stat", *flags) for kind in KINDS)
    assert (ours.returncode, original.returncode) == (0, 0)
    assert ours.stdout == original.stdout
    assert len(ours.stdout.splitlines()) == 4
