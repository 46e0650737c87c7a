"""Looks at the TCP port of one nsqd, as a consumer would: name, port, TLS, AUTH, limits.

It connects and negotiates, and subscribes to nothing.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from nsqclient import Config, Connection, NSQError, ServerError
from nsqclient.advice import advice_for
from nsqclient.cli.doctor.findings import Finding, ok, warning, wrong
from nsqclient.protocol.wire import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import parse_address

_CHECK = "nsqd"
#: Seconds in which nsqd surely has refused a command, on top of some round trips.
_REFUSAL = 0.3


class _Listener:
    """Waits for the end of a connection; nothing else can happen to one without SUB."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: NSQError | None = None

    def wait(self, timeout: float) -> NSQError | None:
        """The reason for which it ended; None when it lives."""
        return self._error if self._ended.wait(timeout) else None

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """For Connection."""

    def on_published(self, conn: Connection, token: Any, error: ServerError | None) -> None:
        """For Connection."""

    def on_answer_failed(self, conn: Connection, error: ServerError) -> None:
        """For Connection."""

    def on_close_wait(self, conn: Connection) -> None:
        """For Connection."""

    def on_closed(self, conn: Connection, error: NSQError, unanswered: list[Any]) -> None:
        """For Connection: remember why."""
        self._error = error
        self._ended.set()


def examine_nsqd(
    address: str, config: Config, timeout: float, listed_by: str = ""
) -> list[Finding]:
    """Connect to one nsqd and negotiate. Never raises an NSQError.

    Args:
        timeout: seconds for all of it.
        listed_by: the nsqlookupd that named the address; empty where the user did.

    Blocks: at most ``timeout``, and half a second.
    """
    host, port = parse_address(address)
    try:
        socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except OSError as exc:
        return [wrong("DNS" if not listed_by else "broadcast", address,
                      f"{host} does not resolve{_named(listed_by)}: {exc.strerror}",
                      _broadcast_advice(listed_by) or "correct the name in the address")]
    listener = _Listener()
    conn = Connection(address, config, listener)
    began = time.monotonic()
    try:
        conn.open(Deadline(timeout))
        took = time.monotonic() - began
        refusal = _refusal(conn, listener, _REFUSAL + 2 * took)
    except NSQError as exc:
        return [_judge_error(exc, address, listed_by)]
    finally:
        conn.close()
        conn.join(Deadline(timeout))
    if refusal is not None:
        return [_judge_error(refusal, address, listed_by)]
    return [_judge_settings(conn, config, address, took), *_judge_limits(conn, config, address)]


def _refusal(conn: Connection, listener: _Listener, patience: float) -> NSQError | None:
    """Find out whether nsqd takes commands: one that demands TLS says so only to the first.

    NOP changes nothing and has no answer, so a refusal is waited for.
    """
    conn.start()
    try:
        conn.send(lambda core: core.send_nop())
    except NSQError as exc:
        return listener.wait(patience) or exc
    return listener.wait(patience)


def _judge_error(error: NSQError, address: str, listed_by: str) -> Finding:
    reason = str(error).removeprefix(f"{address}: ")
    advice = advice_for(error)
    if listed_by and not isinstance(error, ServerError) and _is_no_way(reason):
        return wrong("broadcast", address, f"cannot be reached{_named(listed_by)}: {reason}",
                     _broadcast_advice(listed_by))
    return wrong(_CHECK, address, reason, advice or "see nsqd's log for what it did not like")


def _is_no_way(reason: str) -> bool:
    lowered = reason.lower()
    return any(word in lowered for word in ("refused", "timed out", "time out", "route",
                                            "unreachable", "no connection"))


def _named(listed_by: str) -> str:
    return f" (nsqlookupd {listed_by} lists it)" if listed_by else ""


def _broadcast_advice(listed_by: str) -> str:
    if not listed_by:
        return ""
    return (
        "start that nsqd with a --broadcast-address (and port) that this machine can reach; in a"
        " container the default is the container's own name"
    )


def _judge_settings(conn: Connection, config: Config, address: str, took: float) -> Finding:
    settings = conn.settings
    granted = [name for name in ("tls_v1", "snappy", "deflate") if getattr(settings, name)]
    if settings.auth_required:
        granted.append("AUTH")
    extras = f", {', '.join(granted)}" if granted else ""
    return ok(_CHECK, address,
              f"nsqd {settings.version}, negotiated in {took * 1000:.0f} ms{extras}")


def _judge_limits(conn: Connection, config: Config, address: str) -> list[Finding]:
    limit = conn.settings.max_rdy_count
    if limit and config.max_in_flight > limit:
        return [warning(
            "RDY", address, f"max_in_flight of {config.max_in_flight} is over nsqd's limit {limit}",
            "start nsqd with a higher --max-rdy-count, or expect no more than that from it",
        )]
    return []
