"""``/metrics``: the cluster's numbers as Prometheus text (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flask import Blueprint, Response

from nsqclient.admin.cluster import Node, UpstreamError
from nsqclient.admin.context import context
from nsqclient.admin.merging import client_count, number, objects, text

blueprint = Blueprint("metrics", __name__)


class _Metric(NamedTuple):
    name: str
    kind: str
    help: str
    field: str


_TOPIC = (
    _Metric("nsq_topic_depth", "gauge", "Messages that wait in the topic.", "depth"),
    _Metric("nsq_topic_backend_depth", "gauge", "Those of them on disk.", "backend_depth"),
    _Metric("nsq_topic_messages_total", "counter", "Messages since nsqd's start.",
            "message_count"),
    _Metric("nsq_topic_bytes_total", "counter", "Bytes since nsqd's start.", "message_bytes"),
    _Metric("nsq_topic_paused", "gauge", "1: the topic is paused.", "paused"),
)
_CHANNEL = (
    _Metric("nsq_channel_depth", "gauge", "Messages that wait in the channel.", "depth"),
    _Metric("nsq_channel_backend_depth", "gauge", "Those of them on disk.", "backend_depth"),
    _Metric("nsq_channel_in_flight", "gauge", "Messages out for delivery.", "in_flight_count"),
    _Metric("nsq_channel_deferred", "gauge", "Messages for later.", "deferred_count"),
    _Metric("nsq_channel_messages_total", "counter", "Messages since nsqd's start.",
            "message_count"),
    _Metric("nsq_channel_requeued_total", "counter", "Messages that were requeued.",
            "requeue_count"),
    _Metric("nsq_channel_timed_out_total", "counter", "Messages that timed out.",
            "timeout_count"),
    _Metric("nsq_channel_clients", "gauge", "Consumers.", "client_count"),
    _Metric("nsq_channel_paused", "gauge", "1: the channel is paused.", "paused"),
)


@blueprint.get("/metrics")
def metrics() -> Response:
    """Ask every nsqd once. A cluster that cannot be found is ``nsq_cluster_up 0``."""
    cluster = context().cluster
    up: dict[str, bool] = {}
    stats: dict[Node, dict[str, Any]] = {}
    lookupds: dict[str, bool] = {}
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
    stats: Mapping[Node, Mapping[str, Any]], up: Mapping[str, bool], lookupds: Mapping[str, bool]
) -> str:
    """Write everything as text.

    Args:
        up: whether each nsqd answered. lookupds: the same of the nsqlookupds.
    """
    lines = _samples("nsq_cluster_up", "gauge", "1: at least one nsqd answered.",
                     [("", int(any(up.values())))])
    lines += _samples("nsq_nsqd_up", "gauge", "1: this nsqd answered.", [
        (_labels(node=node), int(is_up)) for node, is_up in up.items()])
    lines += _samples("nsq_nsqlookupd_up", "gauge", "1: this nsqlookupd answered.", [
        (_labels(nsqlookupd=address), int(is_up)) for address, is_up in lookupds.items()])
    topics = [(node.address, topic) for node, one in stats.items()
              for topic in objects(one, "topics")]
    for metric in _TOPIC:
        lines += _samples(metric.name, metric.kind, metric.help, [
            (_labels(node=node, topic=text(topic, "topic_name")), _value(topic, metric.field))
            for node, topic in topics])
    channels = [(node, text(topic, "topic_name"), channel) for node, topic in topics
                for channel in objects(topic, "channels")]
    for metric in _CHANNEL:
        lines += _samples(metric.name, metric.kind, metric.help, [
            (_labels(node=node, topic=topic, channel=text(channel, "channel_name")),
             _value(channel, metric.field))
            for node, topic, channel in channels])
    return "\n".join(lines) + "\n"


def _value(values: Mapping[str, Any], field: str) -> int:
    if field == "paused":
        return int(values.get("paused") is True)
    return client_count(values) if field == "client_count" else number(values, field)


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _samples(name: str, kind: str, help_: str, values: Iterable[tuple[str, int]]) -> list[str]:
    lines = [f"{name}{labels} {value}" for labels, value in values]
    return [f"# HELP {name} {help_}", f"# TYPE {name} {kind}", *lines] if lines else []
