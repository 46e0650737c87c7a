"""nsqadmin's JSON API, under its paths. Source: nsqadmin 1.3.0, ``nsqadmin/http.go``.

Where it differs on purpose is listed in ``docs/tools/nsqadmin.rst`` and in the test that compares
the two.
"""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin.actions import CHANGES, NotFound
from nsqclient.admin.answers import (
    BadRequest, answer, body, check_channel, check_topic, text_of, warning,
)
from nsqclient.admin.asking import Failure
from nsqclient.admin.cluster import Node
from nsqclient.admin.context import context
from nsqclient.admin.guard import check_may_act, user_of
from nsqclient.admin.merging import (
    From, channel_on_node, merge_channel, merge_topic, number, objects, text, topic_on_node,
)

blueprint = Blueprint("original_api", __name__)


@blueprint.get("/ping")
def ping() -> Response:
    """Say that the page is there."""
    return Response("OK", content_type="text/plain; charset=utf-8")


# -- questions


@blueprint.get("/api/topics")
def topics() -> Response:
    """The names of all topics, or those that no nsqd has, with their channels."""
    cluster = context().cluster
    found = cluster.nodes()
    failures = list(found.failures)
    on_nodes = {topic for node in found.nodes for topic in node.topics}
    if cluster.has_lookupds:
        names = set(found.registered)
    else:
        stats, more = cluster.stats(found.nodes)
        names = {text(each, "topic_name") for one in stats.values()
                 for each in objects(one, "topics")}
        failures += more
    if request.args.get("inactive") == "true":
        inactive = sorted(names - on_nodes) if cluster.has_lookupds else []
        return answer({"topics": inactive_channels(inactive), "message": warning(failures)})
    return answer({"topics": sorted(names), "message": warning(failures)})


def inactive_channels(names: list[str]) -> dict[str, list[str]]:
    """The channels that nsqlookupds know of some topics."""
    found: dict[str, set[str]] = {name: set() for name in names}
    # Each is asked for what it knows itself: one that invents names costs the others nothing.
    answers, _ = context().cluster.each_lookupd(
        lambda lookupd: {name: lookupd.channels(name)
                         for name in found.keys() & set(lookupd.topics())},
        progressive=True)
    for by_topic in answers.values():
        for name, channels in by_topic.items():
            found[name].update(channels)
    return {name: sorted(channels) for name, channels in found.items()}


@blueprint.get("/api/topics/<topic>")
def topic(topic: str) -> Response:
    """The sums of a topic, its nsqds and channels."""
    values, failures = topic_values(check_topic(topic))
    return answer({**values, "message": warning(failures)})


def topic_values(
    topic: str, *, progressive: bool = False
) -> tuple[dict[str, Any], list[Failure]]:
    """A topic as :func:`merge_topic` returns it. Raises NotFound."""
    parts, failures = _parts(topic, None, False, progressive)
    if not parts:
        cluster = context().cluster
        if topic not in cluster.recent_nodes().registered:
            raise _absent("TOPIC_NOT_FOUND", f"there is no topic {topic}", failures)
    return merge_topic(topic, parts, time.time()), failures


@blueprint.get("/api/topics/<topic>/<channel>")
def channel(topic: str, channel: str) -> Response:
    """The sums of a channel, its nsqds and clients."""
    values, failures = channel_values(check_topic(topic), check_channel(channel))
    return answer({**values, "message": warning(failures)})


def channel_values(
    topic: str, channel: str, *, progressive: bool = False
) -> tuple[dict[str, Any], list[Failure]]:
    """A channel as :func:`merge_channel` returns it. Raises NotFound."""
    parts, failures = _parts(topic, channel, True, progressive)
    now = time.time()
    nodes = [
        channel_on_node(From(part.node, part.hostname, each), topic, now)
        for part in parts for each in objects(part.values, "channels")
        if text(each, "channel_name") == channel
    ]
    if not nodes:
        raise _absent("CHANNEL_NOT_FOUND", f"topic {topic} has no channel {channel}", failures)
    return merge_channel(nodes), failures


def _parts(
    topic: str, channel: str | None, include_clients: bool, progressive: bool
) -> tuple[list[From], list[Failure]]:
    """What each nsqd says of a topic."""
    cluster = context().cluster
    found = cluster.recent_nodes(progressive=progressive)
    stats, failures = cluster.stats(
        found.nodes, topic, channel, include_clients=include_clients, progressive=progressive)
    parts = [
        From(node.address, node.hostname, each)
        for node, one in stats.items() for each in objects(one, "topics")
        if text(each, "topic_name") == topic
    ]
    return parts, list(dict.fromkeys([*found.failures, *failures]))


def _absent(code: str, what: str, failures: list[Failure]) -> NotFound:
    # One that did not answer may have it.
    silent = "; ".join(each.text() for each in failures)
    return NotFound(code, what + (f", as far as the others know: {silent}" if silent else ""))


@blueprint.get("/api/nodes")
def nodes() -> Response:
    """All nsqds."""
    cluster = context().cluster
    found = cluster.nodes()
    failures = list(found.failures)
    by_node = {node: node.topics for node in found.nodes}
    if not cluster.has_lookupds:
        stats, more = cluster.stats(found.nodes)
        failures += more
        by_node = {node: tuple(text(each, "topic_name") for each in objects(one, "topics"))
                   for node, one in stats.items()}
    return answer({
        "nodes": [_node(node, by_node.get(node, ())) for node in found.nodes],
        "message": warning(failures),
    })


def _node(node: Node, topics: tuple[str, ...]) -> dict[str, Any]:
    return {
        "remote_addresses": list(node.remote_addresses) or None,
        "remote_address": node.remote_address,
        "hostname": node.hostname,
        "broadcast_address": node.broadcast_address,
        "tcp_port": node.tcp_port,
        "http_port": node.http_port,
        "version": node.version,
        "topics": [{"topic": each, "tombstoned": each in node.tombstoned} for each in topics],
        "out_of_date": node.out_of_date,
    }


@blueprint.get("/api/nodes/<node>")
def node(node: str) -> Response:
    """One nsqd with all its topics, channels and clients."""
    values, failures = node_stats(node)
    return answer({**values, "message": warning(failures)})


def node_stats(
    address: str, *, progressive: bool = False
) -> tuple[dict[str, Any], list[Failure]]:
    """One nsqd's topics under nsqadmin's names. Raises NotFound, UpstreamError."""
    cluster = context().cluster
    found = cluster.recent_nodes(progressive=progressive)
    node = found.named(address)
    if node is None:
        raise NotFound("NODE_NOT_FOUND", f"there is no nsqd {address}")
    stats, failures = cluster.stats([node], include_clients=True, progressive=progressive)
    if not stats:
        raise BadRequest(f"UPSTREAM_ERROR: failed to query any nsqd: {failures[0].text()}",
                         status=502)
    now = time.time()
    topics = [topic_on_node(From(node.address, node.hostname, each), now)
              for each in objects(stats[node], "topics")]
    clients = sum(len(each["clients"] or ()) for one in topics for each in one["channels"])
    return {
        "node": address, "topics": topics,
        "total_messages": sum(each["message_count"] for each in topics),
        "total_clients": clients,
    }, list(found.failures)


@blueprint.get("/api/counter")
def counter() -> Response:
    """How many messages each channel of each nsqd has seen."""
    cluster = context().cluster
    found = cluster.nodes()
    stats, failures = cluster.stats(found.nodes)
    counts = {}
    for node, one in stats.items():
        for each in objects(one, "topics"):
            topic = text(each, "topic_name")
            for channel in objects(each, "channels"):
                name = text(channel, "channel_name")
                counts[f"{topic}:{name}:{node.address}"] = {
                    "node": node.address, "topic_name": topic, "channel_name": name,
                    "message_count": number(channel, "message_count"),
                }
    return answer({"stats": counts, "message": warning([*found.failures, *failures])})


# -- actions


@blueprint.post("/api/topics")
def create() -> Response:
    """Make a topic, and a channel of it."""
    values = _change()
    topic, channel = text_of(values, "topic"), text_of(values, "channel")
    check_topic(topic)
    if channel:
        check_channel(channel)
    node = text_of(values, "node")
    failures = context().actions.create(topic, channel, node)
    _done("create_topic", topic, "", node)
    if channel:
        _done("create_channel", topic, channel, node)
    return answer({"message": warning(failures)})


@blueprint.post("/api/topics/<topic>")
@blueprint.post("/api/topics/<topic>/<channel>")
def change(topic: str, channel: str = "") -> Response:
    """Pause, unpause or empty a topic or channel."""
    values = _change()
    action = text_of(values, "action")
    if action not in CHANGES:
        raise BadRequest("INVALID_ACTION", f"one of {', '.join(CHANGES)}")
    _check_names(topic, channel)
    node = text_of(values, "node")
    failures = context().actions.change(action, topic, channel, node)
    _done(f"{action}_{'channel' if channel else 'topic'}", topic, channel, node)
    return answer({"message": warning(failures)})


@blueprint.delete("/api/topics/<topic>")
@blueprint.delete("/api/topics/<topic>/<channel>")
def delete(topic: str, channel: str = "") -> Response:
    """Delete a topic or channel."""
    values = _change()
    _check_names(topic, channel)
    node = text_of(values, "node")
    failures = context().actions.delete(topic, channel, node)
    _done(f"delete_{'channel' if channel else 'topic'}", topic, channel, node)
    return answer({"message": warning(failures)})


@blueprint.delete("/api/nodes/<node>")
def tombstone(node: str) -> Response:
    """Hide a topic's nsqd from lookups, and delete the topic there."""
    topic = check_topic(text_of(_change(), "topic"))
    failures = context().actions.tombstone(topic, node)
    _done("tombstone_topic_producer", topic, "", node)
    return answer({"message": warning(failures)})


def _change() -> dict[str, Any]:
    check_may_act(context().settings, request)
    return body()


def _check_names(topic: str, channel: str) -> None:
    check_topic(topic)
    if channel:
        check_channel(channel)


def _done(action: str, topic: str, channel: str, node: str) -> None:
    here = context()
    here.notifier.tell(request, user_of(here.settings, request), action, topic, channel, node)
    here.collector.ask_soon()
