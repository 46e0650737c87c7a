"""``/metrics``: the cluster's numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from flask import Blueprint, Response
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from nsqclient.admin.aggregate import Values, number, objects, text
from nsqclient.admin.context import context
from nsqclient.http.ask_all import UpstreamError
from nsqclient.http.cluster import Node

blueprint: Blueprint = Blueprint("metrics", __name__)

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
    cluster = context().cluster
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
    lookupds = {address: address not in failed for address in cluster.lookupds()}
    if not cluster.has_lookupds:
        up |= {address: False for address in failed}
    return Response(to_text(stats, up, lookupds),
                    content_type="text/plain; version=0.0.4; charset=utf-8",
                    headers={"Cache-Control": "no-store"})


def to_text(
    stats: Mapping[Node, Values], up: Mapping[str, bool], lookupds: Mapping[str, bool]
) -> str:
    """Return everything in Prometheus' text format.

    Args:
        up: whether each nsqd answered.
        lookupds: whether each nsqlookupd answered.
    """
    exposition: bytes = generate_latest(_Snapshot(stats, up, lookupds))
    return exposition.decode()


class _Snapshot(NamedTuple):
    """The answers of one round, as a collector of ``prometheus_client``."""

    stats: Mapping[Node, Values]
    up: Mapping[str, bool]
    lookupds: Mapping[str, bool]

    def collect(self) -> Iterator[Metric]:
        """Return every metric with its samples."""
        yield _metric("nsq_cluster_up", "1 if at least one nsqd responded.", (),
                      [((), any(self.up.values()))])
        yield _metric("nsq_nsqd_up", "1 if this nsqd responded.", ("node",),
                      [((node,), is_up) for node, is_up in self.up.items()])
        yield _metric("nsq_nsqlookupd_up", "1 if this nsqlookupd responded.", ("nsqlookupd",),
                      [((address,), is_up) for address, is_up in self.lookupds.items()])
        yield from self._nsqds()
        topics = [((node.address, text(topic, "topic_name")), topic)
                  for node, one in self.stats.items() for topic in objects(one, "topics")]
        for name, (field, help_) in _TOPIC.items():
            yield _metric(name, help_, ("node", "topic"),
                          [(labels, _value(topic, field)) for labels, topic in topics])
        channels = [((*labels, text(channel, "channel_name")), channel)
                    for labels, topic in topics for channel in objects(topic, "channels")]
        for name, (field, help_) in _CHANNEL.items():
            yield _metric(name, help_, ("node", "topic", "channel"),
                          [(labels, _value(channel, field)) for labels, channel in channels])
        for name, parts, labels_of in (
            ("nsq_topic_e2e_latency_seconds", topics, ("node", "topic", "quantile")),
            ("nsq_channel_e2e_latency_seconds", channels,
             ("node", "topic", "channel", "quantile")),
        ):
            help_ = "Time from publish to FIN over the last minutes, in seconds."
            yield _metric(name, help_, labels_of, [
                ((*labels, quantile), seconds)
                for labels, values in parts for quantile, seconds in latencies(values).items()])

    def _nsqds(self) -> Iterator[Metric]:
        """Return the metrics of the nsqds themselves."""
        rows = [((node.address,), one) for node, one in self.stats.items()]
        yield _metric("nsq_nsqd_info", "Version of this nsqd.", ("node", "version"),
                      [((*labels, text(one, "version")), 1) for labels, one in rows])
        yield _metric("nsq_nsqd_healthy", "0 if nsqd cannot write to its disk.", ("node",),
                      [(labels, text(one, "health") == "OK") for labels, one in rows])
        yield _metric("nsq_nsqd_start_time_seconds", "Unix time at which this nsqd was started.",
                      ("node",), [(labels, number(one, "start_time")) for labels, one in rows])


def latencies(values: Values) -> dict[str, float]:
    """Return the latencies of a topic or channel: quantile -> seconds."""
    found = values.get("e2e_processing_latency")
    seconds = {}
    for each in objects(found, "percentiles") if isinstance(found, dict) else ():
        quantile, nanoseconds = each.get("quantile"), each.get("value")
        if isinstance(quantile, (int, float)) and isinstance(nanoseconds, (int, float)):
            seconds[f"{quantile:g}"] = nanoseconds / 1e9
    return seconds


def _metric(
    name: str, help_: str, labels: tuple[str, ...],
    samples: Iterable[tuple[tuple[str, ...], float]],
) -> Metric:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    metric = kind(name, help_, labels=labels)
    for values, value in samples:
        metric.add_metric(values, value)
    return metric


def _value(values: Values, field: str) -> int:
    return values.get("paused") is True if field == "paused" else number(values, field)
