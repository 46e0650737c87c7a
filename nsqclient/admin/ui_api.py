"""The API of the pages: their numbers every few seconds, and actions that nsqadmin lacks.

These are bulk actions, replay of dead letters, publish, peek, and forgetting a lost node.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin.access_control import RequestError, check_may_act, check_may_peek
from nsqclient.admin.aggregate import number, objects, text
from nsqclient.admin.context import context
from nsqclient.admin.messages import MAX_MESSAGES, MAX_SECONDS, Steps
from nsqclient.admin.nsqadmin_api import channel_values, inactive_channels, node_stats, topic_values
from nsqclient.admin.overview import CHANNEL, TOPIC, Overview, Row
from nsqclient.admin.responses import (
    JSON_HEADERS, check_names, json_body, json_response, names_of, problem, state_of, text_of,
    warning,
)
from nsqclient.cluster.actions import CHANGES, ActionError
from nsqclient.cluster.doctor.findings import in_order, summary
from nsqclient.cluster.ask_all import ServerFailure, UpstreamError
from nsqclient.cluster.cluster import Node

View = Callable[..., Any]
#: The values of a page, and the failures of its own requests.
Values = tuple[dict[str, Any], Iterable[ServerFailure]]

_MOST_ANSWERS = 100
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


def _state(failure: ServerFailure | None) -> dict[str, Any]:
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
    """Return all nsqds, including those that do not answer."""
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
    """Return the nsqlookupds, and the topics that they list but no nsqd has."""
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


def _stats_with_clients(
    overview: Overview,
) -> tuple[dict[Node, dict[str, Any]], list[ServerFailure]]:
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


MOST_NAMES = 200
_RATE, _HIGHEST_RATE = 100.0, 10_000.0


@blueprint.post("/bulk")
def bulk() -> Response:
    """Carry out one action on ``topics``, or on ``channels`` of a ``topic``."""
    here = context()
    check_may_act(here.settings, request)
    values = json_body()
    action = text_of(values, "action")
    if action not in CHANGES:
        raise RequestError(400, "INVALID_ACTION", "action is pause, unpause, empty or delete")
    targets = _targets(values)
    done: list[str] = []
    failed: list[dict[str, str]] = []
    servers: list[ServerFailure] = []
    for topic, channel in targets:
        name = channel or topic
        try:
            servers += here.actions.change(action, topic, channel, waits=not done and not failed)
        except (ActionError, UpstreamError) as exc:
            failed.append({"name": name, "reason": getattr(exc, "hint", str(exc))})
        else:
            done.append(name)
            here.report(f"{action}_{'channel' if channel else 'topic'}", topic, channel)
    return json_response(
        {"message": warning(dict.fromkeys(servers)), "done": done, "failed": failed})


def _targets(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the topics and channels of a request; all are checked before anything is done."""
    topic = text_of(values, "topic")
    names = values.get("channels" if topic else "topics")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise RequestError(400, "INVALID_BODY", "give topics, or a topic and channels, as lists")
    if len(names) > MOST_NAMES:
        raise RequestError(400, "TOO_MANY", f"at most {MOST_NAMES} at once")
    targets = [(topic, name) if topic else (name, "") for name in dict.fromkeys(names)]
    for target in targets:
        check_names(target[0], target[1] if topic else None)
    return targets


@blueprint.post("/replay")
def replay() -> Response:
    """Replay the dead letters in a ``channel`` of a ``topic`` to the topic ``target``."""
    here = context()
    check_may_act(here.settings, request)
    values = json_body()
    topic, channel = names_of(values)
    target = text_of(values, "target")
    check_names(target, channel)
    rate = _within(values, "rate", _RATE, _HIGHEST_RATE)
    response = _stream(here.replayer.run(topic, channel, target, rate))
    here.report("replay_dead_letters", topic, channel)
    return response


def _stream(steps: Steps) -> Response:
    """Return a response with a line of JSON for each step."""
    first = next(steps)  # close() does nothing to a generator that was never started

    def lines() -> Iterator[str]:
        yield json.dumps(first)
        for step in steps:
            yield "\n" + (json.dumps(step) if step else "")
        yield "\n"

    response = Response(lines(), content_type="application/x-ndjson; charset=utf-8",
                        headers={"Cache-Control": "no-store"})
    response.call_on_close(steps.close)
    return response


@blueprint.post("/publish")
def publish_message() -> Response:
    """Publish one message: ``topic``, ``body``, ``encoding``, ``node``, ``defer`` in seconds."""
    here = context()
    check_may_act(here.settings, request)
    values = json_body()
    topic, _ = names_of(values)
    data = _decode_body(text_of(values, "body"), text_of(values, "encoding"))
    defer = values.get("defer")
    if defer is not None and (isinstance(defer, bool) or not isinstance(defer, (int, float))):
        raise RequestError(400, "INVALID_DEFER", "defer is a number of seconds")
    node = here.actions.publish(topic, data, text_of(values, "node"), defer)
    here.report("publish_message", topic, "", node)
    return json_response({"message": "", "node": node, "size": len(data)})


def _decode_body(body: str, encoding: str) -> bytes:
    if encoding == "base64":
        try:
            data = base64.b64decode("".join(body.split()), validate=True)
        except (binascii.Error, ValueError) as exc:
            raise RequestError(400, "INVALID_BODY", f"invalid base64: {exc}") from None
    elif encoding in ("", "text"):
        data = body.encode("utf-8", "surrogatepass")
    else:
        raise RequestError(400, "INVALID_BODY", "encoding is text or base64")
    if not data:
        raise RequestError(400, "INVALID_BODY", "a message needs at least one byte")
    return data


@blueprint.post("/forget")
def forget() -> Response:
    """Remove a lost ``node`` from the pages and the metrics."""
    here = context()
    check_may_act(here.settings, request)
    node = text_of(json_body(), "node")
    if not here.lost.forget(node):
        raise RequestError(404, "NODE_NOT_FOUND", f"no nsqd {node} is remembered")
    here.report("forget_node", "", "", node)
    return json_response({"message": ""})


@blueprint.post("/peek")
def peek() -> Response:
    """Stream up to ``count`` messages of ``topic`` for ``seconds``, one line of JSON each.

    With ``channel``, show the messages that wait in it, and requeue them: needs permission to act.
    """
    here = context()
    check_may_peek(here.settings, request)
    values = json_body()
    topic, channel = names_of(values)
    count = _within(values, "count", 20, MAX_MESSAGES)
    seconds = _within(values, "seconds", 10, MAX_SECONDS)
    if channel:
        check_may_act(here.settings, request)
    plan = here.peeker.plan(topic, channel)
    response = _stream(here.peeker.run(topic, plan, int(count), float(seconds)))
    here.report("peek_messages", topic, channel)
    return response


def _within(values: dict[str, Any], name: str, default: float, highest: float) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= highest:
        raise RequestError(400, "INVALID_BODY", f"{name} is a number above 0, at most {highest:g}")
    return value
