"""``nsqclient spark ingest`` receives into logs on shared storage; ``spark status`` shows them.

Neither needs Spark: with ``--master`` the tasks of a Spark job own the shards.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.cli import spark_run
from nsqclient.cli.flags import (
    BOOL, INT, LISTEN, NAME, STRING, STRINGS, CommandLineError, Parsed, positive,
)
from nsqclient.cli.tool_flags import ToolFlags
from nsqclient.config import Config
from nsqclient.consumer.connections import NsqdSources
from nsqclient.display import show_size, table
from nsqclient.errors import NSQError
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.urls import lookup_url, nsqd_url
from nsqclient.log_records import LEVELS
from nsqclient.metrics import check_prometheus
from nsqclient.runtime.addresses import format_address
from nsqclient.runtime.deadline import format_duration
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.spark.options import ReadOptions, ingest_options
from nsqclient.spark.session import reason_of
from nsqclient.worker.status_server import Response, serve_status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from nsqclient.spark.shards.listing import ShardStatus
    from nsqclient.spark.shards.owners import ShardOwner, ShardOwners

logger: logging.Logger = logging.getLogger("nsqclient.cli")

#: Seconds between two checks of the job. A signal is handled at once.
_CHECK_INTERVAL = 0.5
_TASKS = 4
#: Seconds for one answer of an nsqd.
_TIMEOUT = 2.0

_INGEST_SUMMARY = """\
Receives the messages of a topic from nsqds, stores them on shared storage in one log per nsqd, and
finishes each message when it is stored. Queries with the option storage read the logs from any
machine. Several processes for one topic and channel divide the nsqds among themselves. With
--master, the tasks of one Spark job do this. At SIGINT or SIGTERM, the command stores the messages
that it has received, requeues those that arrive later and exits."""

_INGEST_EXAMPLES = [
    ("run one process next to each nsqd",
     "nsqclient spark ingest --nsqd-tcp-address=node7:4150 --topic=orders \\\n"
     "      --storage=s3://bucket/nsq"),
    ("run a Spark job whose tasks divide the nsqds of the topic",
     "nsqclient spark ingest --master=spark://node1:7077 --tasks=8 --topic=orders \\\n"
     "      --lookupd-http-address=node1:4161 --storage=s3://bucket/nsq"),
]


def _add_storage(flags: ToolFlags) -> None:
    flags.add("storage", STRING, "", "storage, an absolute path or s3://bucket/prefix;"
              " required. Credentials come from the environment, a profile or a role")
    flags.require("storage")


def ingest_flags() -> ToolFlags:
    flags = ToolFlags("spark ingest", ingest, _INGEST_SUMMARY, _INGEST_EXAMPLES)
    flags.group("Input")
    spark_run.add_queue(flags, "archive", required=True)
    flags.group("Output")
    _add_storage(flags)
    flags.group("Metrics")
    flags.add("metrics-address", LISTEN, "", "<addr>:<port> on which to serve /metrics (Prometheus)"
              " with the state of each shard")
    flags.group("Spark")
    flags.add("master", STRING, "", "master URL of Spark, to own shards in the tasks of a Spark job"
              " (default: that of spark-submit; otherwise this process owns them)")
    flags.add("tasks", positive(INT), _TASKS, "number of tasks of the job; each occupies one core")
    flags.add("conf", spark_run.SETTING, (), "Spark setting; may be repeated")
    flags.add_common()
    return flags


def ingest(parsed: Parsed) -> int:
    """Own shards until a signal comes, here or in a Spark job."""
    values = parsed.values
    options = ingest_options({**spark_run.read_queue(values), "topic": values["topic"],
                              "channel": values["channel"]})
    is_job = bool(values["master"]) or "PYSPARK_GATEWAY_PORT" in os.environ
    if values["conf"] and not is_job:
        raise CommandLineError("--conf is for Spark: give --master too")
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
            f"pyarrow is missing: pip install 'nsqclient[spark-storage]' ({exc})") from exc
    return _ingest_on_spark(values, options) if is_job else _ingest_here(options, address)


def _ingest_here(options: ReadOptions, metrics_address: str) -> int:
    from nsqclient.spark.reading.ingest_job import STOP_TIMEOUT
    from nsqclient.spark.shards.owners import ShardOwners
    from nsqclient.spark.storage import open_store

    store = open_store(options.storage)
    owners = ShardOwners(options, store)
    with _serve_metrics(metrics_address, owners) as lines, Signals(Second.EXIT) as signals:
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
    from nsqclient.spark.reading.ingest_job import DEFAULTS, FORCED, IngestJob
    from nsqclient.spark.storage import open_store, probe

    store = open_store(options.storage)
    # An error that every machine would have comes before Spark starts, which is slow.
    probe(store)
    check_handshakes(options.nsqd, options.lookupd, options.topic, options.config)
    conf = [*DEFAULTS.items(), *values["conf"], *FORCED.items()]
    try:
        spark = spark_run.start_session(
            {**values, "conf": conf}, f"nsqclient spark ingest {options.topic}")
    except KeyboardInterrupt:  # raised by PySpark's handler
        return 0
    try:
        job = IngestJob(
            spark, options, store, values["tasks"], LEVELS[values["log-level"].lower()])
        with Signals(Second.EXIT) as signals:
            job.start()
            try:
                while job.is_active and not signals.wait(_CHECK_INTERVAL):
                    job.report()
            finally:
                logger.info("stopping")
                job.stop()
        if not signals.is_stopping:
            why = reason_of(job.error or "its tasks have ended")
            raise CommandLineError(f"the job has ended: {why}")
    finally:
        spark.stop()
    return 0


def _serve_metrics(
    address: str, owners: ShardOwners
) -> contextlib.AbstractContextManager[list[str]]:
    if not address:
        return contextlib.nullcontext([])
    from nsqclient.metrics.prometheus import render

    def scrape() -> Response:
        found = list(owners.owners.values())
        return Response(200, *render([
            *shard_metrics([one.status() for one in found], time.time()), *owner_metrics(found)]))

    return serve_status("", address, scrape=scrape)


_STATUS_SUMMARY = """\
Shows the logs that owners (nsqclient spark ingest) have written to shared storage, one per nsqd:
which process wrote last, how many messages Spark has not committed, and the age of the oldest. It
changes nothing. With HTTP addresses of nsqds or nsqlookupds, it also shows the depth at nsqd."""

_STATUS_EXAMPLES = [
    ("show all topics in a storage", "nsqclient spark status --storage=s3://bucket/nsq"),
    ("show one channel, with its depth at nsqd",
     "nsqclient spark status --storage=file:///mnt/nsq --topic=orders --channel=archive \\\n"
     "      --lookupd-http-address=127.0.0.1:4161"),
    ("write metrics for the textfile collector of the Prometheus node exporter",
     "nsqclient spark status --storage=s3://bucket/nsq --metrics > /var/lib/nsq.prom.new \\\n"
     "      && mv /var/lib/nsq.prom.new /var/lib/nsq.prom"),
]

_HEADER = ("topic/channel", "nsqd", "segment", "lag", "lag bytes", "oldest",
           "last write", "kept", "depth", "in flight", "owner")
_LEFT = ("topic/channel", "nsqd", "owner")


def status_flags() -> ToolFlags:
    flags = ToolFlags("spark status", status, _STATUS_SUMMARY, _STATUS_EXAMPLES)
    flags.group("Input")
    _add_storage(flags)
    flags.add("topic", NAME, "", "NSQ topic (default: all topics in the storage)")
    flags.add("channel", NAME, "", "NSQ channel (default: all)")
    flags.add("nsqd-http-address", STRINGS, (), "HTTP address of an nsqd to query for the depth,"
              " <addr>:<port>; may be repeated")
    flags.add("lookupd-http-address", STRINGS, (), "HTTP address of an nsqlookupd that lists the"
              " nsqds to query, <addr>:<port>; may be repeated")
    flags.group("Output")
    flags.add("json", BOOL, False, "print a JSON object")
    flags.add("metrics", BOOL, False, "print metrics in the text format of Prometheus")
    flags.exclude("json", "metrics")
    flags.add_common()
    return flags


def status(parsed: Parsed) -> int:
    values = parsed.values
    for address in values["nsqd-http-address"]:
        nsqd_url(address, "stats")
    for address in values["lookupd-http-address"]:
        lookup_url(address)
    if values["metrics"]:
        check_prometheus("--metrics")
    try:
        from nsqclient.spark.shards.listing import list_channels, read_status
        from nsqclient.spark.storage import open_store
    except ImportError as exc:
        raise CommandLineError(
            f"pyarrow is missing: pip install 'nsqclient[spark-storage]' ({exc})") from exc
    store = open_store(values["storage"])
    shards: list[ShardStatus] = []
    unknown: dict[str, str] = {}
    for topic, channel in list_channels(store, values["topic"], values["channel"]):
        found = read_status(store, topic, channel)
        found, unasked = _with_depths(found, topic, channel, values)
        shards += found
        unknown |= unasked
    now = time.time()
    if values["metrics"]:
        from nsqclient.metrics.prometheus import render

        sys.stdout.write(render(shard_metrics(shards, now))[1].decode())
    elif values["json"]:
        print(json.dumps({"shards": [_as_json(one, now) for one in shards],
                          "depth_unknown": unknown}))
    elif not shards:
        print("no shards: no owner (nsqclient spark ingest) has written there")
    else:
        print("\n".join(draw(shards, now)))
    if not values["json"]:
        for address, why in sorted(unknown.items()):
            print(f"depth of {address} is not known: {why}", file=sys.stderr)
    return 0


def _with_depths(
    shards: Sequence[ShardStatus], topic: str, channel: str, values: Mapping[str, Any]
) -> tuple[list[ShardStatus], dict[str, str]]:
    """Add the depths at nsqds; return also the addresses that could not be asked."""
    from nsqclient.consumer.channel_depth import DepthQuery, is_at  # slow to import
    from nsqclient.spark.shards.listing import ShardStatus

    lookupds, nsqd_http = values["lookupd-http-address"], values["nsqd-http-address"]
    if not (lookupds or nsqd_http):
        return list(shards), {}
    by_nsqd = {one.nsqd: one for one in shards}
    config = Config()
    http_of: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for http in nsqd_http:
        try:
            with NsqdHTTP(http, config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT) as client:
                info = client.info()
        except NSQError as exc:
            unknown[http] = str(exc)
            continue
        own = [nsqd for nsqd in by_nsqd if ":" in nsqd and is_at(nsqd, http, info)]
        own = own or [format_address(info.broadcast_address, info.tcp_port)]
        http_of |= dict.fromkeys(own, http)
    depths = DepthQuery(
        topic, channel, config, NsqdSources(list(http_of), lookupds), http_of=http_of).fetch()
    for nsqd, depth in depths.known.items():
        one = by_nsqd.get(nsqd) or ShardStatus(topic, channel, nsqd)
        by_nsqd[nsqd] = one._replace(depth=depth.depth, in_flight=depth.in_flight)
    return [by_nsqd[nsqd] for nsqd in sorted(by_nsqd)], unknown | dict(depths.unknown)


def draw(shards: Sequence[ShardStatus], now: float) -> list[str]:
    return table([_HEADER, *(_row(one, now) for one in shards)], _LEFT)


def _row(one: ShardStatus, now: float) -> tuple[str, ...]:
    return (
        f"{one.topic}/{one.channel}", one.nsqd, str(one.segment),
        str(one.lag_messages), show_size(one.lag_bytes), _age(one.oldest, now),
        _age(one.written, now), show_size(one.stored_bytes or 0), _number(one.depth),
        _number(one.in_flight), one.owner or "-")


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _age(moment: float, now: float) -> str:
    return format_duration(round(max(0.0, now - moment))) if moment else "-"


def _as_json(one: ShardStatus, now: float) -> dict[str, Any]:
    written = None
    if one.written:
        written = datetime.datetime.fromtimestamp(
            one.written, datetime.timezone.utc).isoformat(timespec="milliseconds")
    return {
        "topic": one.topic, "channel": one.channel, "nsqd": one.nsqd, "owner": one.owner,
        "segment": one.segment, "committed": one.committed,
        "lag_messages": one.lag_messages, "lag_bytes": one.lag_bytes,
        "lag_seconds": round(one.lag_seconds(now), 3), "last_write": written,
        "stored_bytes": one.stored_bytes, "depth": one.depth, "in_flight": one.in_flight}


# -- the state of shards as metrics

_SHARD = ("topic", "channel", "nsqd")


def shard_metrics(shards: Sequence[ShardStatus], now: float) -> Iterator[Metric]:
    """Build the metrics of shards. ``now``: seconds since 1970."""
    from nsqclient.metrics.prometheus import gauge

    values: list[tuple[str, str, Callable[[ShardStatus], float | None]]] = [
        ("segment", "number of the newest segment", lambda one: one.segment),
        ("committed_segment", "number of the last segment that Spark has committed",
         lambda one: one.committed),
        ("lag_messages", "stored messages that Spark has not committed",
         lambda one: one.lag_messages),
        ("lag_bytes", "bytes of segments that Spark has not committed", lambda one: one.lag_bytes),
        ("lag_seconds", "age in seconds of the oldest message that Spark has not committed",
         lambda one: one.lag_seconds(now)),
        ("last_write_timestamp_seconds", "Unix time at which the newest segment was stored",
         lambda one: one.written or None),
        ("stored_bytes", "bytes of all kept segments", lambda one: one.stored_bytes),
        ("nsqd_depth", "messages waiting at nsqd", lambda one: one.depth),
        ("nsqd_in_flight", "messages in flight from nsqd to its consumers",
         lambda one: one.in_flight),
    ]
    yield gauge("nsq_spark_shard_owner", "1, with the process that wrote last as a label",
                (*_SHARD, "owner"), [((*_labels(one), one.owner), 1) for one in shards])
    for name, text, value in values:
        samples = [(_labels(one), value(one)) for one in shards]
        yield gauge(f"nsq_spark_shard_{name}", text, _SHARD,
                    [(labels, found) for labels, found in samples if found is not None])


def owner_metrics(owners: Sequence[ShardOwner]) -> Iterator[Metric]:
    from nsqclient.metrics.prometheus import counter, gauge

    values: list[tuple[Any, str, str, Callable[[ShardOwner], float]]] = [
        (gauge, "in_flight", "messages received but not yet finished",
         lambda one: one.ingest.in_flight),
        (gauge, "connections", "connections to the nsqd", lambda one: one.ingest.connections),
        (gauge, "paused", "1 while RDY is 0 because Spark is behind or the storage fails",
         lambda one: one.is_paused),
        (counter, "redelivered", "messages received with more than one attempt",
         lambda one: one.log.redelivered),
        (counter, "copies_dropped",
         "duplicates of stored messages, finished without being stored again",
         lambda one: one.log.copies_dropped),
        (counter, "lost_creates", "segments that another owner created first",
         lambda one: one.log.lost_creates),
    ]
    for kind, name, text, value in values:
        yield kind(f"nsq_spark_owner_{name}", text, _SHARD,
                   [(_labels(one.status()), value(one)) for one in owners])


def _labels(shard: ShardStatus) -> tuple[str, str, str]:
    return shard.topic, shard.channel, shard.nsqd
