"""JSON responses and request bodies of both APIs, nsqadmin's form of errors, and what failures of
servers mean: a cause, advice that fits it, and since when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from typing import Any

from flask import Response, request

from nsqclient.admin.access_control import RequestError
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.cluster import Node
from nsqclient.cluster.actions import ActionError
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.peer_json import InvalidJson, read_json
from nsqclient.display import LONGEST_TEXT, printable

#: Seconds without a round after which nothing is known about the time between.
_LONGEST_GAP = 60.0


class Cause(Enum):
    """Why the values of a server are missing; the value is its name for the pages."""

    WAITING = "waiting"
    GONE = "gone"
    HUNG = "hung"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    WRONG_ANSWER = "wrong"
    REJECTED = "rejected"
    DOUBTFUL = "doubtful"
    OTHER = "failed"


#: Cause -> words in a reason, in the order in which they are looked for.
_WORDS = (
    (Cause.UNREACHABLE, ("no connection within", "host unknown", "unreachable", "No route")),
    (Cause.HUNG, ("no whole answer within", "no answer within", "redirects have taken")),
    (Cause.REFUSED, ("refused",)),
    (Cause.TLS, ("TLS: ",)),
    (Cause.WRONG_ANSWER, ("unusable answer", "not HTTP")),
    (Cause.WAITING, ("waiting for its answer", "no request yet")),
)


def cause_of(failure: Failure) -> Cause:
    """Return the cause of a failure."""
    if failure.is_doubt:
        return Cause.DOUBTFUL
    if failure.is_gone:
        return Cause.GONE
    if failure.is_waiting:
        return Cause.WAITING
    if failure.status:
        return Cause.REJECTED
    for cause, words in _WORDS:
        if any(word in failure.reason for word in words):
            return cause
    return Cause.OTHER


def advice_for(failure: Failure) -> str:
    """Return what to do about a failure, in a sentence or two; empty: the reason says it."""
    cause, kind = cause_of(failure), failure.kind
    if cause is Cause.UNREACHABLE and kind == "nsqd":
        return ("This page has no route to that address: start nsqadmin with"
                f" --rewrite-address={failure.address}=HOST:PORT, or nsqd with a"
                " --broadcast-address that is reachable from here.")
    if cause is Cause.REFUSED and kind == "nsqd":
        return ("Nothing listens there: start this nsqd again. A killed nsqd stays listed at"
                " nsqlookupd for some minutes.")
    return _ADVICE.get(cause, "").format(kind=kind)


_ADVICE = {
    Cause.GONE: "It was stopped, or it lost its connections to the nsqlookupds. If it starts again"
                " with its --data-path, the messages that it had on disk are back. If you have"
                " removed it, have it forgotten on the page Nodes.",
    Cause.HUNG: "It accepts connections and does not answer: look at the process of this {kind} on"
                " its host. It may be stopped (SIGCONT continues it), or its disk or memory is"
                " exhausted.",
    Cause.WAITING: "If this stays so, the {kind} hangs.",
    Cause.REFUSED: "Nothing listens there: start the {kind}, or correct the address.",
    Cause.UNREACHABLE: "This page has no route to that address: see name, address and firewall.",
    Cause.TLS: "See --http-client-tls-root-ca-file, and whether the address should begin with"
               " https://.",
    Cause.WRONG_ANSWER: "Something else answers there, or the {kind} is broken: see that this is"
                        " the --http-address of a {kind}.",
}


class FailureTimes:
    """Since when servers fail, over the rounds of the collector. Threads: one at a time."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str, bool], float] = {}
        self._last_round = 0.0

    def add_round(self, failures: Iterable[Failure], now: float) -> None:
        """Add the failures of a round; ``now`` is in seconds since the epoch."""
        if now - self._last_round > _LONGEST_GAP:
            self._since = {}
        self._last_round = now
        self._since = {key: self._since.get(key, now) for key in map(_key, failures)}

    def dated(self, failure: Failure) -> Failure:
        """Return the failure with its time; 0 if the failure is not in the round."""
        return failure._replace(since=self._since.get(_key(failure), 0.0))


def _key(failure: Failure) -> tuple[str, str, bool]:
    return failure.kind, failure.address, failure.is_doubt


_NAMES = "names have 1 to 64 of the characters a-z A-Z 0-9 . _ - and may end in #ephemeral"


JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}


def json_response(values: dict[str, Any], status: int = 200) -> Response:
    """Return a JSON response in nsqadmin's form: without spaces, keys in the given order."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, JSON_HEADERS)


def error_response(status: int, code: str, hint: str = "", **more: Any) -> Response:
    """Return an error: nsqadmin's ``message``, and a hint for people."""
    code, hint = printable(code, LONGEST_TEXT), printable(hint, LONGEST_TEXT)
    return json_response({"message": code, **({"hint": hint} if hint else {}), **more}, status)


def warning(failures: Iterable[Failure]) -> str:
    """Return nsqadmin's warning about servers that failed; empty without failures."""
    texts = [failure.text() for failure in failures]
    return "WARNING: " + "; ".join(texts) if texts else ""


def json_body() -> dict[str, Any]:
    """Return the JSON object in the body of the request; empty without a body.

    Raises:
        RequestError: the body is not a JSON object.
    """
    data = request.get_data()
    if not data:
        return {}
    try:
        values = read_json(data)
    except InvalidJson as exc:
        raise RequestError(400, "INVALID_BODY", f"the body is no JSON: {exc}") from None
    if not isinstance(values, dict):
        raise RequestError(400, "INVALID_BODY", "the body must be a JSON object")
    return values


def text_of(values: dict[str, Any], name: str) -> str:
    """Return a string of a body; empty when it is missing.

    Raises:
        RequestError: the value is not a string.
    """
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RequestError(400, "INVALID_BODY", f"{name} must be a string")
    return value


def check_topic(name: str) -> str:
    """Return a topic's name, or raise RequestError."""
    if not is_valid_name(name):
        raise RequestError(400, "INVALID_TOPIC", _NAMES)
    return name


def check_channel(name: str) -> str:
    """Return a channel's name, or raise RequestError."""
    if not is_valid_name(name):
        raise RequestError(400, "INVALID_CHANNEL", _NAMES)
    return name


def problems(failures: Iterable[Failure]) -> list[dict[str, Any]]:
    """Return failures as the pages show them."""
    return [
        {"kind": each.kind, "address": each.address, "reason": each.reason,
         "asked": each.asked if each.asked != each.address else "", "is_waiting": each.is_waiting,
         "is_doubt": each.is_doubt, "cause": cause_of(each).value, "advice": advice_for(each),
         "since": round(each.since)}
        for each in failures
    ]


def node_values(node: Node) -> dict[str, Any]:
    """Return a node as the pages show it."""
    return {
        "address": node.address, "reached_at": node.reached_at, "hostname": node.hostname,
        "announced": node.announced if node.announced != node.address else "",
        "broadcast_address": node.broadcast_address, "tcp_port": node.tcp_port,
        "http_port": node.http_port, "version": node.version, "lookupds": list(node.lookupds),
        "out_of_date": node.out_of_date, "topics": len(node.topics),
        "tombstoned": sorted(node.tombstoned),
    }


def response_for(exc: Exception) -> Response | None:
    """Return the response for an exception of the admin page; None for others."""
    if isinstance(exc, RequestError):
        return error_response(exc.status, exc.code, exc.hint)
    if isinstance(exc, ActionError):
        return error_response(404 if exc.code.endswith("_NOT_FOUND") else 400, exc.code, exc.hint)
    if isinstance(exc, UpstreamError):
        return error_response(502, f"UPSTREAM_ERROR: {exc}", problems=problems(exc.failures))
    return None
