"""``nsqclient spark status``: the shards of a storage, and what waits. Needs no Spark."""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.cli import terminal
from nsqclient.cli.flags import BOOL, NAME, STRING, STRINGS, CommandLineError, Parsed
from nsqclient.cli.tool_flags import ToolFlags
from nsqclient.config import Config
from nsqclient.display import show_size
from nsqclient.http.channel_depth import fetch_depths_by_nsqd
from nsqclient.http.urls import lookup_url, nsqd_url
from nsqclient.metrics import check_prometheus
from nsqclient.runtime.deadline import format_duration

if TYPE_CHECKING:
    from nsqclient.spark.shards.listing import ShardStatus

_SUMMARY = """\
Shows the logs that owners (nsqclient spark ingest) have written to shared storage, one per nsqd:
which process wrote last, how many messages Spark has not committed, and the age of the oldest. It
changes nothing. With HTTP addresses of nsqds or nsqlookupds, it also shows the depth at nsqd."""

_EXAMPLES = [
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
#: Columns of text; the others are numbers.
_LEFT = ("topic/channel", "nsqd", "owner")


def status_flags() -> ToolFlags:
    """The flags of the status."""
    flags = ToolFlags("spark status", status, _SUMMARY, _EXAMPLES)
    flags.group("Input")
    flags.add("storage", STRING, "", "storage, an absolute path or s3://bucket/prefix;"
              " required. Credentials come from the environment, a profile or a role")
    flags.require("storage")
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
    """Print the state of shards.

    Raises:
        StorageError: the storage cannot be used.
    """
    values = parsed.values
    for address in values["nsqd-http-address"]:
        nsqd_url(address, "stats")
    for address in values["lookupd-http-address"]:
        lookup_url(address)
    if values["metrics"]:
        check_prometheus("--metrics")
    try:
        from nsqclient.spark.shards.listing import list_channels, read_status
        from nsqclient.spark.storage.store import open_store
    except ImportError as exc:
        raise CommandLineError(
            f"pyarrow is needed: pip install 'nsqclient[spark-storage]' ({exc})") from exc
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
        from nsqclient.metrics.spark import shard_metrics

        sys.stdout.write(render(shard_metrics(shards, now))[1].decode())
    elif values["json"]:
        print(json.dumps({"shards": [_as_json(one, now) for one in shards],
                          "depth_unknown": unknown}))
    elif not shards:
        print("no shards: no owner (nsqclient spark ingest) has written there")
    else:
        print("\n".join(table(shards, now)))
    if not values["json"]:
        for address, why in sorted(unknown.items()):
            print(f"depth of {address} is not known: {why}", file=sys.stderr)
    return 0


def _with_depths(
    shards: Sequence[ShardStatus], topic: str, channel: str, values: Mapping[str, Any]
) -> tuple[list[ShardStatus], dict[str, str]]:
    """Add what waits at nsqds, also at those without a shard; and which could not be asked."""
    from nsqclient.spark.shards.listing import ShardStatus

    by_nsqd = {one.nsqd: one for one in shards}
    depths = fetch_depths_by_nsqd(
        topic, channel, Config(), lookupds=values["lookupd-http-address"],
        nsqd_http=values["nsqd-http-address"], nsqds=by_nsqd)
    for nsqd, depth in depths.known.items():
        one = by_nsqd.get(nsqd) or ShardStatus(topic, channel, nsqd)
        by_nsqd[nsqd] = one._replace(depth=depth.depth, in_flight=depth.in_flight)
    return [by_nsqd[nsqd] for nsqd in sorted(by_nsqd)], dict(depths.unknown)


def table(shards: Sequence[ShardStatus], now: float) -> list[str]:
    """Draw a table of shards, with its heading. Pure.

    Args:
        now: seconds since 1970.
    """
    return terminal.table([_HEADER, *(_row(one, now) for one in shards)], _LEFT)


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
