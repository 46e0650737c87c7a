"""Checks of an nsqlookupd: does it answer, which nsqds does it list, does it know the topic.

``check_clock`` is for every server with an HTTP port: it compares the server's clock with ours.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import requests

from nsqclient.config import Config
from nsqclient.doctor.findings import Finding, error, ok, warning
from nsqclient.display import counted
from nsqclient.errors import NSQError, NSQHTTPStatusError
from nsqclient.hints import hint_for
from nsqclient.http import NsqlookupdHTTP
from nsqclient.http.limits import mount_adapters
from nsqclient.http.models import Node, Producer
from nsqclient.http.urls import lookup_url, split_address
from nsqclient.runtime.addresses import format_address

_CHECK = "nsqlookupd"
#: Seconds; the Date header has whole ones, and the response takes its time.
_TOLERANCE = 5.0


@dataclass
class LookupdView:
    """What one nsqlookupd said."""

    address: str
    findings: list[Finding] = field(default_factory=list)
    answered: bool = False
    nodes: list[Producer] = field(default_factory=list)  #: every nsqd that it lists
    node_topics: set[str] = field(default_factory=set)  #: the topics of these
    producers: list[Producer] | None = None  #: those with the topic; None: it knows no such topic
    topics: tuple[str, ...] = ()  #: where it does not know the topic: those that it knows
    hidden: list[Producer] = field(default_factory=list)  #: those whose topic is tombstoned


def check_lookupd(
    address: str, topic: str, config: Config, timeouts: tuple[float, float]
) -> LookupdView:
    """Check one nsqlookupd; ``topic`` may be empty. Never raises an NSQError."""
    view = LookupdView(address)
    try:
        with NsqlookupdHTTP(
            address, config, connect_timeout=timeouts[0], timeout=timeouts[1]
        ) as client:
            nodes = client.nodes()
            view.producers = _lookup(client, topic) if topic else None
            view.topics = client.topics() if topic and view.producers is None else ()
            version = client.info().version
    except NSQHTTPStatusError as exc:
        view.findings.append(error(
            _CHECK, address, exc.reason,
            "another server answers there: give nsqlookupd's --http-address (4161 by default;"
            " nsqd's is 4151)",
        ))
        return view
    except NSQError as exc:
        reason = getattr(exc, "reason", str(exc))
        view.findings.append(error(_CHECK, address, reason, hint_for(exc)))
        return view
    view.answered = True
    view.nodes = [node.producer for node in nodes]
    view.node_topics = {name for node in nodes for name in node.topics}
    view.hidden = [node.producer for node in nodes if topic in node.tombstoned]
    view.findings += [
        ok(_CHECK, address, f"answers, version {version}, lists {counted(len(nodes), 'nsqd')}"),
        *_check_nodes(address, nodes, topic),
        *check_clock(lookup_url(address, "ping"), address, timeouts),
    ]
    return view


def _lookup(client: NsqlookupdHTTP, topic: str) -> list[Producer] | None:
    try:
        return list(client.lookup(topic).producers)
    except NSQHTTPStatusError as exc:
        if exc.message == "TOPIC_NOT_FOUND":
            return None
        raise


def _check_nodes(address: str, nodes: tuple[Node, ...], topic: str) -> list[Finding]:
    findings = []
    if not nodes:
        findings.append(error(
            _CHECK, address, "no nsqd is registered with it",
            "start nsqd with nsqlookupd's TCP address (port 4160 by default, not 4161)",
            "nsqd --lookupd-tcp-address="
            + format_address(split_address(address, "address").hostname or "", 4160),
        ))
    is_local = _is_loopback(split_address(address, "address").hostname or "")
    for node in nodes:
        producer = node.producer
        if not is_local and _is_loopback(producer.broadcast_address):
            findings.append(error(
                "broadcast", producer.tcp_address,
                f"nsqd on {producer.hostname} announces a loopback address",
                "every client would dial its own machine: start that nsqd with a"
                " --broadcast-address that others can reach",
            ))
        if topic in node.tombstoned:
            findings.append(warning(
                "topic", producer.tcp_address, f"{topic} is tombstoned here: lookups hide it",
                "it comes back by itself after nsqlookupd's --tombstone-lifetime (45 s)",
            ))
    return findings


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_clock(url: str, where: str, timeouts: tuple[float, float]) -> list[Finding]:
    """Compare the clock of a server with ours; no finding where ``url`` gives no time.

    Blocks: as long as ``timeouts`` (connect, answer) allow.
    """
    with requests.Session() as session:
        session.trust_env = False
        mount_adapters(session)
        try:
            # The header is enough, so the body is not read, however long it may be.
            response = session.get(url, timeout=timeouts, allow_redirects=False, stream=True)
        except requests.RequestException:
            return []  # another check reports why it cannot be reached
    try:
        theirs = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return []
    return [clock_finding(theirs - time.time(), where)]


def clock_finding(ahead: float, where: str) -> Finding:
    """Build the finding for a clock that is so many seconds ahead of ours."""
    if abs(ahead) <= _TOLERANCE:
        return ok("clock", where, "agrees with ours")
    side = "ahead of" if ahead > 0 else "behind"
    return warning(
        "clock", where, f"{abs(ahead):.0f} s {side} ours",
        "run NTP on both machines: timestamps and ages of messages are wrong by as much, and"
        " certificates may seem invalid",
    )
