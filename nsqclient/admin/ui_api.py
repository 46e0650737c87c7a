"""The API of the pages: their numbers every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin.aggregate import number, objects, text
from nsqclient.admin.context import context
from nsqclient.admin.nsqadmin_api import channel_values, inactive_channels, node_stats, topic_values
from nsqclient.admin.overview import CHANNEL, TOPIC, Overview, Row
from nsqclient.admin.responses import JSON_HEADERS, json_response, problem, state_of
from nsqclient.cluster.doctor.findings import in_order, summary
from nsqclient.cluster.ask_all import Failure
from nsqclient.cluster.cluster import Node

View = Callable[..., Any]
#: The values of a page, and the failures of its own requests.
Values = tuple[dict[str, Any], Iterable[Failure]]

#: Answers that are kept: a client can request any path.
_MOST_ANSWERS = 100
#: Connections of consumers that a page gets.
_MOST_CONSUMERS = 5000

blueprint: Blueprint = Blueprint("ui_api", __name__, url_prefix="/api/live")


def _page(view: View) -> View:
    """Answer a page with its values and the state of the cluster.

    ``view`` gets the overview; it returns the values, and the failures of its own requests. Answers
    are kept for one refresh interval.
    """

    @wraps(view)
    def answer(**names: str) -> Response:
        here = context()
        interval = here.settings.refresh_interval
        at, known = here.pages.get(request.path, (0.0, b""))
        if known and time.monotonic() - at < interval:
            return Response(known, headers=JSON_HEADERS)
        overview = here.collector.overview()
        values, failures = view(overview, **names)
        seen = {(each.kind, each.address) for each in overview.failures}
        more = [each for each in failures if (each.kind, each.address) not in seen]
        response = json_response({
            "serial": overview.serial, "interval": interval,
            "node_count": overview.node_count, "answered_count": len(overview.answered),
            "problems": [problem(each) for each in (*overview.failures, *more)], **values})
        if len(here.pages) >= _MOST_ANSWERS:
            here.pages.clear()
        here.pages[request.path] = time.monotonic(), response.get_data()
        return response

    return answer


def _state(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {"state": "", "reason": "", "since": 0}
    return {"state": state_of(failure), "reason": failure.reason, "since": round(failure.since)}


@blueprint.get("/topics")
@_page
def topics(overview: Overview) -> Values:
    return {"fields": Row._fields, "rows": overview.rows}, ()


@blueprint.get("/topics/<topic>")
@_page
def topic(overview: Overview, topic: str) -> Values:
    here = context()
    values, failures = topic_values(topic, progressive=True)
    values |= _history(TOPIC, topic)
    for channel in values["channels"]:
        channel |= _history(CHANNEL, topic, channel["channel_name"])
    tombstoned = {node.address for node in overview.nodes if topic in node.tombstoned}
    for each in values["nodes"] if here.cluster.has_lookupds else ():
        each["tombstoned"] = each["node"] in tombstoned
    return values, failures


@blueprint.get("/topics/<topic>/<channel>")
@_page
def channel(overview: Overview, topic: str, channel: str) -> Values:
    values, failures = channel_values(topic, channel, progressive=True)
    return values | _history(CHANNEL, topic, channel), failures


def _history(kind: str, topic: str, channel: str = "") -> dict[str, Any]:
    found = context().collector.history(kind, topic, channel)
    return {**found._asdict(), "rate": found.rate, "out_rate": found.out_rate,
            "empty_in": found.seconds_to_empty}


@blueprint.get("/nodes")
@_page
def nodes(overview: Overview) -> Values:
    """Return all nsqds, also those that did not answer."""
    failed = {each.address: each for each in overview.failures if each.kind == "nsqd"}
    found = [{
        "address": node.address, "reached_at": node.reached_at, "hostname": node.hostname,
        "announced": node.announced if node.announced != node.address else "",
        "tcp_port": node.tcp_port, "version": node.version, "lookupds": node.lookupds,
        "out_of_date": node.out_of_date, "is_up": node.address in overview.answered,
        "topics": overview.topic_counts.get(node.address, len(node.topics)),
        **_state(failed.pop(node.address, None)),
    } for node in overview.nodes]
    # An nsqd that is gone, or one of --nsqd-http-address that does not answer.
    found += [{"address": address, "lookupds": (), "is_up": False, **_state(failure)}
              for address, failure in failed.items()]
    return {"list": found, "lookupds": list(context().cluster.lookupds())}, ()


@blueprint.get("/nodes/<node>")
@_page
def node(overview: Overview, node: str) -> Values:
    values, failures = node_stats(node, progressive=True)
    found = context().cluster.recent_nodes(progressive=True).named(node)
    tombstoned = found.tombstoned if found is not None else frozenset()
    for each in values["topics"]:
        each["tombstoned"] = each["topic_name"] in tombstoned
        for channel in each["channels"]:
            channel["clients"] = None  # counted already, and there may be very many
    return {**values, "version": found.version if found is not None else ""}, failures


@blueprint.get("/lookup")
@_page
def lookup(overview: Overview) -> Values:
    """Return the nsqlookupds, and the topics that they list and no nsqd has."""
    cluster = context().cluster
    infos, failures = cluster.each_lookupd(
        lambda lookupd: (lookupd.info().version, len(lookupd.topics()), len(lookupd.nodes())),
        progressive=True)
    failed = {each.address: each for each in (*failures, *overview.failures)}
    inactive = [row.name for row in overview.rows if row.nodes == 0]
    return {
        "lookupds": [
            {"address": each, "is_up": each in infos,
             **_state(None if each in infos else failed.get(each)),
             **dict(zip(("version", "topics", "nodes_known"), infos.get(each, ("", 0, 0))))}
            for each in cluster.lookupds()
        ],
        "inactive": inactive_channels(inactive) if inactive else {},
        "node_names": [each.address for each in overview.nodes],
    }, failures


def _stats_with_clients(overview: Overview) -> tuple[dict[Node, dict[str, Any]], list[Failure]]:
    return context().cluster.stats(overview.nodes, include_clients=True, progressive=True)


@blueprint.get("/producers")
@_page
def producers(overview: Overview) -> Values:
    stats, failures = _stats_with_clients(overview)
    found = [
        {
            "node": node.address,
            **{name: text(each, name) for name in
               ("client_id", "hostname", "remote_address", "user_agent", "tls_version")},
            "tls": each.get("tls") is True, "deflate": each.get("deflate") is True,
            "snappy": each.get("snappy") is True, "connect_ts": number(each, "connect_ts"),
            "topics": {text(count, "topic"): number(count, "count")
                       for count in objects(each, "pub_counts")},
        }
        for node, one in stats.items() for each in objects(one, "producers")
    ]
    return {"list": found, "total": len(found)}, failures


@blueprint.get("/consumers")
@_page
def consumers(overview: Overview) -> Values:
    stats, failures = _stats_with_clients(overview)
    found = [
        {
            "node": node.address, "topic": text(topic, "topic_name"),
            "channel": text(channel, "channel_name"),
            **{name: text(client, name) for name in (
                "client_id", "hostname", "remote_address", "user_agent")},
            **{name: number(client, name) for name in (
                "in_flight_count", "ready_count", "finish_count", "connect_ts")},
        }
        for node, one in stats.items() for topic in objects(one, "topics")
        for channel in objects(topic, "channels") for client in objects(channel, "clients")
    ]
    return {"list": found[:_MOST_CONSUMERS], "total": len(found)}, failures


@blueprint.get("/doctor")
def doctor() -> Response:
    """Return the findings of ``nsqclient doctor``; pages share a run for some seconds."""
    here = context()
    findings = here.doctor.findings()
    return json_response({
        "summary": summary(findings),
        "findings": [{**each._asdict(), "severity": each.severity.value.lower()}
                     for each in reversed(in_order(findings))],
    })
