"""``nsqclient spark ingest``: owns shards, from nsqds into their logs.

Here, which needs no Spark, or with ``--master`` in the tasks of a Spark job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from nsqclient.cli import spark_run
from nsqclient.cli.flags import INT, STRING, CommandLineError, Parsed, positive
from nsqclient.cli.signals import Signals
from nsqclient.cli.tool_flags import LEVELS, ToolFlags
from nsqclient.metrics import check_prometheus
from nsqclient.spark.options import ReadOptions, ingest_options
from nsqclient.worker.status_server import Response, serve_status

if TYPE_CHECKING:
    from nsqclient.spark.shards.owners import ShardOwners

logger: logging.Logger = logging.getLogger("nsqclient.cli")

#: Seconds between two looks at the job. A signal is handled at once.
_CHECK_INTERVAL = 0.5
#: Tasks, unless the user says otherwise.
_TASKS = 4

_SUMMARY = """\
Receives the messages of a topic from nsqds, stores them on shared storage in one log per nsqd, and
finishes each message when it is stored. Queries with the option storage read the logs from any
machine. Several processes for one topic and channel divide the nsqds among themselves. With
--master, the tasks of one Spark job do this. At SIGINT or SIGTERM, the command stores the messages
that it has received, requeues those that arrive later and exits."""

_EXAMPLES = [
    ("run one process next to each nsqd",
     "nsqclient spark ingest --nsqd-tcp-address=node7:4150 --topic=orders \\\n"
     "      --storage=s3://bucket/nsq"),
    ("run one process for all nsqds of the topic",
     "nsqclient spark ingest --lookupd-http-address=127.0.0.1:4161 --topic=orders \\\n"
     "      --storage=file:///mnt/nsq"),
    ("run a Spark job whose tasks divide the nsqds of the topic",
     "nsqclient spark ingest --master=spark://node1:7077 --tasks=8 --topic=orders \\\n"
     "      --lookupd-http-address=node1:4161 --storage=s3://bucket/nsq"),
]


def ingest_flags() -> ToolFlags:
    """The flags of the ingest."""
    flags = ToolFlags("spark ingest", ingest, _SUMMARY, _EXAMPLES)
    flags.group("Input")
    spark_run.add_queue(flags, "archive", required=True)
    flags.group("Output")
    flags.add("storage", STRING, "", "storage, an absolute path or s3://bucket/prefix;"
              " required. Credentials come from the environment, a profile or a role")
    flags.require("storage")
    flags.group("Metrics")
    flags.add("metrics-address", STRING, "", "<addr>:<port> on which to serve /metrics (Prometheus)"
              " with the state of each shard")
    flags.group("Spark")
    flags.add("master", STRING, "", "master URL of Spark, to own shards in the tasks of a Spark job"
              " (default: that of spark-submit; otherwise this process owns them)")
    flags.add("tasks", positive(INT), _TASKS, "number of tasks of the job; each occupies one core")
    flags.add("conf", spark_run.SETTING, (), "Spark setting; may be repeated")
    flags.add_common()
    return flags


def read_ingest(parsed: Parsed) -> ReadOptions:
    """Read the options that the flags say.

    Raises:
        CommandLineError, ConfigError: something is missing or wrong.
    """
    values = parsed.values
    return ingest_options({**spark_run.read_queue(values), "topic": values["topic"],
                           "channel": values["channel"]})


def ingest(parsed: Parsed) -> int:
    """Own shards until a signal comes, here or in a Spark job.

    Raises:
        NSQError: the storage cannot be used, or an nsqd rejects us.
    """
    values = parsed.values
    options = read_ingest(parsed)
    is_job = bool(values["master"]) or "PYSPARK_GATEWAY_PORT" in os.environ
    if values["conf"] and not is_job:
        raise CommandLineError("--conf is for Spark: give --master, too")
    if values["master"].startswith("sc:"):
        raise CommandLineError("a job of owners needs a SparkContext, which Spark Connect does not"
                               " give: name the master of the cluster, or use spark-submit")
    address = values["metrics-address"]
    if address and is_job:
        raise CommandLineError("--metrics-address is for the shards of this process: with --master,"
                               " scrape nsqclient spark status --metrics")
    if address:
        check_prometheus("--metrics-address")
    try:
        import nsqclient.spark.shards.owners  # noqa: F401 # only whether it can be imported
    except ImportError as exc:
        raise CommandLineError(
            f"pyarrow is needed: pip install 'nsqclient[spark-storage]' ({exc})") from exc
    return _ingest_on_spark(values, options) if is_job else _ingest_here(options, address)


def _ingest_here(options: ReadOptions, metrics_address: str) -> int:
    from nsqclient.spark.ingest_job import STOP_TIMEOUT
    from nsqclient.spark.shards.owners import ShardOwners
    from nsqclient.spark.storage.store import open_store

    store = open_store(options.storage)
    owners = ShardOwners(options, store)
    with _serve_metrics(metrics_address, owners) as lines, Signals() as signals:
        for line in lines:
            logger.info("metrics are on %s/metrics", line.rpartition(" ")[2])
        try:
            owners.open()
            owners.run(signals.wait)
        finally:
            logger.info("stopping")
            owners.stop(STOP_TIMEOUT)
    return 0


def _ingest_on_spark(values: dict[str, Any], options: ReadOptions) -> int:
    from nsqclient.spark.handshakes import check_handshakes
    from nsqclient.spark.ingest_job import DEFAULTS, FORCED, IngestJob
    from nsqclient.spark.storage.store import open_store, probe

    store = open_store(options.storage)
    # What is wrong everywhere is an error before Spark starts, which is slow.
    probe(store)
    check_handshakes(options.nsqd, options.lookupd, options.topic, options.config)
    conf = [*DEFAULTS.items(), *values["conf"], *FORCED.items()]
    try:
        spark = spark_run.start_session(
            {**values, "conf": conf}, f"nsqclient spark ingest {options.topic}")
    except KeyboardInterrupt:  # of PySpark's own handler
        return 0
    try:
        job = IngestJob(
            spark, options, store, values["tasks"], LEVELS[values["log-level"].lower()])
        with Signals() as signals:
            job.start()
            try:
                while job.is_active and not signals.wait(_CHECK_INTERVAL):
                    job.report()
            finally:
                logger.info("stopping")
                job.stop()
        if not signals.is_stopping:
            why = spark_run.reason(job.error or RuntimeError("its tasks have ended"))
            raise CommandLineError(f"the job has ended: {why}")
    finally:
        spark.stop()
    return 0


def _serve_metrics(
    address: str, owners: ShardOwners
) -> contextlib.AbstractContextManager[list[str]]:
    """Answer scrapes at an address while owners run; empty: do not."""
    if not address:
        return contextlib.nullcontext([])
    from nsqclient.metrics.prometheus import render
    from nsqclient.metrics.spark import owner_metrics, shard_metrics

    def scrape() -> Response:
        found = list(owners.owners.values())
        return Response(200, *render([
            *shard_metrics([one.status() for one in found], time.time()), *owner_metrics(found)]))

    return serve_status("", address, scrape=scrape)
