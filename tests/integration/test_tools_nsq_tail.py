"""nsq_tail beside the original, on a real nsqd.

Deliberate differences:

- ``-n`` counts over all topics, finishes the last message and hands back what it had fetched.
- Of several nsqds that are named some may be down at the start.
- A closed stdout ends it with status 0; the original dies of SIGPIPE.
- Stray words on the command line are refused; the original ignores them.
- It never gives a message up unless ``--consumer-opt=max_attempts,N`` says so.
"""

from __future__ import annotations

import gzip
import json
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
    """A real nsqd whose messages time out late."""
    return real_nsqd(msg_timeout=60.0)


def publish(nsqd, topic, *bodies):
    """Publish bodies after a channel ``c`` was made for them."""
    nsqd.post("/topic/create", topic=topic)
    nsqd.post("/channel/create", topic=topic, channel="c")
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish_many(topic, bodies)


def words(nsqd, *more, topic="t"):
    """Words that read channel ``c`` of a topic."""
    return [f"--topic={topic}", "--channel=c", f"--nsqd-tcp-address={nsqd.tcp_address}", *more]


def read(process, size):
    """Read exactly so many bytes of its stdout."""
    data = b""
    while len(data) < size:
        more = process.stdout.read(size - len(data))
        assert more, "it ended"
        data += more
    return data


@pytest.mark.parametrize("more", [[], ["--print-topic"], ["-n", "5"]])
def test_the_bytes_are_the_originals(nsqd, more):
    """The same messages give the same bytes on stdout, whatever they contain."""
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


@pytest.mark.parametrize("kind", KINDS)
def test_an_nsqd_that_is_not_there_is_status_1(kind):
    """As in the original, an nsqd that was named must be there at the start."""
    address = f"--nsqd-tcp-address=127.0.0.1:{free_port()}"
    done = run_tool(kind, "nsq_tail", "--topic=t", address)
    assert done.returncode == 1 and done.stdout == b""
    assert kind != "ours" or b"cannot consume from" in done.stderr
    assert b"trying again" not in done.stderr  # it is over


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(nsqd, signum):
    """Status 0, and nothing stays in flight."""
    publish(nsqd, "t", *BODIES)
    with tool("ours", "nsq_tail", *words(nsqd)) as process:
        read(process, 3)
        process.send_signal(signum)
        assert process.wait(20) == 0
    assert nsqd.stats("t", "c")["in_flight_count"] == 0


def test_bug_4_nsq_tail_n_exits_after_the_fin(nsqd):
    """With -n 3 of 5, three are finished, none is in flight, two are there for the next reader."""
    publish(nsqd, "t", *BODIES)
    done = run_tool("ours", "nsq_tail", *words(nsqd, "-n", "3"))
    assert done.returncode == 0 and done.stdout == b"one\ntwo\nlines\n\x00\xff\r\n"
    stats = wait_until(lambda: nsqd.stats("t", "c"))
    assert (stats["in_flight_count"], stats["depth"], stats["requeue_count"]) == (0, 2, 0)


def test_bug_4_nsq_tail_n_counts_in_total(nsqd):
    """With two topics, -n 3 prints three messages, and the others are there for the next reader."""
    publish(nsqd, "a", b"1", b"2", b"3")
    publish(nsqd, "b", b"4", b"5", b"6")
    done = run_tool("ours", "nsq_tail", *words(nsqd, "--topic=b", "-n", "3", topic="a"))
    assert done.returncode == 0 and len(done.stdout.split()) == 3
    left = [nsqd.stats(topic, "c") for topic in "ab"]
    assert sum(stats["depth"] + stats["deferred_count"] for stats in left) == 3
    assert sum(stats["in_flight_count"] for stats in left) == 0


def test_a_closed_pipe_ends_it_with_status_0(nsqd):
    """When its reader goes away it ends with 0, without a traceback, and keeps what it could not
    write in the channel."""
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
    """Another error of stdout is said, and the message stays."""
    publish(nsqd, "t", b"x")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("ours", "nsq_tail", *words(nsqd)), stdout=full, stderr=subprocess.PIPE,
            timeout=60)
    assert done.returncode == 1 and b"No space left" in done.stderr
    assert nsqd.stats("t", "c")["depth"] == 1


def test_formats_and_gzip_are_printed(nsqd):
    """--json, --format, --gunzip and --no-newline on real messages."""
    publish(nsqd, "t", gzip.compress(b"packed"), b"plain")
    done = run_tool("ours", "nsq_tail", *words(nsqd, "-n=1", "--json", "--gunzip"))
    shown = json.loads(done.stdout)
    assert shown["body"] == "packed" and shown["nsqd"] == nsqd.tcp_address
    done = run_tool("ours", "nsq_tail", *words(nsqd, "-n=1", "--no-newline",
                                               "--format={attempts}:{topic}:{body}"))
    assert done.stdout == b"1:t:plain"


def looks(nsqd, *more, topic="t"):
    """Words that look at a topic without a channel of their own."""
    return [f"--topic={topic}", f"--nsqd-tcp-address={nsqd.tcp_address}",
            f"--nsqd-http-address={nsqd.http_address}", *more]


def test_the_default_channel_is_ephemeral(nsqd):
    """Without --channel it makes tailNNNNNN#ephemeral, as the original."""
    publish(nsqd, "t", b"before")
    with tool("ours", "nsq_tail", *looks(nsqd, "-n=1")) as process:
        name = wait_until(lambda: [c["channel_name"] for c in nsqd.stats("t")["channels"][1:]])[0]
        client = wait_until(lambda: nsqd.stats("t", name)["clients"])[0]
        nsqd.post("/pub", b"after", topic="t")
        assert process.communicate(timeout=20)[0] == b"after\n"
    assert name.startswith("tail") and name.endswith("#ephemeral") and len(name) == 20
    assert client["user_agent"].startswith("nsq_tail/") and " nsqclient/" in client["user_agent"]
    assert nsqd.stats("t", "c")["depth"] == 2


def test_messages_that_wait_for_a_first_channel_are_left_alone(nsqd):
    """It ends with status 1 and says what to do, in place of taking them."""
    nsqd.post("/mpub", b"\n".join([b"x"] * 1000), topic="t")
    done = run_tool("ours", "nsq_tail", *looks(nsqd, "-n=1"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"create a channel first" in done.stderr
    stats = nsqd.stats("t")
    assert (stats["depth"], stats["channels"]) == (1000, [])


def test_a_topic_is_not_created_but_waited_for(nsqd):
    """And its first messages are left alone until it has a channel."""
    with tool("ours", "nsq_tail", *looks(nsqd, "-n=1"), stderr=subprocess.PIPE) as process:
        assert b"there is no topic t there" in process.stderr.readline() + process.stderr.readline()
        assert nsqd.stats()["topics"] == []
        publish(nsqd, "t", b"before")
        wait_until(lambda: len(nsqd.stats("t")["channels"]) == 2)
        nsqd.post("/pub", b"after", topic="t")
        assert process.communicate(timeout=20)[0] == b"after\n"
    assert nsqd.stats("t", "c")["depth"] == 2


def test_an_nsqd_that_cannot_be_asked_is_left_alone(nsqd):
    """Its HTTP address is not known: that must be given."""
    nsqd.post("/topic/create", topic="t")
    words = [word for word in looks(nsqd) if "http" not in word]
    done = run_tool("ours", "nsq_tail", *words)
    assert done.returncode == 1 and b"give --nsqd-http-address" in done.stderr
    assert nsqd.stats("t")["channels"] == []


@pytest.mark.parametrize("more", [[], ["--topic=other"]])
def test_a_backlog_is_left_alone_on_an_nsqd_that_nsqlookupd_lists(
    real_nsqlookupd, real_nsqd, more
):
    """Status 1 where it may look nowhere; with another topic to look at it goes on."""
    lookupd = real_nsqlookupd()
    nsqd = real_nsqd(lookupd_tcp_addresses=[lookupd.tcp_address])
    nsqd.post("/pub", b"x", topic="t")
    if more:
        publish(nsqd, "other", b"x")
    topics = {"t", *(["other"] if more else [])}
    wait_until(lambda: topics <= {*lookupd.get("/topics").json()["topics"]})
    address = f"--lookupd-http-address={lookupd.http_address}"
    with tool("ours", "nsq_tail", "--topic=t", address, "-n=1", *more,
              stderr=subprocess.PIPE) as process:
        if more:
            wait_until(lambda: len(nsqd.stats("other")["channels"]) == 2)
            nsqd.post("/pub", b"y", topic="other")
        assert process.communicate(timeout=20)[0] == (b"y\n" if more else b"")
        assert process.returncode == (0 if more else 1)
    assert nsqd.stats("t")["depth"] == 1 and nsqd.stats("t")["channels"] == []


def test_a_topic_that_comes_later_is_found(real_nsqlookupd, real_nsqd):
    """Through nsqlookupd; a topic that does not exist yet is waited for."""
    lookupd = real_nsqlookupd()
    nsqd = real_nsqd(lookupd_tcp_addresses=[lookupd.tcp_address])
    with tool("ours", "nsq_tail", "--topic=t", "--channel=c", "-n=1",
              f"--lookupd-http-address={lookupd.http_address}",
              "--consumer-opt=lookupd_poll_interval,100ms") as process:
        publish(nsqd, "t", b"late")
        assert process.stdout.readline() == b"late\n"
        assert process.wait(20) == 0


@pytest.mark.parametrize("name", ["nsq_tail", "nsq_to_file", "nsq_to_file --topic-pattern=."])
def test_another_server_than_an_nsqlookupd_is_status_1(nsqd, name):
    """It would be asked for ever: nsqd's TCP port, and its HTTP port."""
    name, *more = name.split()
    for address in (nsqd.tcp_address, nsqd.http_address):
        done = run_tool("ours", name, *(more or ["--topic=t"]), f"--lookupd-http-address={address}",
                        *(["--output-dir=/tmp"] if "file" in name else []))
        assert done.returncode == 1 and address.encode() in done.stderr


def test_a_second_signal_ends_a_tail_that_cannot_write(nsqd):
    """Where stdout is not read, the first signal waits for the write and the second does not."""
    publish(nsqd, "t", b"x" * 500_000)
    with tool("ours", "nsq_tail", *words(nsqd)) as process:
        wait_until(lambda: nsqd.stats("t", "c").get("in_flight_count"))
        assert process.stdout.read(1) == b"x"
        process.send_signal(signal.SIGTERM)
        # It answers CLS first, so nsqd shows when the first signal has come.
        wait_until(lambda: not nsqd.stats("t", "c")["clients"]
                   or nsqd.stats("t", "c")["clients"][0]["state"] == 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM


def test_one_dead_nsqd_of_two_is_waited_for(nsqd):
    """If one of the given nsqds is alive, the tool runs, and messages come from it."""
    publish(nsqd, "t", b"x")
    dead = f"--nsqd-tcp-address=127.0.0.1:{free_port()}"
    done = run_tool("ours", "nsq_tail", *words(nsqd, dead, "-n=1"))
    assert (done.returncode, done.stdout) == (0, b"x\n")
