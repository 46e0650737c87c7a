"""Owners as tasks of a real Spark job, on a cluster of two executors."""

import os
import shlex
import signal
from pathlib import Path

import pytest

from tests.spark.jobs import Ingest
from tests.spark.shards.test_owners import counts, publish, stored
from tests.support.docs.pages import named
from tests.support.servers.http_api import registered
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.real, pytest.mark.timeout(600),
              pytest.mark.usefixtures("java")]

#: Seconds for JVMs to start, on a busy machine.
LIMIT = 240


def test_owners_in_tasks_survive_a_killed_executor_and_end_in_order(
    real_nsqd, real_nsqlookupd, tmp_path
):
    """Runs the manual's command. Each message is stored once, and none stays in flight."""
    lookupd = real_nsqlookupd()
    servers = [real_nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) for _ in range(2)]
    storage = f"file://{tmp_path}/storage"
    for server in servers:
        server.post("/topic/create", topic="t")
        server.post("/channel/create", topic="t", channel="c")
    publish(servers[0], 1000)
    wait_until(lambda: len(registered(lookupd, "t")) == 2, 30, "nsqlookupd has both")
    [command] = named("nsqclient spark ingest --master")[0].commands
    for there, here in (
        ("spark://node1:7077", "local-cluster[2,1,768]"), ("tasks=8", "tasks=2"),
        ("127.0.0.1:4161", lookupd.http_address), ("topic=events", "topic=t"),
        ("channel=spark", "channel=c"), ("file:///data/nsq", storage),
    ):
        assert there in command
        command = command.replace(there, here)
    job = Ingest(
        *shlex.split(command)[3:], "--conf=spark.executor.memory=512m",
        "--consumer-opt=msg_timeout,5s", "--consumer-opt=auth_secret,s3cret")
    try:
        job.wait_for_log("owners: 2 of 2 tasks run")
        wait_until(lambda: len(stored(storage, *servers)) == 1000, LIMIT, "all is stored")
        executors = [pid for pid in job.processes() if b"CoarseGrainedExecutorBackend" in
                     Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(executors[0], signal.SIGKILL)
        for first, server in zip((1000, 2000), servers):
            publish(server, 1000, first)
        wait_until(lambda: len(stored(storage, *servers)) >= 3000, LIMIT, "the others go on")
        job.wait_for_log("owners: 2 of 2 tasks running, 1 failed so far")
    finally:
        status = job.terminate()
    assert status == 0, job.log()
    assert stored(storage, *servers) == list(range(3000))
    assert [counts(server) for server in servers] == [(0, 0), (0, 0)]
    assert "s3cret" not in "".join(job._log)
