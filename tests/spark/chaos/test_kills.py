"""The whole pipeline under SIGKILL: driver, Python processes, executors."""

import contextlib
import os
import random
import threading

import pytest

from tests.spark.jobs import Job, Publisher
from tests.spark.logs import counts
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark_chaos, pytest.mark.real, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("COUNT", "200000"))
KILLS = int(os.environ.get("KILLS", "20"))
SEED = int(os.environ.get("SEED", "1"))
#: Seconds in which a batch is committed, even on a busy machine.
COMMIT = 120


def test_a_driver_killed_at_random_moments_loses_nothing(real_nsqd, tmp_path):
    rng = random.Random(SEED)
    nsqd = real_nsqd(mem_queue_size=1_000_000)
    settings = {
        "master": "local[2,4]", "out": str(tmp_path / "out"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "options": {
            "topic": "t", "channel": "c", "nsqd": nsqd.tcp_address, "nsqdHttp": nsqd.http_address,
            "storage": str(tmp_path / "log"), "msg_timeout": "5s",
            "maxMessagesPerTrigger": "20000", "maxLogMessages": "40000"}}

    def commits() -> int:
        found = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(entry.name) + 1 for entry in found), default=0)

    publisher = Publisher(nsqd.tcp_address, "t", COUNT, per_second=max(200, COUNT // (15 * KILLS)))
    try:
        for number in range(KILLS):
            job = Job(**settings)
            try:
                job.wait_for(state="started")
                if number % 2:  # otherwise a busy machine never commits
                    before = commits()
                    with contextlib.suppress(AssertionError):  # everything may be read
                        wait_until(lambda: commits() > before, COMMIT)
                moment = rng.uniform(0.0, 8.0)
                threading.Event().wait(moment)
            finally:
                job.kill()
            print(f"kill {number + 1}: {moment:.2f} s after the start or a commit,"
                  f" {publisher.published} published, {commits()} commits", flush=True)
        assert publisher.join() == COUNT
    finally:
        publisher.close()
    done = Job(**settings, now=True).finish()
    print(done)
    assert counts(nsqd) == (0, 0)
    assert (done["rows"], done["distinct"]) == (COUNT, COUNT)
