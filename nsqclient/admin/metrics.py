"""``/metrics``: the cluster's numbers for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from flask import Blueprint, Response
from prometheus_client.core import Metric

from nsqclient.admin.aggregate import Values, number, objects, text
from nsqclient.admin.context import context
from nsqclient.cluster.ask_all import UpstreamError
from nsqclient.cluster.cluster import Node
from nsqclient.metrics.prometheus import counter, gauge, render

blueprint: Blueprint = Blueprint("metrics", __name__)

_Rows = list[tuple[tuple[str, ...], Values]]

#: Metric -> (field of ``/stats``, help); counters end in ``_total``.
_TOPIC = {
    "nsq_topic_depth": ("depth", "Messages waiting in the topic."),
    "nsq_topic_backend_depth": ("backend_depth", "Messages waiting in the topic, on disk."),
    "nsq_topic_messages_total": ("message_count", "Messages published since nsqd started."),
    "nsq_topic_bytes_total": ("message_bytes", "Bytes published since nsqd started."),
    "nsq_topic_paused": ("paused", "1 while the topic is paused."),
}
_CHANNEL = {
    "nsq_channel_depth": ("depth", "Messages waiting in the channel."),
    "nsq_channel_backend_depth": ("backend_depth", "Messages waiting in the channel, on disk."),
    "nsq_channel_in_flight": ("in_flight_count", "Messages in flight."),
    "nsq_channel_deferred": ("deferred_count", "Deferred messages."),
    "nsq_channel_messages_total": ("message_count", "Messages received since nsqd started."),
    "nsq_channel_requeued_total": ("requeue_count", "Messages requeued since nsqd started."),
    "nsq_channel_timed_out_total": ("timeout_count", "Messages timed out since nsqd started."),
    "nsq_channel_clients": ("client_count", "Connected consumers."),
    "nsq_channel_paused": ("paused", "1 while the channel is paused."),
}


@blueprint.get("/metrics")
def metrics() -> Response:
    """Query every nsqd once; without any answer ``nsq_cluster_up`` is 0."""
    here = context()
    cluster = here.cluster
    up: dict[str, bool] = {}
    stats: dict[Node, dict[str, Any]] = {}
    try:
        nodes = cluster.recent_nodes()
    except UpstreamError as exc:
        failed = {each.address for each in exc.failures}
    else:
        failed = {each.address for each in nodes.failures if not each.is_doubt}
        stats, _ = cluster.stats(nodes.nodes)
        up = {node.address: node in stats for node in nodes.nodes}
        lost = here.lost.add_round(nodes, stats, time.time())
        up |= {each.node.address: False for each in lost}
    lookupds = {address: address not in failed for address in cluster.lookupds()}
    if not cluster.has_lookupds:
        up |= {address: False for address in failed}
    return Response(to_text(stats, up, lookupds),
                    content_type="text/plain; version=0.0.4; charset=utf-8",
                    headers={"Cache-Control": "no-store"})


def to_text(
    stats: Mapping[Node, Values], up: Mapping[str, bool], lookupds: Mapping[str, bool]
) -> str:
    """Return everything in Prometheus' text format. ``up``, ``lookupds``: whether each answered."""
    return render([
        gauge("nsq_cluster_up", "1 if at least one nsqd responded.", (), [((), any(up.values()))]),
        gauge("nsq_nsqd_up", "1 if this nsqd responded.", ("node",),
              [((node,), is_up) for node, is_up in up.items()]),
        gauge("nsq_nsqlookupd_up", "1 if this nsqlookupd responded.", ("nsqlookupd",),
              [((address,), is_up) for address, is_up in lookupds.items()]),
        *_of_nsqds(stats), *_of_topics(stats)])[1].decode()


def _of_nsqds(stats: Mapping[Node, Values]) -> Iterator[Metric]:
    rows = [((node.address,), one) for node, one in stats.items()]
    yield gauge("nsq_nsqd_info", "Version of this nsqd.", ("node", "version"),
                [((*labels, text(one, "version")), 1) for labels, one in rows])
    yield gauge("nsq_nsqd_healthy", "0 if nsqd cannot write to its disk.", ("node",),
                [(labels, text(one, "health") == "OK") for labels, one in rows])
    yield gauge("nsq_nsqd_start_time_seconds", "Unix time at which this nsqd was started.",
                ("node",), [(labels, number(one, "start_time")) for labels, one in rows])


def _of_topics(stats: Mapping[Node, Values]) -> Iterator[Metric]:
    topics: _Rows = [((node.address, text(topic, "topic_name")), topic)
                     for node, one in stats.items() for topic in objects(one, "topics")]
    channels: _Rows = [((*labels, text(channel, "channel_name")), channel)
                       for labels, topic in topics for channel in objects(topic, "channels")]
    for prefix, names, table, rows in (("nsq_topic", ("node", "topic"), _TOPIC, topics),
                                       ("nsq_channel", ("node", "topic", "channel"), _CHANNEL,
                                        channels)):
        for name, (field, help_) in table.items():
            make = counter if name.endswith("_total") else gauge
            yield make(name, help_, names, [(labels, _value(one, field)) for labels, one in rows])
        yield gauge(
            f"{prefix}_e2e_latency_seconds",
            "Time from publish to FIN over the last minutes, in seconds.", (*names, "quantile"),
            [((*labels, quantile), seconds) for labels, one in rows
             for quantile, seconds in latencies(one).items()])


def latencies(values: Values) -> dict[str, float]:
    """Return the latencies of a topic or channel: quantile -> seconds."""
    found = values.get("e2e_processing_latency")
    seconds = {}
    for each in objects(found, "percentiles") if isinstance(found, dict) else ():
        quantile, nanoseconds = each.get("quantile"), each.get("value")
        if isinstance(quantile, (int, float)) and isinstance(nanoseconds, (int, float)):
            seconds[f"{quantile:g}"] = nanoseconds / 1e9
    return seconds


def _value(values: Values, field: str) -> int:
    return values.get("paused") is True if field == "paused" else number(values, field)
