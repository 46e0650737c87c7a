"""JSON responses and request bodies of both APIs, and nsqadmin's error format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from flask import Response, request

from nsqclient.admin.access_control import RequestError
from nsqclient.cluster.ask_all import ServerFailure, UpstreamError
from nsqclient.cluster.actions import ActionError
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.peer_json import InvalidJson, read_json
from nsqclient.display import LONGEST_TEXT, printable

_GONE = ("It was stopped, or it lost its connections to the nsqlookupds. If it starts again with"
         " its --data-path, the messages that it had on disk are back. If you have removed it, have"
         " it forgotten on the page Nodes.")
_SILENT = ("See whether this {kind} runs. If it hangs, look at its process, disk and memory:"
           " SIGCONT continues a stopped process.")
_NO_ROUTE = (" If this page has no route to it, start nsqadmin with --rewrite-address={address}"
             "=HOST:PORT, or nsqd with a --broadcast-address that is reachable from here.")


def state_of(failure: ServerFailure) -> str:
    if failure.is_gone:
        return "gone"
    if failure.is_doubt:
        return "doubtful"
    return "waiting" if failure.is_waiting else "fails"


def advice_for(failure: ServerFailure) -> str:
    """Return what to do about a failure; empty if its reason already says so."""
    if failure.is_gone:
        return _GONE
    if failure.is_doubt or failure.status or failure.is_lasting:
        return ""
    is_reached = failure.is_waiting or failure.kind != "nsqd"
    advice = _SILENT if is_reached else _SILENT + _NO_ROUTE
    return advice.format(kind=failure.kind, address=failure.address)


_NAMES = "names have 1 to 64 of the characters a-z A-Z 0-9 . _ - and may end in #ephemeral"


JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}


def json_response(values: dict[str, Any], status: int = 200) -> Response:
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, JSON_HEADERS)


def error_response(status: int, code: str, hint: str = "", **more: Any) -> Response:
    """Return an error: nsqadmin's ``message``, and a hint for the user."""
    code, hint = printable(code, LONGEST_TEXT), printable(hint, LONGEST_TEXT)
    return json_response({"message": code, **({"hint": hint} if hint else {}), **more}, status)


def warning(failures: Iterable[ServerFailure]) -> str:
    """Return nsqadmin's warning about servers that failed; empty without failures."""
    texts = [failure.text() for failure in failures]
    return "WARNING: " + "; ".join(texts) if texts else ""


def json_body() -> dict[str, Any]:
    """Return the JSON object in the body of the request; empty without a body."""
    data = request.get_data()
    if not data:
        return {}
    try:
        values = read_json(data)
    except InvalidJson as exc:
        raise RequestError(400, "INVALID_BODY", f"the body is not JSON: {exc}") from None
    if not isinstance(values, dict):
        raise RequestError(400, "INVALID_BODY", "the body must be a JSON object")
    return values


def text_of(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RequestError(400, "INVALID_BODY", f"{name} must be a string")
    return value


def names_of(values: dict[str, Any]) -> tuple[str, str]:
    """Return the topic and the channel of a request body; the channel may be empty."""
    topic, channel = text_of(values, "topic"), text_of(values, "channel")
    check_names(topic, channel or None)
    return topic, channel


def check_names(topic: str | None, channel: str | None = None) -> None:
    if topic is not None and not is_valid_name(topic):
        raise RequestError(400, "INVALID_TOPIC", _NAMES)
    if channel is not None and not is_valid_name(channel):
        raise RequestError(400, "INVALID_CHANNEL", _NAMES)


def problem(failure: ServerFailure) -> dict[str, Any]:
    return {
        "kind": failure.kind, "address": failure.address, "reason": failure.reason,
        "asked": failure.asked if failure.asked != failure.address else "",
        "state": state_of(failure), "advice": advice_for(failure), "since": round(failure.since)}


def response_for(exc: Exception) -> Response | None:
    if isinstance(exc, RequestError):
        return error_response(exc.status, exc.code, exc.hint)
    if isinstance(exc, ActionError):
        return error_response(404 if exc.code.endswith("_NOT_FOUND") else 400, exc.code, exc.hint)
    if isinstance(exc, UpstreamError):
        return error_response(502, f"UPSTREAM_ERROR: {exc}",
                              problems=[problem(each) for each in exc.failures])
    return None
