"""The whole pipeline with one failure each: tasks, stalls, servers, folders, disks."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from tests.spark.jobs import Job, Publisher
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark_chaos, pytest.mark.real, pytest.mark.timeout(1800)]

#: Seconds for what a JVM has to do first.
WAIT = 600
COUNT = int(os.environ.get("COUNT", "200000"))


def settings(servers, folder, **options):
    """A job that reads from some nsqds, and ends when all is read."""
    return {
        "master": "local[2,4]",
        "out": str(folder / "out"),
        "checkpoint": str(folder / "checkpoint"),
        "now": True,
        "options": {
            "topic": "t", "channel": "c",
            "nsqd": ",".join(server.tcp_address for server in servers),
            "nsqdHttp": ",".join(server.http_address for server in servers),
            "storage": str(folder / "log"), "maxMessagesPerTrigger": "50000", **options,
        },
    }


def publish(server, count=COUNT, first=0):
    """Fill the topic, and wait until it is done."""
    publisher = Publisher(server.tcp_address, "t", count, 1_000_000, first)
    assert publisher.join() == count


def make_channel(server):
    """So that messages wait in the channel from the start."""
    server.post("/topic/create", topic="t")
    server.post("/channel/create", topic="t", channel="c")


@pytest.fixture
def nsqd(real_nsqd):
    """A real nsqd that keeps all in memory."""
    server = real_nsqd(mem_queue_size=1_000_000)
    make_channel(server)
    return server


def running(job, program):
    """The processes of a job that run a program, by a part of their command line."""
    return [pid for pid in job.processes()
            if program in Path(f"/proc/{pid}/cmdline").read_bytes()]


def check(done, count=COUNT):
    """Each message once."""
    print(done)
    assert (done["rows"], done["distinct"]) == (count, count)


def test_killed_executors_lose_and_repeat_no_row(nsqd, tmp_path):
    """Two executors of a local cluster, each killed once."""
    publish(nsqd)
    run = settings([nsqd], tmp_path, maxMessagesPerTrigger="20000")
    job = Job(**{**run, "master": "local-cluster[2,1,1024]"})
    try:
        for batch in (0, 2):
            job.wait_for(batch=batch)
            killed = running(job, b"CoarseGrainedExecutorBackend")[:1]
            assert killed
            os.kill(killed[0], signal.SIGKILL)
        check(job.finish())
    finally:
        job.kill()


def test_a_stall_longer_than_msg_timeout_repeats_no_row(nsqd, tmp_path):
    """FIN comes too late: nsqd sends copies, and they are dropped."""
    publish(nsqd)
    run = settings([nsqd], tmp_path, msg_timeout="2s")
    stopped = []

    def stall():
        pids = running(job, b"streaming_source_runner")
        if not pids or nsqd.stats("t", "c")["in_flight_count"] == 0:
            return False
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        stopped.extend(pids)
        return True

    job = Job(**run)
    try:
        wait_until(stall, WAIT, "the source has messages in flight")
        threading.Event().wait(9.0)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        check(job.finish())
        assert nsqd.stats("t", "c")["timeout_count"] > 0
    finally:
        job.kill()


def wait_until_empty(nsqd):
    """Wait until a job has finished what nsqd has."""
    wait_until(lambda: nsqd.stats("t", "c") and nsqd.stats("t", "c")["depth"] == 0, WAIT,
               "all is taken")
    wait_until(lambda: nsqd.stats("t", "c")["in_flight_count"] == 0, WAIT, "all is finished")


def test_a_restarted_nsqd_loses_and_repeats_no_row(nsqd, tmp_path):
    """In order (SIGTERM), while messages are in flight."""
    publish(nsqd)
    job = Job(**{**settings([nsqd], tmp_path), "now": False})
    try:
        wait_until(lambda: nsqd.stats("t", "c")["depth"] < COUNT * 0.8, WAIT, "it reads")
        nsqd.restart()
        wait_until_empty(nsqd)
    finally:
        job.kill()
    check(Job(**settings([nsqd], tmp_path)).finish())


def test_a_killed_nsqd_repeats_no_row(real_nsqd, tmp_path):
    """What it held in memory is lost with it; what it delivers again is dropped."""
    nsqd = real_nsqd()
    make_channel(nsqd)
    publish(nsqd)
    job = Job(**{**settings([nsqd], tmp_path), "now": False})
    try:
        wait_until(lambda: nsqd.stats("t", "c")["depth"] < COUNT * 0.6, WAIT, "it reads")
        nsqd.kill()
        nsqd.start()
        wait_until_empty(nsqd)
    finally:
        job.kill()
    done = Job(**settings([nsqd], tmp_path)).finish()
    print(done, "lost with nsqd's memory:", COUNT - done["distinct"])
    assert done["rows"] == done["distinct"] >= COUNT - 2 * 10_000


def test_a_lost_nsqd_loses_only_what_it_had_not_sent(real_nsqd, tmp_path):
    """What it had not sent is lost with it; everything else is there once."""
    servers = [real_nsqd(mem_queue_size=1_000_000) for _ in range(2)]
    for index, server in enumerate(servers):
        make_channel(server)
        publish(server, COUNT // 2, index * COUNT // 2)
    gone, stays = servers
    job = Job(**{**settings(servers, tmp_path, maxLogMessages="40000"), "now": False})
    try:
        wait_until(lambda: gone.stats("t", "c")["depth"] < COUNT * 0.4, WAIT, "it reads")
        gone.stop()
        wait_until(lambda: stays.stats("t", "c")["depth"] == 0, WAIT, "the other is read")
        wait_until(lambda: stays.stats("t", "c")["in_flight_count"] == 0, WAIT, "and finished")
    finally:
        job.kill()
    done = Job(**settings([stays], tmp_path)).finish()
    gone.start()
    left = gone.stats("t", "c")["depth"]
    print(done, "left on the nsqd that was gone:", left)
    assert done["rows"] == done["distinct"] and done["rows"] >= COUNT - left
    check(Job(**settings(servers, tmp_path)).finish())


def test_a_deleted_checkpoint_with_its_log_repeats_no_row(nsqd, tmp_path):
    """The next query begins behind what was committed; nothing comes twice."""
    run = settings([nsqd], tmp_path)
    publish(nsqd, COUNT // 2)
    check(Job(**run).finish(), COUNT // 2)
    shutil.rmtree(tmp_path / "checkpoint")
    publish(nsqd, COUNT // 2, COUNT // 2)
    # The file sink has a log of its own in the output, and takes batch 0 for one it has seen.
    first = tmp_path / "out"
    first.rename(tmp_path / "first")
    done = Job(**run).finish()
    check(done, COUNT // 2)


def test_a_second_query_on_one_log_is_rejected(nsqd, tmp_path):
    """The second is refused, the first goes on."""
    publish(nsqd)
    first = Job(**{**settings([nsqd], tmp_path), "now": False})
    try:
        first.wait_for(batch=0)
        second = settings([nsqd], tmp_path)
        second |= {"checkpoint": str(tmp_path / "other"), "out": str(tmp_path / "other-out")}
        error = Job(**second).failure()
        print(error[:1500])
        assert "another query (" in error and "use a separate channel" in error
        wait_until(lambda: nsqd.stats("t", "c")["depth"] == 0, WAIT, "the first reads on")
    finally:
        first.kill()
    check(Job(**settings([nsqd], tmp_path)).finish())


def test_a_full_disk_heals_and_loses_nothing(nsqd, tmp_path):
    """A disk that is smaller than the topic: batches make space for each other, each row once."""
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=16m tmpfs '{small}' 2>/dev/null"):
        pytest.skip("mounting a small disk needs root")
    try:
        publish(nsqd)
        run = settings([nsqd], tmp_path, storage=str(small / "log"))
        running = Job(**{**run, "now": False})
        try:
            wait_until(lambda: nsqd.stats("t", "c")["depth"] < COUNT // 2, WAIT, "it goes on")
        finally:
            running.kill()
        check(Job(**run).finish())
    finally:
        os.system(f"umount -l '{small}'")


def test_flipped_bytes_are_noticed_and_repeat_no_row(nsqd, tmp_path):
    """The query names the segment and its nsqd; when the bytes are back, it reads each row once."""
    publish(nsqd)
    run = settings([nsqd], tmp_path, maxMessagesPerTrigger="10000")
    job = Job(**{**run, "now": False})
    try:
        job.wait_for(batch=0)
        wait_until_empty(nsqd)
    finally:
        job.kill()
    segment = max((tmp_path / "log").rglob("*.arrow"))
    good = segment.read_bytes()
    middle = len(good) // 2
    damaged = bytes(byte ^ 0xFF for byte in good[middle:middle + 3])
    segment.write_bytes(good[:middle] + damaged + good[middle + 3:])
    error = Job(**run).failure()
    print(error[-600:])
    assert segment.name in error and nsqd.tcp_address in error
    segment.write_bytes(good)
    check(Job(**run).finish())
