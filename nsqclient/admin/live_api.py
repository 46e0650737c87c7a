"""What the pages ask, every few seconds, and the actions that nsqadmin does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin import peeking
from nsqclient.admin.answers import (
    BadRequest, answer, body, check_channel, check_topic, error, node_values, problems, text_of,
)
from nsqclient.admin.asking import Failure
from nsqclient.admin.context import context
from nsqclient.admin.guard import check_may_act, check_may_peek, user_of
from nsqclient.admin.merging import number, objects, text
from nsqclient.admin.original_api import (
    channel_values, inactive_channels, node_stats, topic_values,
)
from nsqclient.admin.overview import CHANNEL, TOPIC, Overview
from nsqclient.admin.publishing import publish, read_body

blueprint = Blueprint("live_api", __name__, url_prefix="/api/live")


def _head(overview: Overview) -> dict[str, Any]:
    return {
        "serial": overview.serial,
        "interval": overview.interval,
        "node_count": len(overview.nodes),
        "answered_count": len(overview.answered),
        "problems": problems(overview.failures),
    }


def _with_problems(values: dict[str, Any], failures: list[Failure]) -> dict[str, Any]:
    known = {(each["kind"], each["address"]) for each in values["problems"]}
    values["problems"] += [
        each for each in problems(failures) if (each["kind"], each["address"]) not in known
    ]
    return values


def _why(failure: Failure | None) -> dict[str, Any]:
    """Why a server has no values, and whether they may still come."""
    return {"reason": failure.reason if failure else "",
            "is_waiting": failure is not None and failure.is_waiting}


@blueprint.get("/topics")
def topics() -> Response:
    """All topics, or those that changed since a round; with their history when it is all."""
    here = context()
    overview = here.collector.overview()
    rows = overview.since(request.args.get("since", 0, type=int))
    values = {**_head(overview), "full": rows is None}
    if rows is None:
        rows = list(overview.rows.values())

        def history(histories: Any) -> dict[str, list[float]]:
            # One that never moved needs no points.
            courses = {row.name: histories.rates((TOPIC, row.name, "")) for row in rows}
            return {name: rates for name, rates in courses.items() if any(rates)}

        values["history"] = here.collector.with_histories(history)
    return answer({**values, "rows": rows})


@blueprint.get("/topics/<topic>")
def topic(topic: str) -> Response:
    """One topic, with rates and their course."""
    here = context()
    check_topic(topic)
    overview = here.collector.overview()
    values, failures = topic_values(topic, progressive=True)

    def add(histories: Any) -> None:
        key = (TOPIC, topic, "")
        values["rate"] = histories.rate(key)
        values["rates"], values["depths"] = histories.rates(key), histories.depths(key)
        for channel in values["channels"]:
            key = (CHANNEL, topic, channel["channel_name"])
            channel["rate"] = histories.rate(key)
            channel["depths"] = histories.depths(key)

    here.collector.with_histories(add)
    if here.cluster.has_lookupds:
        named = {node.address: node for node in overview.nodes}
        for each in values["nodes"]:
            node = named.get(each["node"])
            each["tombstoned"] = node is not None and topic in node.tombstoned
    return answer(_with_problems({**_head(overview), **values, "problems":
                                  problems(overview.failures)}, failures))


@blueprint.get("/topics/<topic>/<channel>")
def channel(topic: str, channel: str) -> Response:
    """One channel with its clients, its rate and depth and their course."""
    here = context()
    check_topic(topic)
    check_channel(channel)
    overview = here.collector.overview()
    values, failures = channel_values(topic, channel, progressive=True)
    key = (CHANNEL, topic, channel)

    def add(histories: Any) -> None:
        values["rate"] = histories.rate(key)
        values["rates"], values["depths"] = histories.rates(key), histories.depths(key)

    here.collector.with_histories(add)
    return answer(_with_problems({**_head(overview), **values, "problems":
                                  problems(overview.failures)}, failures))


@blueprint.get("/nodes")
def nodes() -> Response:
    """All nsqds: who knows them, how they are reached, and whether they answered."""
    here = context()
    overview = here.collector.overview()
    failed = {each.address: each for each in overview.failures if each.kind == "nsqd"}
    found = [
        {**node_values(node), "is_up": node.address in overview.answered,
         **_why(failed.get(node.address)),
         "topics": overview.topic_counts.get(node.address, len(node.topics))}
        for node in overview.nodes
    ]
    # One of --nsqd-http-address that never answered has no name of its own.
    named = {node.address for node in overview.nodes}
    silent = [each for each in problems(overview.failures)
              if each["kind"] == "nsqd" and each["address"] not in named]
    return answer({**_head(overview), "list": found, "silent": silent,
                   "lookupds": list(here.cluster.lookupds())})


@blueprint.get("/nodes/<node>")
def node(node: str) -> Response:
    """One nsqd with its topics."""
    here = context()
    overview = here.collector.overview()
    values, failures = node_stats(node, progressive=True)
    found = here.cluster.recent_nodes(progressive=True).named(node)
    tombstoned = found.tombstoned if found is not None else frozenset()
    for each in values["topics"]:
        each["tombstoned"] = each["topic_name"] in tombstoned
        for channel in each["channels"]:
            channel["clients"] = None  # counted already, and there may be very many
    about = node_values(found) if found is not None else {}
    return answer(_with_problems({**_head(overview), **values, "about": about, "problems":
                                  problems(overview.failures)}, failures))


@blueprint.get("/lookup")
def lookup() -> Response:
    """The nsqlookupds, and the topics that they know and no nsqd has."""
    here = context()
    overview = here.collector.overview()
    cluster = here.cluster
    infos, failures = cluster.each_lookupd(
        lambda lookupd: (lookupd.info().version, len(lookupd.topics()), len(lookupd.nodes())),
        progressive=True)
    failed = {each.address: each for each in failures}
    inactive = [row.name for row in overview.rows.values() if row.nodes == 0]
    values = {
        **_head(overview),
        "lookupds": [
            {"address": each, "is_up": each in infos, **_why(failed.get(each)),
             **dict(zip(("version", "topics", "nodes_known"), infos.get(each, ("", 0, 0))))}
            for each in cluster.lookupds()
        ],
        "inactive": inactive_channels(inactive) if inactive else {},
        "node_names": [each.address for each in overview.nodes],
    }
    return answer(_with_problems(values, failures))


@blueprint.get("/producers")
def producers() -> Response:
    """The connections that published something."""
    here = context()
    overview = here.collector.overview()
    stats, failures = here.cluster.stats(
        overview.nodes, include_clients=True, progressive=True)
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
    return answer(_with_problems({**_head(overview), "list": found}, failures))


@blueprint.post("/publish")
def publish_message() -> Response:
    """Publish one message: ``topic``, ``body``, ``encoding``, ``node``, ``defer`` in seconds."""
    here = context()
    check_may_act(here.settings, request)
    values = body()
    topic = check_topic(text_of(values, "topic"))
    data = read_body(text_of(values, "body"), text_of(values, "encoding"))
    node = publish(here.cluster, topic, data, text_of(values, "node"), values.get("defer"))
    here.notifier.tell(request, user_of(here.settings, request), "publish_message", topic, "",
                       node)
    here.collector.ask_soon()
    return answer({"message": "", "node": node, "size": len(data)})


@blueprint.post("/peek")
def peek() -> Response:
    """Messages as they come, a line of JSON each: ``topic``, ``count``, ``seconds``.

    With ``channel`` they are borrowed from it and given back: who may not act may not do that.
    """
    here = context()
    check_may_peek(here.settings, request)
    values = body()
    topic = check_topic(text_of(values, "topic"))
    count = _within(values, "count", 20, peeking.MOST_MESSAGES)
    seconds = _within(values, "seconds", 10, peeking.LONGEST)
    channel = text_of(values, "channel")
    if channel:
        check_channel(channel)
        check_may_act(here.settings, request)
    try:
        plan = here.peeks.plan_loan(topic, channel) if channel else here.peeks.plan(topic)
        messages, end = here.peeks.run(topic, plan, int(count), float(seconds))
    except peeking.PeekRefused as exc:
        return error(exc.status, exc.code, str(exc))
    here.notifier.tell(request, user_of(here.settings, request), "peek_messages", topic,
                       channel)

    def lines() -> Iterator[str]:
        yield json.dumps({"nodes": [node.address for node in plan.nodes], "notes": plan.notes})
        for message in messages:
            yield "\n" + (json.dumps(message) if message else "")
        yield "\n"

    response = Response(lines(), content_type="application/x-ndjson; charset=utf-8",
                        headers={"Cache-Control": "no-store"})
    response.call_on_close(end)
    return response


def _within(values: dict[str, Any], name: str, default: int, highest: float) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= highest:
        raise BadRequest("INVALID_BODY", f"{name} is a number above 0, at most {highest:g}")
    return value
