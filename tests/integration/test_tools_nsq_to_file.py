"""nsq_to_file beside the original, on a real nsqd.

Deliberate differences are on the page docs/tools/nsq_to_file.rst.
"""

import os
import signal

import pytest

from nsqclient import Producer
from tests.support.archives import read_tree
from tests.support.docs.tool_runs import end, tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

KINDS = ["ours", "original"]
BODIES = [b"%d " % n + b"x" * (n % 7) for n in range(40)]


@pytest.fixture
def nsqd(real_nsqd):
    return real_nsqd(msg_timeout=60.0, mem_queue_size=100_000)


def publish(nsqd, bodies, topic="t", channels=KINDS):
    nsqd.create(topic, *channels)
    if bodies:
        with Producer([nsqd.tcp_address]) as producer:
            producer.publish_many(topic, bodies)


def words(nsqd, folder, channel, *more, topic="t", sync="100ms"):
    return [f"--topic={topic}", f"--channel={channel}", f"--output-dir={folder / 'out'}",
            f"--nsqd-tcp-address={nsqd.tcp_address}", f"--sync-interval={sync}", *more]


def wait_for_end(nsqd, channel, topic="t", timeout=30.0):
    def is_done():
        stats = nsqd.stats(topic, channel)
        return stats and stats["clients"] and not (
            stats["depth"] or stats["in_flight_count"] or stats["deferred_count"])

    wait_until(is_done, timeout, f"{channel} is read")


def archive(kind, nsqd, folder, *more):
    with tool(kind, "nsq_to_file", *words(nsqd, folder, kind, *more)) as process:
        wait_for_end(nsqd, kind)
        if "--skip-empty-files" not in more:
            wait_until(lambda: read_tree(folder))
        assert end(process) == 0
    pid = str(process.pid)
    return {name.replace(pid, "PID"): content for name, content in read_tree(folder).items()}


WORK = "--work-dir={}/work"


RUNS = [
    [],
    ["--gzip"],
    ["--rotate-size=50"],
    [WORK],
    ["--skip-empty-files"],
    ["--filename-format=<TOPIC>/<HOST>/<DATETIME>.<PID>.x"],
    ["--filename-format=%Y<TOPIC><REV>", "--host-identifier=<HOSTNAME>"],
    ["--filename-format=<HOST><REV>.gz", "--gzip", "--host-identifier=a-<SHORT_HOST>"],
    ["--datetime-format=%Y %B %b %m %A %a %d %y %p %Z %z %% %j"],
]
LONGER_RUNS = [
    ["--gzip", "--gzip-level=1", "--max-in-flight=10"],
    ["--rotate-size=50", "--gzip"],
    ["--rotate-size=50", WORK],
    ["--rotate-interval=1h"],
    [WORK, "--gzip"],
    ["--skip-empty-files", "--gzip"],
]


@pytest.mark.parametrize("flags, count", [
    *[(flags, 40) for flags in RUNS],
    *[pytest.param(flags, 0, marks=pytest.mark.long) for flags in RUNS],
    *[pytest.param(flags, count, marks=pytest.mark.long)
      for flags in LONGER_RUNS for count in (40, 0)],
])
def test_the_trees_are_the_originals(nsqd, tmp_path, flags, count):
    publish(nsqd, BODIES[:count])
    trees = []
    for kind in KINDS:
        folder = tmp_path / kind
        (folder / "out").mkdir(parents=True)
        more = ["--datetime-format=%Y", *(flag.format(folder) for flag in flags)]
        trees.append(archive(kind, nsqd, folder, *more))
    assert trees[0] == trees[1]
    assert len(b"".join(trees[0].values())) == sum(len(body) + 1 for body in BODIES[:count])


@pytest.mark.parametrize("flags", [[], ["--gzip"]], ids=" ".join)
def test_hangup_closes_the_file_as_the_original(nsqd, tmp_path, flags):
    """After SIGHUP the next message opens a file: the same one, or with gzip the next revision."""
    publish(nsqd, BODIES)
    trees = []
    for kind in KINDS:
        folder = tmp_path / kind
        more = ["--skip-empty-files", "--datetime-format=%Y", *flags]
        with tool(kind, "nsq_to_file", *words(nsqd, folder, kind, *more)) as process:
            wait_for_end(nsqd, kind)
            for path in folder.rglob("*.log"):
                path.rename(path.with_suffix(".old"))
            process.send_signal(signal.SIGHUP)
            # The kernel delivers the signal before our next message can arrive.
            wait_until(lambda: not _holds_file(process.pid, folder))
            with Producer([nsqd.tcp_address]) as producer:
                producer.publish("t", b"after")
            wait_for_end(nsqd, kind)
            assert end(process) == 0
        trees.append({name: content for name, content in read_tree(folder).items()
                      if content in (b"after\n", b"".join(body + b"\n" for body in BODIES))})
        nsqd.post("/channel/empty", topic="t", channel=KINDS[1])
        publish(nsqd, BODIES)
    assert trees[0] == trees[1] and len(trees[0]) == 2


def _holds_file(pid, folder):
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith(str(folder)):
                return True
        except OSError:
            continue
    return False
