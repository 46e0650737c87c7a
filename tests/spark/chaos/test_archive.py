"""The archive command at length: its interval does not limit its speed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from nsqclient.http import NsqdHTTP
from tests.spark.chaos.test_failures import WAIT, make_channel
from tests.support.processes import CHECKOUT

pytestmark = [pytest.mark.spark_chaos, pytest.mark.real, pytest.mark.timeout(3600)]

COUNT = 1_200_000
#: Bytes of a body.
SIZE = 500
#: How many rows are waited for; what is left after the full batches waits for the interval.
WANTED = 900_000


def seconds_to_archive(nsqd, folder, interval):
    """Fill the channel, archive it, and return the seconds that ``WANTED`` rows took."""
    make_channel(nsqd)
    nsqd.post("/channel/empty", topic="t", channel="c")
    with NsqdHTTP(nsqd.http_address) as client:
        for _ in range(COUNT // 1000):
            client.mpub("t", [b"x" * SIZE] * 1000)
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "nsqclient", "spark", "archive", "--topic=t", "--channel=c",
         f"--nsqd-tcp-address={nsqd.tcp_address}", f"--path={folder / 'out'}",
         f"--checkpoint={folder / 'checkpoint'}", f"--trigger={interval}", "--master=local[2]",
         f"--consumer-opt=nsqdHttp,{nsqd.http_address}"],
        cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    ) as process:
        assert process.stdout is not None
        rows, began, ended = 0, 0.0, 0.0
        try:
            for line in process.stdout:
                print(f"  --trigger={interval}: {line}", end="")
                if found := re.search(r"batch \d+: ([1-9]\d*) rows? in ([\d.]+) s", line):
                    began = began or time.monotonic() - float(found[2])
                    rows, ended = rows + int(found[1]), time.monotonic()
                    if rows >= WANTED:
                        break
        finally:
            process.send_signal(signal.SIGTERM)
            for line in process.stdout:
                print(line, end="")
            process.wait(WAIT)
    assert rows >= WANTED
    return (ended - began) * WANTED / rows


def test_a_long_interval_does_not_cap_a_backlog(real_nsqd, tmp_path):
    """With an hour between batches it has at least half of the speed without."""
    nsqd = real_nsqd(mem_queue_size=2 * COUNT)
    capped, free = (seconds_to_archive(nsqd, tmp_path / one, one) for one in ("1h", "0s"))
    print(f"{WANTED} rows: {WANTED / capped:,.0f}/s with 1h, {WANTED / free:,.0f}/s with 0s")
    assert capped <= 2 * free
