"""Actions of the pages that nsqadmin lacks: bulk actions, replay of dead letters, publish, peek."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin.access_control import RequestError, check_may_act, check_may_peek
from nsqclient.admin.context import context
from nsqclient.admin.messages import MAX_MESSAGES, MAX_SECONDS, Steps
from nsqclient.admin.responses import (
    check_names, json_body, json_response, names_of, text_of, warning,
)
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.actions import CHANGES, ActionError

blueprint: Blueprint = Blueprint("actions_api", __name__, url_prefix="/api/live")

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
    servers: list[Failure] = []
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
    first = next(steps)  # begun at once: a generator that never began would not be closed

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
    """Drop a ``node`` that has disappeared from the pages and the metrics."""
    here = context()
    check_may_act(here.settings, request)
    node = text_of(json_body(), "node")
    if not here.lost.forget(node):
        raise RequestError(404, "NODE_NOT_FOUND", f"no nsqd {node} is remembered")
    here.report("forget_node", "", "", node)
    return json_response({"message": ""})


@blueprint.post("/peek")
def peek() -> Response:
    """Return messages as they arrive, a line of JSON each: ``topic``, ``count``, ``seconds``.

    With ``channel`` they are taken from it and requeued, which needs the permission to act.
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
