"""The API of the pages: their numbers every few seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin.aggregate import number, objects, text
from nsqclient.admin.context import context
from nsqclient.admin.responses import (
    JSON_HEADERS, cause_of, check_channel, check_topic, json_response, node_values, problems,
)
from nsqclient.admin.nsqadmin_api import channel_values, inactive_channels, node_stats, topic_values
from nsqclient.admin.overview import CHANNEL, TOPIC, History, Overview, RateHistory
from nsqclient.cluster.doctor.findings import in_order, summary
from nsqclient.cluster.ask_all import Failure
from nsqclient.cluster.cluster import Node

View = Callable[..., Response]

#: Connections of consumers that a page gets.
_MOST_CONSUMERS = 5000

blueprint: Blueprint = Blueprint("ui_api", __name__, url_prefix="/api/live")


def _page_response(
    overview: Overview, values: dict[str, Any], failures: list[Failure] | None = None
) -> Response:
    """Return the values of a page with the state of the cluster.

    Args:
        failures: of this page's own requests.
    """
    known = {(each.kind, each.address) for each in overview.failures}
    more = [each for each in failures or () if (each.kind, each.address) not in known]
    return json_response({
        "serial": overview.serial,
        "interval": context().settings.refresh_interval,
        "node_count": overview.node_count,
        "answered_count": len(overview.answered),
        "problems": problems([*overview.failures, *more]),
        **values,
    })


def _shared(view: View) -> View:
    """Answer a page with what another page got some seconds ago."""

    @wraps(view)
    def answer(**names: str) -> Response:
        here = context()
        path = request.full_path
        known = here.pages.get(path)
        if known is not None:
            return Response(known, headers=JSON_HEADERS)
        response = view(**names)
        here.pages.put(path, response.get_data())
        return response

    return answer


def _state(failure: Failure | None) -> dict[str, Any]:
    """Return why the values of a server are missing, and since when."""
    if failure is None:
        return {"reason": "", "is_waiting": False, "cause": "", "since": 0}
    return {"reason": failure.reason, "is_waiting": failure.is_waiting,
            "cause": cause_of(failure).value, "since": round(failure.since)}


@blueprint.get("/topics")
@_shared
def topics() -> Response:
    """Return all topics with their rates, or the topics that changed since a round."""
    here = context()
    overview = here.collector.overview()
    rows = overview.since(request.args.get("since", 0, type=int))
    if rows is not None:
        return _page_response(overview, {"full": False, "rows": rows})

    def rates(history: RateHistory) -> dict[str, list[float | None]]:
        found = {name: history.of((TOPIC, name, "")).rates for name in overview.rows}
        return {name: points for name, points in found.items() if any(points)}

    return _page_response(overview, {
        "full": True, "history": here.collector.with_rate_history(rates),
        "rows": list(overview.rows.values()),
    })


@blueprint.get("/topics/<topic>")
@_shared
def topic(topic: str) -> Response:
    """Return one topic with the history of its rate and depths."""
    here = context()
    check_topic(topic)
    overview = here.collector.overview()
    values, failures = topic_values(topic, progressive=True)

    def add(history: RateHistory) -> None:
        _add_history(values, history, (TOPIC, topic, ""))
        for channel in values["channels"]:
            found = history.of((CHANNEL, topic, channel["channel_name"]))
            channel |= {**_rates(found), "depths": found.depths}

    here.collector.with_rate_history(add)
    if here.cluster.has_lookupds:
        named = {node.address: node for node in overview.nodes}
        for each in values["nodes"]:
            node = named.get(each["node"])
            each["tombstoned"] = node is not None and topic in node.tombstoned
    return _page_response(overview, values, failures)


@blueprint.get("/topics/<topic>/<channel>")
@_shared
def channel(topic: str, channel: str) -> Response:
    """Return one channel with its clients and the history of its rate and depth."""
    here = context()
    check_topic(topic)
    check_channel(channel)
    overview = here.collector.overview()
    values, failures = channel_values(topic, channel, progressive=True)
    here.collector.with_rate_history(
        lambda history: _add_history(values, history, (CHANNEL, topic, channel)))
    return _page_response(overview, values, failures)


def _add_history(
    values: dict[str, Any], history: RateHistory, key: tuple[str, str, str]
) -> None:
    found = history.of(key)
    values |= {**_rates(found), "times": found.times, "rates": found.rates,
               "out_rates": found.out_rates, "depths": found.depths}


def _rates(found: History) -> dict[str, Any]:
    return {"rate": found.rate, "out_rate": found.out_rate, "empty_in": found.seconds_to_empty}


@blueprint.get("/nodes")
@_shared
def nodes() -> Response:
    """Return all nsqds: their addresses, their nsqlookupds, and whether they answered."""
    here = context()
    overview = here.collector.overview()
    failed = {each.address: each for each in overview.failures if each.kind == "nsqd"}
    found = [
        {**node_values(node), "is_up": node.address in overview.answered,
         **_state(failed.get(node.address)),
         "topics": overview.topic_counts.get(node.address, len(node.topics))}
        for node in overview.nodes
    ]
    # An nsqd that is gone, or one of --nsqd-http-address that does not answer.
    named = {node.address for node in overview.nodes}
    silent = [each for each in problems(overview.failures)
              if each["kind"] == "nsqd" and each["address"] not in named]
    return _page_response(overview, {
        "list": found, "silent": silent, "lookupds": list(here.cluster.lookupds())})


@blueprint.get("/nodes/<node>")
@_shared
def node(node: str) -> Response:
    """Return one nsqd with its topics."""
    here = context()
    overview = here.collector.overview()
    values, failures = node_stats(node, progressive=True)
    found = here.cluster.recent_nodes(progressive=True).named(node)
    tombstoned = found.tombstoned if found is not None else frozenset()
    for each in values["topics"]:
        each["tombstoned"] = each["topic_name"] in tombstoned
        for channel in each["channels"]:
            channel["clients"] = None  # counted already, and there may be very many
    values["about"] = node_values(found) if found is not None else {}
    return _page_response(overview, values, failures)


@blueprint.get("/lookup")
@_shared
def lookup() -> Response:
    """Return the nsqlookupds, and the topics that they list and no nsqd has."""
    here = context()
    overview = here.collector.overview()
    cluster = here.cluster
    infos, failures = cluster.each_lookupd(
        lambda lookupd: (lookupd.info().version, len(lookupd.topics()), len(lookupd.nodes())),
        progressive=True)
    dated = {each.address: each for each in overview.failures if each.kind == "nsqlookupd"}
    failed = {each.address: dated.get(each.address, each) for each in failures}
    inactive = [row.name for row in overview.rows.values() if row.nodes == 0]
    return _page_response(overview, {
        "lookupds": [
            {"address": each, "is_up": each in infos, **_state(failed.get(each)),
             **dict(zip(("version", "topics", "nodes_known"), infos.get(each, ("", 0, 0))))}
            for each in cluster.lookupds()
        ],
        "inactive": inactive_channels(inactive) if inactive else {},
        "node_names": [each.address for each in overview.nodes],
    }, failures)


def _stats_with_clients() -> tuple[Overview, dict[Node, dict[str, Any]], list[Failure]]:
    """Return the overview, and the statistics of all nsqds with their connections."""
    here = context()
    overview = here.collector.overview()
    stats, failures = here.cluster.stats(overview.nodes, include_clients=True, progressive=True)
    return overview, stats, failures


@blueprint.get("/producers")
@_shared
def producers() -> Response:
    """Return the connections that published something."""
    overview, stats, failures = _stats_with_clients()
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
    return _page_response(overview, {"list": found}, failures)


@blueprint.get("/consumers")
@_shared
def consumers() -> Response:
    """Return the connections of consumers, over all topics and channels."""
    overview, stats, failures = _stats_with_clients()
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
    return _page_response(overview, {
        "list": found[:_MOST_CONSUMERS], "total": len(found)}, failures)


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
