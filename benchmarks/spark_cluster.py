"""Measure owners of shards and the planning of a query, without Spark.

    python benchmarks/spark_cluster.py [--count 200000] [--size 200] [--rounds 2]
                                       [--owners 1,2,4,8,16] [--busy 2] [--only owners,plan]
                                       [--minio | --storage s3://bucket/prefix]

Needs a real nsqd (tools/build_nsq.py) and the extra ``spark``, but no Java.

``owners`` starts processes of ``nsqclient spark ingest``. Each has its own nsqd, whose channel is
full and paused. The time runs from the end of the pause until nsqd is empty. With ``--busy 2``
only two nsqds deliver at a time, so that owners do not share processors. ``driver`` is the
processor time in which Spark's driver-side Python process plans the same messages in batches of
200,000, and ``share`` is its ratio to the owners' processor time. Compare processor times on a busy
machine: messages/s vary there. ``--minio`` starts MinIO (tools/build_minio.py) as the storage.

``plan`` plans one batch over 100 simulated shards with 10,000 segments each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from nsqclient.http import NsqdHTTP  # noqa: E402 - imported after sys.path is set
from nsqclient.spark.options import STREAM, read_options  # noqa: E402
from nsqclient.spark.reading.reader import NsqStreamReader  # noqa: E402
from nsqclient.spark.segment import read_ids  # noqa: E402
from nsqclient.spark.shards.admission import ShardSegments, plan_batch  # noqa: E402
from nsqclient.spark.shards.listing import list_shards  # noqa: E402
from nsqclient.spark.shards.names import Segment, ShardKeys  # noqa: E402
from nsqclient.spark.storage import Store, open_store  # noqa: E402

from nsqd import Nsqd  # noqa: E402

TOPIC, CHANNEL = "bench", "spark"
#: Seconds that each wait may take.
LIMIT = 300.0
#: Seconds between two checks of a condition.
_PAUSE = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class Stored(NamedTuple):
    """The figures of one run."""

    rate: float  #: messages per second, all owners together
    owner: float  #: seconds of processor time for a million messages
    segments: int
    driver: float  #: seconds of processor time for a million messages


def processor_time(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rows_of(store: Store) -> tuple[int, int]:
    """Count stored messages and segments from listings, and the content of the newest segment."""
    rows = segments = 0
    for shard in list_shards(store, TOPIC, CHANNEL):
        if not shard.segments:
            continue
        newest = shard.segments[-1]
        key = ShardKeys(TOPIC, CHANNEL, shard.nsqd).segment(newest.number, newest.before)
        rows += newest.before + read_ids(store.read(key)).rows
        segments += len(shard.segments)
    return rows, segments


def wait_for(condition: Any, what: str) -> None:
    deadline, pause = time.monotonic() + LIMIT, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"timed out after {LIMIT:g} s waiting until {what}")
        pause.wait(_PAUSE)


@contextlib.contextmanager
def minio() -> Iterator[str]:
    """Run MinIO, set the variables of the AWS libraries, and yield the URL of a new bucket."""
    program = CHECKOUT / ".cache" / "minio" / "minio"
    if not os.access(program, os.X_OK):
        raise SystemExit("there is no MinIO: run tools/build_minio.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    os.environ.update(
        AWS_ENDPOINT_URL_S3=f"http://{address}", AWS_ACCESS_KEY_ID="key",
        AWS_SECRET_ACCESS_KEY="secretsecret", AWS_DEFAULT_REGION="us-east-1")
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
        [program, "server", "--quiet", "--address", address, f"{folder}/data"],
        env={**os.environ, "MINIO_ROOT_USER": "key", "MINIO_ROOT_PASSWORD": "secretsecret",
             "HOME": folder},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as server:
        try:
            wait_for(make_bucket, "MinIO answers")
            yield "s3://bucket/nsq"
        finally:
            server.kill()


def make_bucket() -> bool:
    """Try to create the bucket; return True on success."""
    import boto3

    try:
        boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"]).create_bucket(
            Bucket="bucket")
    except Exception:  # MinIO is not listening yet; boto3 raises many kinds of exception
        return False
    return True


def run_owners(number: int, busy: int, count: int, size: int, url: str) -> Stored:
    """Let owners receive ``count`` messages each, ``busy`` of them at once; then plan batches."""
    store = open_store(url)
    with contextlib.ExitStack() as stack:
        nsqds = [stack.enter_context(Nsqd()) for _ in range(number)]
        for nsqd in nsqds:
            nsqd.fill(TOPIC, CHANNEL, count, [b"x" * size] * 1000)
            pause(nsqd, True)
        processes = []
        for nsqd in nsqds:
            process = stack.enter_context(subprocess.Popen(
                [sys.executable, "-m", "nsqclient", "spark", "ingest", f"--topic={TOPIC}",
                 f"--channel={CHANNEL}", f"--storage={url}",
                 f"--nsqd-tcp-address={nsqd.tcp_address}",
                 "--consumer-opt=max_in_flight,10000", "--consumer-opt=connections,4",
                 "--consumer-opt=maxLogMessages,100000000",
                 "--consumer-opt=maxLogBytes,100000000000", "--log-level=warn"], cwd=CHECKOUT))
            stack.callback(process.terminate)
            processes.append(process)
        wait_for(lambda: len(list_shards(store, TOPIC, CHANNEL)) == number
                 and all(nsqd.channel(TOPIC, CHANNEL)["client_count"] == 4 for nsqd in nsqds),
                 "owners are connected")
        used = sum(map(processor_time, processes))
        began = time.monotonic()
        for first in range(0, number, busy):
            some = nsqds[first:first + busy]
            for nsqd in some:
                pause(nsqd, False)
            wait_for(lambda: all(map(finished, some)), "every nsqd is empty")
        seconds = time.monotonic() - began
        used = sum(map(processor_time, processes)) - used
        rows, segments = rows_of(store)
        if rows != number * count:
            raise SystemExit(f"{rows} messages are stored, {number * count} were published")
        return Stored(rows / seconds, used / rows * 1e6, segments, plan_stored(url, rows))


def pause(nsqd: Nsqd, is_paused: bool) -> None:
    """Pause or unpause a channel."""
    with NsqdHTTP(nsqd.http_address) as client:
        (client.pause_channel if is_paused else client.unpause_channel)(TOPIC, CHANNEL)


def finished(nsqd: Nsqd) -> bool:
    """Return True if nsqd has no messages left."""
    stats = nsqd.channel(TOPIC, CHANNEL)
    return not stats["depth"] and not stats["in_flight_count"]


def plan_stored(url: str, rows: int) -> float:
    """Plan batches over stored segments, as Spark does; return processor seconds per million."""
    reader = NsqStreamReader(read_options(
        {"topic": TOPIC, "channel": CHANNEL, "storage": url, "startingOffsets": "earliest",
         "retentionMs": "86400000", "retentionBytes": "100000000000"}, STREAM))
    try:
        reader.prepareForTriggerAvailableNow()  # else it waits for more at the end
        place = reader.initialOffset()
        used = time.process_time()
        while (end := reader.latestOffset(place, reader.getDefaultReadLimit())) != place:
            reader.partitions(place, end)
            place = end
        return (time.process_time() - used) / rows * 1e6
    finally:
        reader.stop()


def plan_simulated(shards: int = 100, segments: int = 10_000) -> float:
    """Return the processor time of one plan in seconds."""
    logs = {}
    for number in range(shards):
        log = ShardSegments(0)
        for segment in range(1, segments + 1):
            log.add(Segment(segment, 1000 * segment, 240_000))
        logs[f"node{number}:4150"] = log
    start = dict.fromkeys(logs, 0)
    used = time.process_time()
    plan_batch(logs, start, 200_000, 256 * 1024 * 1024)
    return time.process_time() - used


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000, help="messages for each owner")
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--owners", default="1,2,4,8,16")
    parser.add_argument("--busy", type=int, default=0,
                        help="number of owners that receive at once (default: all)")
    parser.add_argument("--only", default="owners,plan")
    parser.add_argument("--storage", default="", help="default: a temporary folder")
    parser.add_argument("--minio", action="store_true", help="start MinIO, and store there")
    arguments = parser.parse_args()
    works = arguments.only.split(",")
    if not {"owners", "plan"}.issuperset(works):
        parser.error(f"--only={arguments.only}: give owners, plan, or owners,plan")
    with contextlib.ExitStack() as stack:
        if arguments.minio:
            arguments.storage = stack.enter_context(minio())
        measure(arguments, works)
    return 0


@contextlib.contextmanager
def new_storage(storage: str) -> Iterator[str]:
    """Yield the URL of an empty storage: below `storage` if given, otherwise a temporary folder."""
    if storage:
        yield f"{storage.rstrip('/')}/bench-{uuid.uuid4().hex[:12]}"
        return
    with tempfile.TemporaryDirectory() as folder:
        yield f"file://{folder}/nsq"


def measure(arguments: argparse.Namespace, works: list[str]) -> None:
    """Run the chosen works, and print the figures."""
    if "owners" in works:
        print(f"{'owners':<8}{'messages/s':>14}{'owner, s/million':>20}{'driver, s/million':>20}"
              f"{'share':>8}{'segments':>10}")
        for number in map(int, arguments.owners.split(",")):
            found = []
            for _ in range(arguments.rounds):
                with new_storage(arguments.storage) as url:
                    found.append(run_owners(
                        number, arguments.busy or number, arguments.count, arguments.size, url))
            rate, owner, segments, driver = map(statistics.median, zip(*found))
            print(f"{number:<8}{rate:>14,.0f}{owner:>20.2f}{driver:>20.3f}"
                  f"{driver / owner:>8.1%}{segments:>10,.0f}",
                  flush=True)
    if "plan" in works:
        seconds = statistics.median(plan_simulated() for _ in range(5))
        print(f"a plan over 100 shards with 10,000 segments each: {seconds * 1000:.1f} ms")


if __name__ == "__main__":
    sys.exit(main())
