"""nsqadmin's JSON API and ``/config``. Source: nsqadmin 1.3.0, ``nsqadmin/http.go``.

The intended differences are listed in ``docs/tools/nsqadmin.rst``.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import time
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin.access_control import RequestError, check_may_act
from nsqclient.admin.aggregate import (
    Source, channel_on_node, merge_channel, merge_topic, number, objects, text, topic_on_node,
)
from nsqclient.admin.context import context
from nsqclient.admin.responses import (
    json_body, json_response, names_of, text_of, warning,
)
from nsqclient.errors import ConfigError
from nsqclient.cluster.ask_all import ServerFailure
from nsqclient.cluster.cluster import Node
from nsqclient.cluster.actions import CHANGES, node_named
from nsqclient.log_records import LEVELS
from nsqclient.protocol.peer_json import read_json

blueprint: Blueprint = Blueprint("nsqadmin_api", __name__)


@blueprint.get("/ping")
def ping() -> Response:
    return Response("OK", content_type="text/plain; charset=utf-8")


@blueprint.get("/api/topics")
def topics() -> Response:
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
        return json_response({"topics": inactive_channels(inactive), "message": warning(failures)})
    return json_response({"topics": sorted(names), "message": warning(failures)})


def inactive_channels(names: list[str]) -> dict[str, list[str]]:
    """Return the channels of some topics that nsqlookupds list."""
    found: dict[str, set[str]] = {name: set() for name in names}
    # Ask only for topics that the nsqlookupd lists, so that invented names cause no requests.
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
    values, failures = topic_values(topic)
    return json_response({**values, "message": warning(failures)})


def topic_values(
    topic: str, *, progressive: bool = False
) -> tuple[dict[str, Any], list[ServerFailure]]:
    parts, failures = _parts(topic, None, False, progressive)
    if not parts:
        cluster = context().cluster
        if topic not in cluster.recent_nodes().registered:
            raise _absent("TOPIC_NOT_FOUND", f"there is no topic {topic}", failures)
    return merge_topic(topic, parts, time.time()), failures


@blueprint.get("/api/topics/<topic>/<channel>")
def channel(topic: str, channel: str) -> Response:
    values, failures = channel_values(topic, channel)
    return json_response({**values, "message": warning(failures)})


def channel_values(
    topic: str, channel: str, *, progressive: bool = False
) -> tuple[dict[str, Any], list[ServerFailure]]:
    parts, failures = _parts(topic, channel, True, progressive)
    now = time.time()
    nodes = [
        channel_on_node(Source(part.node, part.hostname, each), topic, now)
        for part in parts for each in objects(part.values, "channels")
        if text(each, "channel_name") == channel
    ]
    if not nodes:
        raise _absent("CHANNEL_NOT_FOUND", f"topic {topic} has no channel {channel}", failures)
    return merge_channel(nodes), failures


def _parts(
    topic: str, channel: str | None, include_clients: bool, progressive: bool
) -> tuple[list[Source], list[ServerFailure]]:
    cluster = context().cluster
    found = cluster.recent_nodes(progressive=progressive)
    stats, failures = cluster.stats(
        found.nodes, topic, channel, include_clients=include_clients, progressive=progressive)
    parts = [
        Source(node.address, node.hostname, each)
        for node, one in stats.items() for each in objects(one, "topics")
        if text(each, "topic_name") == topic
    ]
    return parts, list(dict.fromkeys([*found.failures, *failures]))


def _absent(code: str, hint: str, failures: list[ServerFailure]) -> RequestError:
    # A server that did not answer may have it.
    silent = "; ".join(each.text() for each in failures)
    return RequestError(404, code, hint + (
        f", as far as the others know: {silent}" if silent else ""))


@blueprint.get("/api/nodes")
def nodes() -> Response:
    cluster = context().cluster
    found = cluster.nodes()
    failures = list(found.failures)
    by_node = {node: node.topics for node in found.nodes}
    if not cluster.has_lookupds:
        stats, more = cluster.stats(found.nodes)
        failures += more
        by_node = {node: tuple(text(each, "topic_name") for each in objects(one, "topics"))
                   for node, one in stats.items()}
    return json_response({
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
    values, failures = node_stats(node)
    return json_response({**values, "message": warning(failures)})


def node_stats(
    address: str, *, progressive: bool = False
) -> tuple[dict[str, Any], list[ServerFailure]]:
    """Return one nsqd's topics under nsqadmin's names. Raises RequestError, UpstreamError."""
    cluster = context().cluster
    found = cluster.recent_nodes(progressive=progressive)
    node = node_named(found, address)
    stats, failures = cluster.stats([node], include_clients=True, progressive=progressive)
    if not stats:
        raise RequestError(
            502, f"UPSTREAM_ERROR: failed to query any nsqd: {failures[0].text()}")
    now = time.time()
    topics = [topic_on_node(Source(node.address, node.hostname, each), now)
              for each in objects(stats[node], "topics")]
    clients = sum(len(each["clients"] or ()) for one in topics for each in one["channels"])
    return {
        "node": address, "topics": topics,
        "total_messages": sum(each["message_count"] for each in topics),
        "total_clients": clients,
    }, list(found.failures)


@blueprint.get("/api/counter")
def counter() -> Response:
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
    return json_response({"stats": counts, "message": warning([*found.failures, *failures])})


@blueprint.post("/api/topics")
def create() -> Response:
    values = _change()
    topic, channel = names_of(values)
    node = text_of(values, "node")
    failures = context().actions.create(topic, channel, node)
    context().report("create_topic", topic, "", node)
    if channel:
        context().report("create_channel", topic, channel, node)
    return json_response({"message": warning(failures)})


@blueprint.route("/api/topics/<topic>", methods=["POST", "DELETE"])
@blueprint.route("/api/topics/<topic>/<channel>", methods=["POST", "DELETE"])
def change(topic: str, channel: str = "") -> Response:
    values = _change()
    action = "delete" if request.method == "DELETE" else text_of(values, "action")
    if action not in CHANGES or action == "delete" and request.method == "POST":
        raise RequestError(400, "INVALID_ACTION", "pause, unpause or empty")
    node = text_of(values, "node")
    failures = context().actions.change(action, topic, channel, node)
    context().report(f"{action}_{'channel' if channel else 'topic'}", topic, channel, node)
    return json_response({"message": warning(failures)})


@blueprint.delete("/api/nodes/<node>")
def tombstone(node: str) -> Response:
    topic, _ = names_of(_change())
    failures = context().actions.tombstone(topic, node)
    context().report("tombstone_topic_producer", topic, "", node)
    return json_response({"message": warning(failures)})


def _change() -> dict[str, Any]:
    check_may_act(context().settings, request)
    return json_body()


@blueprint.route("/config/<option>", methods=["GET", "PUT"])
def option(option: str) -> Response:
    """Return ``nsqlookupd_http_addresses`` or ``log_level``; PUT changes it first."""
    _check_remote_address()
    if option not in ("nsqlookupd_http_addresses", "log_level"):
        raise RequestError(400, "INVALID_OPTION", "nsqlookupd_http_addresses or log_level")
    if request.method == "PUT":
        check_may_act(context().settings, request)
        if not request.get_data():
            raise RequestError(413, "INVALID_VALUE", "the body is empty")
        _set_lookupds() if option == "nsqlookupd_http_addresses" else _set_level()
    return Response(
        json.dumps(_option_value(option)), content_type="application/json; charset=utf-8")


def _check_remote_address() -> None:
    network = context().settings.allow_config_from_cidr
    if not network:
        return
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:
        raise RequestError(400, "INVALID_REMOTE_ADDR") from None
    if address not in ipaddress.ip_network(network, strict=False):
        raise RequestError(403, "FORBIDDEN", f"/config answers only {network}")


def _option_value(option: str) -> Any:
    if option == "nsqlookupd_http_addresses":
        return list(context().cluster.lookupds())
    level = logging.getLogger("nsqclient").getEffectiveLevel()
    return next((name for name, value in LEVELS.items() if level <= value), "fatal")


def _set_lookupds() -> None:
    cluster = context().cluster
    if not cluster.has_lookupds:
        raise RequestError(400, "INVALID_OPTION", "this page queries nsqds directly")
    try:
        addresses = read_json(request.get_data())
        if not isinstance(addresses, list) or not addresses:
            raise ValueError("give a list of addresses")
        cluster.set_lookupds(addresses)
    except (ValueError, ConfigError) as exc:
        raise RequestError(400, "INVALID_VALUE", str(exc)) from None
    context().refresh()


def _set_level() -> None:
    level = request.get_data(as_text=True).strip().strip('"').lower()
    if level not in LEVELS:
        raise RequestError(400, "INVALID_VALUE", f"one of {', '.join(LEVELS)}")
    logging.getLogger("nsqclient").setLevel(LEVELS[level])
