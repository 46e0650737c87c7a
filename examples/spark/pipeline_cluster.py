"""The pipeline on a cluster, in one run: nsqds, owners as tasks, storage, a query, a picture.

Starts a standalone cluster of Spark (a master and two workers), an nsqlookupd and two embedded
nsqds. A Spark job whose tasks, the owners, move the published messages from the nsqds onto the
storage (``nsqclient spark ingest --master``); a query with its own driver writes them to Parquet.
Then, as in ``make pipeline``, words are counted, and the archive is compared with the published
lines.

    make pipeline-cluster                            the sample file, a folder as storage
    make pipeline-cluster INPUT=/var/log/syslog      a file of yours
    make pipeline-cluster STORAGE=s3://bucket/nsq    credentials from the usual environment

The exit status is 0 only when every line is in the archive exactly once, and the owners exited
with status 0.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from picture import draw
from pipeline import SAMPLE, count_words, ledger, publish, say, table
from pyspark.errors import StreamingQueryException
from standalone import FAST_START, StandaloneCluster

import nsqclient.spark
from nsqclient import NSQError, Producer
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.spark.pipelines.sources import open_session

CHANNEL = "archive"
NSQDS = 2
#: Cores for the owners, and for the query. Their sum is all the cores of the cluster.
TASKS, CORES = 2, 2
#: Seconds for Spark to start and the owners to store every message, on a busy machine.
LIMIT = 600.0
#: Attempts to run the query.
TRIES = 5
#: Spark settings of both applications.
SETTINGS = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": FAST_START,
    "spark.ui.enabled": "false"}


class Owners:
    """The job of owners. The constructor starts it; leaving ``with`` kills it if it still runs."""

    def __init__(self, master: str, topic: str, lookupd: str, storage: str, log: Path) -> None:
        self._log = log
        words = [
            "spark", "ingest", f"--master={master}", f"--tasks={TASKS}", f"--topic={topic}",
            f"--channel={CHANNEL}", f"--storage={storage}", f"--lookupd-http-address={lookupd}",
            f"--conf=spark.cores.max={TASKS}"]
        say("$ " + " ".join(["nsqclient", *words]))
        conf = [f"--conf={name}={value}" for name, value in SETTINGS.items()]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nsqclient", *words, *conf],
                stdout=output, stderr=output, start_new_session=True)

    def __enter__(self) -> Owners:
        return self

    def check(self) -> None:
        """Raise if the process has ended by itself."""
        if self._process.poll() is not None:
            raise NSQError(f"the owners ended by themselves: see {self._log}")

    def end(self) -> None:
        """Ask the process to end, without waiting."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait for the end; raise if the process failed."""
        try:
            status = self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise NSQError(f"the owners did not end in time: see {self._log}") from None
        if status:
            raise NSQError(f"the owners ended with status {status}: see {self._log}")

    def __exit__(self, *exc_info: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def wait_until_stored(nsqds: list[Nsqd], topic: str, owners: Owners, log: Path) -> None:
    """Wait until the owners have finished every message of the nsqds."""
    until = time.monotonic() + LIMIT
    while any(nsqd.messages(topic, CHANNEL) for nsqd in nsqds):
        owners.check()
        if time.monotonic() > until:
            raise NSQError(f"the owners did not store everything in time: see {log}")
        time.sleep(0.2)


def archive(spark: Any, topic: str, storage: str, folder: Path) -> None:
    """Write the stored messages to Parquet; a query that fails continues from its checkpoint."""
    for left in reversed(range(TRIES)):
        query = (
            spark.readStream.format("nsq")
            .option("topic", topic)
            .option("channel", CHANNEL)
            .option("storage", storage)
            .load()
            .writeStream.format("parquet")
            .option("path", str(folder / "archive"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as exc:
            # On a busy machine Spark may find that its Python process started too slowly.
            if not left:
                raise NSQError(f"the query failed: {exc}") from exc
            say("the query failed, and begins again")


def run(lines: list[bytes], folder: Path, topic: str) -> int:
    """Run the pipeline; return the exit status."""
    storage = os.environ.get("STORAGE") or f"file://{folder}/storage"
    log = folder / "owners.log"
    with contextlib.ExitStack() as stack:
        say("starting a cluster: a master and two workers")
        cluster = stack.enter_context(StandaloneCluster(folder))
        lookupd = stack.enter_context(Nsqlookupd())
        nsqds = [stack.enter_context(Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]))
                 for _ in range(NSQDS)]
        say(f"embedded nsqds on {', '.join(nsqd.tcp_address for nsqd in nsqds)}")
        published = 0
        for number, nsqd in enumerate(nsqds):
            nsqd.create_topic(topic)
            nsqd.create_channel(topic, CHANNEL)
            with Producer([nsqd.tcp_address]) as producer:
                published += publish(producer, topic, lines, number, NSQDS)
        say(f"published {published:,} lines to {topic}")
        master = cluster.start_workers()
        # Both drivers start at once; Spark lets them wait for the workers.
        owners = stack.enter_context(
            Owners(master, topic, lookupd.http_address, storage, log))
        say(f"starting the driver of the query on {master}")
        spark = open_session("nsqclient pipeline-cluster", master, {
            "spark.sql.shuffle.partitions": "2", "spark.cores.max": str(CORES), **SETTINGS})
        stack.callback(spark.stop)
        nsqclient.spark.print_progress(spark)
        wait_until_stored(nsqds, topic, owners, log)
        say("the owners have stored everything; stopping them")
        owners.end()
        archive(spark, topic, storage, folder)
        rows = spark.read.parquet(str(folder / "archive"))
        counts = count_words(rows)
        entries = ledger(rows, published)
        owners.wait()
    print(table(("word", "count"), counts))
    (folder / "words.svg").write_text(draw(
        counts, "Most frequent words of the archive",
        f"{entries['archived']:,} messages of {NSQDS} nsqds, archived and counted on a cluster",
    ), encoding="utf-8")
    print(table(("ledger", "messages"), list(entries.items())))
    print(f"the archive and the picture are in {os.path.relpath(folder)}: words.svg")
    return 0 if not entries["duplicates"] and not entries["missing"] else 1


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        lines = Path(os.environ.get("INPUT") or SAMPLE).read_bytes().splitlines()
    except OSError as exc:
        print(f"cannot read INPUT: {exc}", file=sys.stderr)
        return 2
    if not lines:
        print("INPUT has no lines", file=sys.stderr)
        return 2
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    topic = time.strftime("pipeline-%Y%m%d-%H%M%S")
    folder = Path("pipeline-output") / topic
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run(lines, folder.resolve(), topic)
    except (NSQError, TimeoutError) as exc:
        print(f"pipeline-cluster: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
