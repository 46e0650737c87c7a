"""Looks at one nsqlookupd: does it answer, which nsqds does it list, does it know the topic."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from nsqclient import Config, NSQError
from nsqclient.advice import advice_for
from nsqclient.cli.doctor.clock import compare_clock
from nsqclient.cli.doctor.findings import Finding, ok, warning, wrong
from nsqclient.errors import HTTPStatusError
from nsqclient.http import NsqlookupdHTTP
from nsqclient.http.answers import Node, Producer
from nsqclient.http.urls import lookup_url, split_address
from nsqclient.runtime.plurals import counted

_CHECK = "nsqlookupd"


@dataclass
class LookupdView:
    """What one nsqlookupd said."""

    address: str
    findings: list[Finding] = field(default_factory=list)
    answered: bool = False
    nodes: list[Producer] = field(default_factory=list)  #: every nsqd that it lists
    producers: list[Producer] | None = None  #: those with the topic; None: it knows no such topic
    hidden: list[Producer] = field(default_factory=list)  #: those whose topic is tombstoned


def examine_lookupd(
    address: str, topic: str, config: Config, timeouts: tuple[float, float]
) -> LookupdView:
    """Ask a nsqlookupd all there is to ask. Never raises an NSQError."""
    view = LookupdView(address)
    try:
        with NsqlookupdHTTP(
            address, config, connect_timeout=timeouts[0], timeout=timeouts[1]
        ) as client:
            nodes = client.nodes()
            view.producers = _lookup(client, topic)
            version = client.info().version
    except HTTPStatusError as exc:
        view.findings.append(wrong(
            _CHECK, address, exc.reason,
            "another server answers there: give nsqlookupd's --http-address (4161 by default;"
            " nsqd's is 4151)",
        ))
        return view
    except NSQError as exc:
        reason = getattr(exc, "reason", str(exc))
        view.findings.append(wrong(_CHECK, address, reason, advice_for(exc)))
        return view
    view.answered = True
    view.nodes = [node.producer for node in nodes]
    view.hidden = [node.producer for node in nodes if topic in node.tombstoned]
    view.findings += [
        ok(_CHECK, address, f"answers, version {version}, lists {counted(len(nodes), 'nsqd')}"),
        *_judge_nodes(address, nodes, topic),
        *compare_clock(lookup_url(address, "ping"), address, timeouts),
    ]
    return view


def _lookup(client: NsqlookupdHTTP, topic: str) -> list[Producer] | None:
    try:
        return list(client.lookup(topic).producers)
    except HTTPStatusError as exc:
        if exc.message == "TOPIC_NOT_FOUND":
            return None
        raise


def _judge_nodes(address: str, nodes: tuple[Node, ...], topic: str) -> list[Finding]:
    findings = []
    if not nodes:
        findings.append(wrong(
            _CHECK, address, "no nsqd is registered with it",
            "start nsqd with --lookupd-tcp-address=HOST:4160 (nsqlookupd's TCP port, not 4161)",
        ))
    is_local = _is_loopback(split_address(address, "address").hostname or "")
    for node in nodes:
        producer = node.producer
        if not is_local and _is_loopback(producer.broadcast_address):
            findings.append(wrong(
                "broadcast", producer.tcp_address,
                f"nsqd on {producer.hostname} says that it is at a loopback address",
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
