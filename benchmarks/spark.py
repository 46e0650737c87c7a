"""The speed of the Spark data source, and of its parts, in one run.

    python benchmarks/spark.py [--count 200000] [--size 200] [--rounds 2] [--only noop,write]

Needs the extra ``spark``, Java, and a real nsqd (tools/build_nsq.py). Every work runs in one warm
session: the first query of a JVM, which loads classes, is not counted. A rate is rows divided by
the time from the start of the first batch that has any to the end of the last one.
``processor`` is the processor time of a message from nsqd to Parquet, by process. It depends less
than the rates on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nsqclient import Producer  # noqa: E402 - after the path it is on
from nsqclient.http import NsqdHTTP  # noqa: E402 - the same
from nsqclient.spark.reading.receiver import Receiver  # noqa: E402 - the same
from nsqclient.spark.options import STREAM, read_options  # noqa: E402 - the same
from nsqclient.spark.pipelines.sources import open_session  # noqa: E402 - the same
from nsqclient.spark.reading.replay import count_messages  # noqa: E402 - the same
from nsqclient.spark.storage import open_store  # noqa: E402 - the same

from contestants import measure, prepare  # noqa: E402 - beside this file
from nsqd import Nsqd  # noqa: E402 - the same

#: Minimum rate (or maximum time) that is good enough, and the goal.
GOALS = {"parquet": (60_000, 80_000), "noop": (70_000, 100_000), "write": (150_000, 150_000),
         "latency": (0.6, 0.5)}
UNITS = {"latency": "s", "processor": "us"}
LIMIT = 180.0
#: Processes, by a part of their command lines. Others are what their parents are.
KINDS = [(b"nsqd\0", "nsqd"), (b"org.apache.spark.deploy.SparkSubmit", "JVM"),
         (b"python_streaming_source_runner", "ingest"), (b"pyspark.daemon", "tasks")]


class Bench:
    """One nsqd, one session, one folder."""

    def __init__(self, spark: Any, nsqd: Nsqd, folder: Path, count: int, size: int) -> None:
        self.spark = spark
        self.nsqd = nsqd
        self.folder = folder
        self.count = count
        self.body = b"x" * size
        self.used: list[dict[str, float]] = []  # by processor()
        self._runs = 0

    def fresh(self) -> tuple[str, Path]:
        """Return the name of a new topic, and a new folder."""
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        folder.mkdir()
        return f"bench-{os.getpid()}-{self._runs}", folder

    def options(self, topic: str, folder: Path, **more: str) -> dict[str, str]:
        return {"topic": topic, "channel": "bench", "nsqd": self.nsqd.tcp_address,
                "nsqdHttp": self.nsqd.http_address, "storage": str(folder / "log"), **more}

    def fill(self, topic: str) -> None:
        self.nsqd.fill(topic, "bench", self.count, [self.body] * 1000)

    def stream(self, sink: str, topic: str, folder: Path) -> Any:
        """Start a query with trigger 0."""
        frame = self.spark.readStream.format("nsq").options(
            **self.options(topic, folder)).load()
        writer = frame.writeStream.format(sink).option(
            "checkpointLocation", str(folder / "checkpoint"))
        if sink == "parquet":
            writer = writer.option("path", str(folder / "out"))
        return writer.start()

    def rate_of_stream(self, sink: str) -> float:
        topic, folder = self.fresh()
        self.fill(topic)
        query = self.stream(sink, topic, folder)
        try:
            batches = wait_for_rows(query, self.count)
        finally:
            query.stop()
        begun = began(batches[0])
        ended = began(batches[-1]) + batches[-1]["durationMs"]["triggerExecution"] / 1000
        return float(self.count / (ended - begun))

    def parquet(self) -> float:
        """Rate from nsqd to Parquet."""
        return self.rate_of_stream("parquet")

    def processor(self) -> float:
        """Processor time of a message from nsqd to Parquet, in microseconds."""
        topic, folder = self.fresh()
        self.fill(topic)
        before = processor_times()
        query = self.stream("parquet", topic, folder)
        try:
            wait_for_rows(query, self.count)
            after = processor_times()
        finally:
            query.stop()
        self.used.append({name: (seconds - before.get(name, 0.0)) / self.count * 1e6
                          for name, seconds in after.items()})
        return sum(self.used[-1].values())

    def noop(self) -> float:
        """Rate from nsqd to the noop sink."""
        return self.rate_of_stream("noop")

    def write(self) -> float:
        """Rate from a DataFrame to nsqd, with two tasks."""
        topic, _ = self.fresh()
        rows = self.spark.range(self.count, numPartitions=2).selectExpr(
            f"cast(lpad(cast(id AS string), {len(self.body)}, 'x') AS binary) AS body").persist()
        rows.count()
        started = time.perf_counter()
        rows.write.format("nsq").mode("append").options(
            nsqd=self.nsqd.tcp_address, topic=topic).save()
        took = time.perf_counter() - started
        rows.unpersist()
        stored = NsqdHTTP(self.nsqd.http_address).stats(topic=topic).topic(topic)
        if stored is None or stored.message_count != self.count:
            raise SystemExit(f"nsqd has not {self.count} messages of {topic}: {stored}")
        return self.count / took

    def ingest(self) -> float:
        """Rate from nsqd to the log, without Spark."""
        topic, folder = self.fresh()
        self.fill(topic)
        options = read_options(self.options(topic, folder), STREAM)
        store = open_store(options.storage)
        news = threading.Event()
        receiver = Receiver(options, store, news.set)
        started = time.perf_counter()
        try:
            receiver.prepare_drain()
            receiver.open()
            end = started + LIMIT
            while not receiver.drain_is_over():
                if time.perf_counter() > end:
                    raise SystemExit("the ingest did not come to its end")
                news.wait(0.05)
                news.clear()
            took = time.perf_counter() - started
        finally:
            receiver.stop()
        done = count_messages(store, topic, "bench")
        if done != self.count:
            raise SystemExit(f"the log has {done} rows of {self.count}")
        return self.count / took

    def files(self) -> float:
        """Rate of Spark's own file source to Parquet, with the same rows."""
        _, folder = self.fresh()
        rows = self.spark.range(self.count, numPartitions=2).selectExpr(
            "'t' AS topic", "'c' AS channel", "'127.0.0.1:4150' AS nsqd",
            "lpad(hex(id), 16, '0') AS message_id", "1 AS attempts",
            "current_timestamp() AS timestamp", "id AS timestamp_ns",
            f"cast(lpad(cast(id AS string), {len(self.body)}, 'x') AS binary) AS body")
        rows.write.parquet(str(folder / "in"))
        frame = self.spark.readStream.schema(rows.schema).parquet(str(folder / "in"))
        query = frame.writeStream.format("parquet").option("path", str(folder / "out")).option(
            "checkpointLocation", str(folder / "checkpoint")).start()
        try:
            batches = wait_for_rows(query, self.count)
        finally:
            query.stop()
        return float(self.count / (sum(
            batch["durationMs"]["triggerExecution"] for batch in batches) / 1000))

    def latency(self) -> float:
        """Median time from nsqd's timestamp to the sink's commit, with 50 messages a second."""
        topic, folder = self.fresh()
        query = self.stream("parquet", topic, folder)
        try:
            with Producer([self.nsqd.tcp_address]) as producer:
                pause, begun = threading.Event(), time.perf_counter()
                for number in range(1000):
                    producer.publish(topic, self.body)
                    pause.wait(max(0.0, begun + number / 50 - time.perf_counter()))
            wait_for_rows(query, 1000)
        finally:
            query.stop()
        return statistics.median(self._latencies(folder))

    def _latencies(self, folder: Path) -> list[float]:
        log = folder / "out" / "_spark_metadata"
        found = []
        for entry in log.iterdir():
            if not entry.name.split(".")[0].isdigit():
                continue
            committed = entry.stat().st_mtime
            paths = [json.loads(line)["path"] for line in entry.read_text().splitlines()[1:]]
            if entry.name.isdigit() and paths:
                stamps = self.spark.read.parquet(*paths).select("timestamp_ns").collect()
                found += [committed - row[0] / 1e9 for row in stamps]
        return found


def processor_times() -> dict[str, float]:
    """Return the processor time, in seconds, of this process and its descendants, by kind."""
    kinds = {os.getpid(): "this process"}
    used: dict[str, float] = {}
    for pid in sorted(int(entry.name) for entry in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):  # it ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            parent = kinds.get(int(fields[1]))
            if parent is not None and pid not in kinds:
                kinds[pid] = next((kind for words, kind in KINDS if words in command), parent)
            if pid in kinds:
                seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                used[kinds[pid]] = used.get(kinds[pid], 0.0) + seconds
    return used


def wait_for_rows(query: Any, count: int) -> list[dict[str, Any]]:
    """Wait until a query has taken ``count`` rows; return its batches with rows."""
    pause, end = threading.Event(), time.monotonic() + LIMIT
    while time.monotonic() < end:
        if query.exception() is not None:
            raise SystemExit(f"the query failed: {query.exception()}")
        batches = [json.loads(progress.json) for progress in query.recentProgress
                   if progress.numInputRows]
        if sum(batch["numInputRows"] for batch in batches) >= count:
            return batches
        pause.wait(0.1)
    raise SystemExit(f"a query did not take {count} rows in {LIMIT:g} s")


def began(progress: dict[str, Any]) -> float:
    """Return when a batch was triggered."""
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()


def limit(bench: Bench) -> float:
    """Rate of a bare loop on a socket that only sends FIN: nsqd's own limit."""
    topic, _ = bench.fresh()
    bench.fill(topic)
    # The last messages wait in nsqd's output buffer, see the page on consuming.
    most = bench.count - 10_000
    result = measure(
        prepare(["limit"], "consume")["limit"],
        [bench.nsqd.tcp_address, topic, "bench", most, 2500, 1])
    if result is None:
        raise SystemExit("the bare loop did not run")
    return result.rate


def main() -> int:
    """Measure, and compare with the goals. The exit status is 1 if one is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="parquet,noop,write,latency,ingest,files,limit,processor")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nsqd = stack.enter_context(Nsqd())
        spark = open_session("nsqclient benchmark", "local[2]", {
            "spark.ui.enabled": "false", "spark.driver.memory": "1g",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.streaming.numRecentProgressUpdates": "10000"})
        stack.callback(spark.stop)
        bench = Bench(spark, nsqd, folder, arguments.count, arguments.size)
        works: dict[str, Callable[[], float]] = {
            "parquet": bench.parquet, "noop": bench.noop, "write": bench.write,
            "latency": bench.latency, "ingest": bench.ingest, "files": bench.files,
            "processor": bench.processor,
            "limit": lambda: limit(bench),
        }
        print("warming up: the first query is not counted", file=sys.stderr)
        bench.parquet()
        bench.write()
        names = [name for name in works if name in arguments.only.split(",")]
        found: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(arguments.rounds):
            for name in names:
                found[name].append(works[name]())
    return report(found, bench.used)


def report(found: dict[str, list[float]], used: list[dict[str, float]]) -> int:
    print(f"{'work':<10} {'median':>12} {'lowest':>12} {'highest':>12}   least        goal")
    status = 0
    for name, figures in found.items():
        median = statistics.median(figures)
        unit = UNITS.get(name, "/s")
        shown = [f"{value:>10,.{0 if unit == '/s' else 3}f}{unit:>2}"
                 for value in (median, min(figures), max(figures))]
        line = f"{name:<10} {' '.join(shown)}"
        if name in GOALS:
            least, goal = GOALS[name]
            good = median <= least if name == "latency" else median >= least
            reached = median <= goal if name == "latency" else median >= goal
            result = "goal" if reached else "ok" if good else "MISSED"
            line += f"   {least:<10g} {goal:<10g} {result}"
            status |= not good
        print(line)
    for kind in sorted({kind for one in used for kind in one}):
        print(f"  {kind:<20} {statistics.median(one.get(kind, 0.0) for one in used):>6.2f} us")
    return status


if __name__ == "__main__":
    sys.exit(main())
