"""The memory of the Spark data source, for messages of several sizes, with default options.

    python benchmarks/spark_memory.py [--megabytes 600] [--sizes 200,1000,100000,1000000]

Needs the extra ``spark``, Java, and a real nsqd (tools/build_nsq.py). For each size and transport
a driver of its own, with a heap of 1 GiB, takes a backlog with trigger(availableNow=True) into
Spark's noop sink. Its tasks run in an executor of its own (local-cluster[1,2,1024]). The heap is
the sum of the peaks of its parts, garbage included; the others are the most that the system counted
for these processes (VmHWM), pages of files that they map included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nsqclient import Producer  # noqa: E402 - after the path it is on

from nsqd import Nsqd  # noqa: E402 - beside this file

MEBI = 1024 * 1024
#: Most messages of a backlog.
MOST = 1_000_000
#: Kinds of processes, by a part of their command lines; the first that fits.
KINDS = {
    "CoarseGrainedExecutorBackend": "executor", "deploy.worker": "", "deploy.master": "",
    "java": "driver's JVM", "streaming_source_runner": "source", "nsqclient.spark.ingest": "source",
}


def heap_peak(spark: Any) -> int:
    """Return the peak of the driver's heap in bytes."""
    pools = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    return sum(pool.getPeakUsage().getUsed() for pool in pools
               if pool.getType().toString() == "Heap memory")


def take(options: dict[str, str]) -> None:
    """Be the driver: take the backlog, print how many rows it had and the peak of the heap."""
    from nsqclient.spark.pipelines.sessions import open_session

    spark = open_session("memory", "local-cluster[1,2,1024]", {
        "spark.driver.memory": "1g", "spark.executor.memory": "1g", "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    began = time.monotonic()
    query = (spark.readStream.format("nsq").options(**options).load()
             .writeStream.format("noop").trigger(availableNow=True)
             .option("checkpointLocation", options["spoolDir"] + "-checkpoint").start())
    query.awaitTermination()
    rows = sum(progress["numInputRows"] for progress in query.recentProgress)
    print(json.dumps({"rows": rows, "heap": heap_peak(spark),
                      "seconds": time.monotonic() - began}), flush=True)
    spark.stop()


class Watch:
    """Notes the most memory of each kind of process of a session, until it is closed."""

    def __init__(self, session: int) -> None:
        self.peaks: dict[str, int] = {}
        self._session = session
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(0.2):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    self._look(entry)

    def _look(self, entry: Path) -> None:
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != self._session:
                return
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            status = (entry / "status").read_text()
        except OSError:
            return  # it ended
        kind = next((kind for part, kind in KINDS.items() if part in command), "")
        if kind and "VmHWM" in status:
            peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
            self.peaks[kind] = max(self.peaks.get(kind, 0), peak)

    def close(self) -> None:
        """Stop looking."""
        self._end.set()
        self._thread.join()


def measure(nsqd: Nsqd, size: int, count: int, transport: str, folder: str) -> dict[str, Any]:
    """Fill a topic and have it taken; return rows, heap and the peaks of the processes."""
    topic = f"m{size}-{transport}"
    nsqd.create(topic, "c")
    body = os.urandom(size)
    step = max(1, min(1000, 4 * MEBI // size))
    with Producer([nsqd.tcp_address]) as producer:
        for start in range(0, count, step):
            producer.publish_many(topic, [body] * min(step, count - start), timeout=60)
    options = {"nsqd": nsqd.tcp_address, "nsqdHttp": nsqd.http_address, "topic": topic,
               "channel": "c", "transport": transport, "spoolDir": f"{folder}/{topic}"}
    driver = subprocess.Popen([sys.executable, __file__, "--take", json.dumps(options)],
                              stdout=subprocess.PIPE, text=True, start_new_session=True)
    watch = Watch(driver.pid)
    try:
        output, _ = driver.communicate()
    finally:
        watch.close()
    nsqd.delete(topic)
    if driver.returncode:
        raise SystemExit(f"the driver ended with {driver.returncode}: {size} bytes, {transport}")
    return {**json.loads(output.splitlines()[-1]), **watch.peaks}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=600, help="of each backlog")
    parser.add_argument("--sizes", default="200,1000,100000,1000000")
    parser.add_argument("--take", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.take:
        take(json.loads(arguments.take))
        return 0
    columns = ("heap", "driver's JVM", "source", "executor")
    print(f"{'message':>9} {'transport':>9} {'messages':>9} {'seconds':>7}"
          + "".join(f" {column:>13}" for column in columns), flush=True)
    with tempfile.TemporaryDirectory() as folder, Nsqd() as nsqd:
        for size in map(int, arguments.sizes.split(",")):
            count = min(MOST, arguments.megabytes * 1_000_000 // size)
            for transport in ("inline", "file"):
                found = measure(nsqd, size, count, transport, folder)
                assert found["rows"] == count, found
                print(f"{size:9,} {transport:>9} {count:9,} {found['seconds']:7.1f}" + "".join(
                    f" {found.get(column, 0) / MEBI:9,.0f} MiB" for column in columns), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
