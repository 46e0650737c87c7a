"""What the two APIs share: JSON answers, reading JSON bodies, and the errors of nsqadmin."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from flask import Response, request

from nsqclient.admin.actions import NotFound
from nsqclient.admin.asking import Failure
from nsqclient.admin.cluster import Node, UpstreamError
from nsqclient.admin.guard import Refused
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.peer_json import InvalidJson, read_json


class BadRequest(Exception):
    """A request that cannot be understood. ``code`` is nsqadmin's word for it."""

    def __init__(self, code: str, hint: str = "", status: int = 400) -> None:
        super().__init__(f"{code} {hint}")
        self.code = code
        self.hint = hint
        self.status = status


def answer(values: dict[str, Any], status: int = 200) -> Response:
    """A JSON answer, in nsqadmin's form: without spaces, keys in the given order."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, {"Cache-Control": "no-store"},
                    content_type="application/json; charset=utf-8")


def error(status: int, code: str, hint: str = "", **more: Any) -> Response:
    """An error: nsqadmin's ``message``, and a hint for people."""
    code, hint = printable(code, LONGEST_TEXT), printable(hint, LONGEST_TEXT)
    return answer({"message": code, **({"hint": hint} if hint else {}), **more}, status)


def warning(failures: Iterable[Failure]) -> str:
    """What nsqadmin says of servers that took no part: empty when all did."""
    texts = [failure.text() for failure in failures]
    return "WARNING: " + "; ".join(texts) if texts else ""


def body() -> dict[str, Any]:
    """The JSON object in the body of the request; empty when there is no body.

    Raises:
        BadRequest: there is a body, and it is none.
    """
    data = request.get_data()
    if not data:
        return {}
    try:
        values = read_json(data)
    except InvalidJson as exc:
        raise BadRequest("INVALID_BODY", f"the body is no JSON: {exc}") from None
    if not isinstance(values, dict):
        raise BadRequest("INVALID_BODY", "the body must be a JSON object")
    return values


def text_of(values: dict[str, Any], name: str) -> str:
    """A string of a body; empty when it is missing.

    Raises:
        BadRequest: it is something else.
    """
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequest("INVALID_BODY", f"{name} must be a string")
    return value


def check_topic(name: str) -> str:
    """Return a topic's name, or raise BadRequest."""
    if not is_valid_name(name):
        raise BadRequest("INVALID_TOPIC", _NAMES)
    return name


def check_channel(name: str) -> str:
    """Return a channel's name, or raise BadRequest."""
    if not is_valid_name(name):
        raise BadRequest("INVALID_CHANNEL", _NAMES)
    return name


def problems(failures: Iterable[Failure]) -> list[dict[str, Any]]:
    """Failures as the pages show them."""
    return [
        {"kind": each.kind, "address": each.address, "reason": each.reason,
         "asked": each.asked if each.asked != each.address else "", "is_waiting": each.is_waiting,
         "is_doubt": each.is_doubt}
        for each in failures
    ]


def node_values(node: Node) -> dict[str, Any]:
    """A node as the pages show it."""
    return {
        "address": node.address, "reached_at": node.reached_at, "hostname": node.hostname,
        "announced": node.announced if node.announced != node.address else "",
        "broadcast_address": node.broadcast_address, "tcp_port": node.tcp_port,
        "http_port": node.http_port, "version": node.version, "lookupds": list(node.lookupds),
        "out_of_date": node.out_of_date, "topics": len(node.topics),
        "tombstoned": sorted(node.tombstoned),
    }


def error_for(exc: Exception) -> Response | None:
    """The answer for an exception of ours, or None."""
    if isinstance(exc, Refused):
        return error(exc.status, exc.code, str(exc).partition(": ")[2])
    if isinstance(exc, BadRequest):
        return error(exc.status, exc.code, exc.hint)
    if isinstance(exc, NotFound):
        return error(404, exc.code, str(exc))
    if isinstance(exc, UpstreamError):
        return error(502, f"UPSTREAM_ERROR: {exc}", problems=problems(exc.failures))
    return None


_NAMES = "names have 1 to 64 of the characters a-z A-Z 0-9 . _ - and may end in #ephemeral"
