"""Checks of an nsqlookupd, of the TCP port of an nsqd, of its statistics, and of clocks.

``check_topic`` and ``check_counters`` are pure: statistics in, findings out.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import requests

from nsqclient.config import Config
from nsqclient.cluster.probe import Probe, probe
from nsqclient.display import counted
from nsqclient.cluster.doctor.findings import Finding, Severity, curl, error, ok, warning
from nsqclient.errors import NSQError, NSQHTTPStatusError, ServerError
from nsqclient.http import ChannelStats, Stats, TopicStats
from nsqclient.partitioned.http import PartitionedNsqlookupdHTTP
from nsqclient.http.models import Node, Producer
from nsqclient.http.urls import lookup_url, nsqd_url, split_address
from nsqclient.runtime.addresses import format_address, parse_address

#: Seconds; the Date header has whole ones, and the response takes its time.
_TOLERANCE = 5.0


@dataclass
class LookupdView:
    address: str
    findings: list[Finding] = field(default_factory=list)
    answered: bool = False
    nodes: list[Producer] = field(default_factory=list)  #: every nsqd that it lists
    node_topics: set[str] = field(default_factory=set)  #: the topics of these
    producers: list[Producer] | None = None  #: nsqds with the topic; None: unknown topic
    topics: tuple[str, ...] = ()  #: the known topics, if it does not know the topic
    hidden: list[Producer] = field(default_factory=list)  #: nsqds whose topic is tombstoned


def check_lookupd(
    address: str, topic: str, config: Config, timeouts: tuple[float, float]
) -> LookupdView:
    """Check one nsqlookupd; ``topic`` may be empty. Never raises an NSQError."""
    view = LookupdView(address)
    try:
        with PartitionedNsqlookupdHTTP(
            address, config, connect_timeout=timeouts[0], timeout=timeouts[1]
        ) as client:
            nodes = client.nodes()
            view.producers = _lookup(client, topic) if topic else None
            view.topics = client.topics() if topic and view.producers is None else ()
            version = client.info().version
    except NSQHTTPStatusError as exc:
        view.findings.append(error(
            "nsqlookupd", address, exc.reason,
            "another server answers there: give nsqlookupd's --http-address (4161 by default;"
            " nsqd's is 4151)",
        ))
        return view
    except NSQError as exc:
        reason = getattr(exc, "reason", str(exc))
        view.findings.append(error("nsqlookupd", address, reason, exc.hint))
        return view
    view.answered = True
    view.nodes = [node.producer for node in nodes if not node.producer.problem]
    view.node_topics = {name for node in nodes for name in node.topics}
    view.hidden = [node.producer for node in nodes if topic in node.tombstoned]
    view.findings += [
        ok("nsqlookupd", address,
           f"answers, version {version}, lists {counted(len(nodes), 'nsqd')}"),
        *_check_nodes(address, nodes, topic),
        *check_clock(lookup_url(address, "ping"), address, timeouts),
    ]
    return view


def _lookup(client: PartitionedNsqlookupdHTTP, topic: str) -> list[Producer] | None:
    try:
        return [each for each in client.lookup(topic).producers if not each.problem]
    except NSQHTTPStatusError as exc:
        if exc.message == "TOPIC_NOT_FOUND":
            return None
        raise


def _check_nodes(address: str, nodes: tuple[Node, ...], topic: str) -> list[Finding]:
    findings = []
    if not nodes:
        findings.append(error(
            "nsqlookupd", address, "no nsqd is registered with it",
            "start nsqd with nsqlookupd's TCP address (port 4160 by default, not 4161)",
            "nsqd --lookupd-tcp-address="
            + format_address(split_address(address, "address").hostname or "", 4160),
        ))
    is_local = _is_loopback(split_address(address, "address").hostname or "")
    for node in nodes:
        producer = node.producer
        if producer.problem:
            findings.append(error(
                "broadcast", address, producer.problem.partition(": start")[0],
                "start that nsqd with a --broadcast-address that is a host name or an IP address"))
        elif not is_local and _is_loopback(producer.broadcast_address):
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
    """Compare the clock of a server with ours; no finding if the response has no date.

    Blocks: as long as ``timeouts`` (connect, answer) allow.
    """
    with requests.Session() as session:
        session.trust_env = False
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
    if abs(ahead) <= _TOLERANCE:
        return ok("clock", where, "agrees with ours")
    side = "ahead of" if ahead > 0 else "behind"
    return warning(
        "clock", where, f"{abs(ahead):.0f} s {side} ours",
        "run NTP on both machines: timestamps and ages of messages are wrong by as much, and"
        " certificates may seem invalid",
    )


def check_nsqd(
    address: str, config: Config, timeout: float, listed_by: str = ""
) -> list[Finding]:
    """Connect to one nsqd and negotiate. Never raises an NSQError.

    Args:
        timeout: seconds for all of it.
        listed_by: the nsqlookupd that lists the address; empty if the user gave it.

    Blocks: at most ``timeout`` and half a second.
    """
    host, port = parse_address(address)
    try:
        socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except OSError as exc:
        return [error("DNS" if not listed_by else "broadcast", address,
                      f"{host} does not resolve{_named(listed_by)}: {exc.strerror}",
                      _broadcast_hint(listed_by) or "correct the name in the address")]
    try:
        found = probe(address, config, timeout)
    except NSQError as exc:
        return [_connection_error(exc, address, listed_by)]
    return [_negotiated(found, address), *_check_limits(found, config, address)]


def _connection_error(exc: NSQError, address: str, listed_by: str) -> Finding:
    reason = str(exc).removeprefix(f"{address}: ")
    if listed_by and not isinstance(exc, ServerError) and _is_unreachable(reason):
        return error("broadcast", address, f"cannot be reached{_named(listed_by)}: {reason}",
                     _broadcast_hint(listed_by))
    return error("nsqd", address, reason, exc.hint or "see nsqd's log for the reason")


def _is_unreachable(reason: str) -> bool:
    lowered = reason.lower()
    return any(word in lowered for word in ("refused", "timed out", "time out", "route",
                                            "unreachable", "no connection"))


def _named(listed_by: str) -> str:
    return f" (nsqlookupd {listed_by} lists it)" if listed_by else ""


def _broadcast_hint(listed_by: str) -> str:
    if not listed_by:
        return ""
    return (
        "start that nsqd with a --broadcast-address (and port) that this machine can reach; in a"
        " container the default is the container's own name"
    )


def _negotiated(found: Probe, address: str) -> Finding:
    settings = found.settings
    granted = [name for name in ("tls_v1", "snappy", "deflate") if getattr(settings, name)]
    if settings.auth_required:
        granted.append("AUTH")
    extras = f", {', '.join(granted)}" if granted else ""
    return ok("nsqd", address,
              f"nsqd {settings.version}, negotiated in {found.seconds * 1000:.0f} ms{extras}")


def _check_limits(found: Probe, config: Config, address: str) -> list[Finding]:
    limit = found.settings.max_rdy_count
    if limit and config.max_in_flight > limit:
        return [warning(
            "RDY", address, f"max_in_flight of {config.max_in_flight} is over nsqd's limit {limit}",
            "start nsqd with a higher --max-rdy-count, or expect no more than that from it",
        )]
    return []


def check_topic(stats: Stats, topic: str, channel: str, where: str) -> list[Finding]:
    """Check the topic and its channels in the statistics of an nsqd.

    Args:
        topic: empty: all topics, with one finding for all channels without a problem.
        channel: empty: all channels.
    """
    findings = []
    if stats.health != "OK":
        findings.append(error("disk", where, f"nsqd says {stats.health}",
                              "nsqd cannot write: free space on its disk, or repair it"))
    if not topic:
        return findings + _check_all(stats, where)
    found = stats.topic(topic)
    return findings if found is None else findings + _check_one(found, channel, where)


def _check_all(stats: Stats, where: str) -> list[Finding]:
    topics = list(filter(None, map(stats.topic, stats.names)))
    findings = [found for topic in topics for found in _check_one(topic, "", where)]
    good = [found for found in findings if found.severity is Severity.OK]
    bad = [found for found in findings if found.severity is not Severity.OK]
    return bad + [ok("topics", where, f"{counted(len(topics), 'topic')},"
                     f" {counted(len(good), 'channel')} without a problem")]


def _check_one(topic: TopicStats, channel: str, where: str) -> list[Finding]:
    findings = []
    if topic.paused:
        findings.append(error(
            "topic", f"{topic.name} at {where}", "the topic is paused", "unpause it",
            curl(nsqd_url(where, "topic/unpause"), topic=topic.name)))
    if topic.waits_for_channel:
        findings.append(warning(
            "topic", f"{topic.name} at {where}",
            f"it has {counted(topic.depth, 'waiting message')} and no channel",
            "start a consumer, or create a channel: the first one takes these messages"))
    for each in _chosen(topic, channel):
        findings += _check_channel(each, topic.name, where)
    return findings


def check_counters(
    before: Stats, after: Stats, topic: str, channel: str, where: str, seconds: float
) -> list[Finding]:
    """Check which counters grew between two statistics of an nsqd.

    An empty ``topic`` or ``channel`` means all topics or channels.
    """
    if not topic:
        return [found for name in after.names
                for found in check_counters(before, after, name, "", where, seconds)]
    old, new = before.topic(topic), after.topic(topic)
    if old is None or new is None:
        return []
    findings = []
    for now in _chosen(new, channel):
        then = old.channel(now.name)
        if then is None:
            continue
        name = f"{topic}/{now.name} at {where}"
        timed_out = now.timeout_count - then.timeout_count
        requeued = now.requeue_count - then.requeue_count
        if timed_out > 0:
            findings.append(error(
                "timeouts", name, f"{counted(timed_out, 'message')} timed out in {seconds:.0f} s",
                "handlers take longer than msg_timeout: raise it (option msg_timeout), touch() or"
                " keep_alive() long work, lower max_in_flight, or add workers; or consumers hang",
            ))
        if requeued > 0:
            findings.append(warning(
                "requeues", name, f"{counted(requeued, 'requeue')} in {seconds:.0f} s",
                "handlers fail: see their log for the reason",
            ))
    return findings


def _chosen(topic: TopicStats, channel: str) -> list[ChannelStats]:
    return [each for each in topic.channels if channel in ("", each.name)]


def _check_channel(channel: ChannelStats, topic: str, where: str) -> list[Finding]:
    name = f"{topic}/{channel.name} at {where}"
    waits = channel.depth + channel.deferred_count
    counts = (
        f"{channel.depth} wait, {channel.in_flight_count} in flight,"
        f" {channel.deferred_count} deferred, {counted(channel.client_count, 'consumer')}"
    )
    findings = []
    if channel.paused:
        findings.append(error(
            "channel", name, f"the channel is paused ({counts})", "unpause it",
            curl(nsqd_url(where, "channel/unpause"), topic=topic, channel=channel.name),
        ))
    elif waits and not channel.client_count:
        findings.append(warning("channel", name, f"it has no consumer ({counts})",
                                "start a consumer, or delete the channel if it is not needed"))
    elif channel.depth and channel.clients:
        findings += _check_rdy(channel, name)
    return findings or [ok("channel", name, counts)]


def _check_rdy(channel: ChannelStats, name: str) -> list[Finding]:
    idle = [client for client in channel.clients if not client.ready_count]
    if len(idle) == len(channel.clients):
        return [error(
            "RDY", name, f"{channel.depth} wait, and no consumer is ready (RDY 0)",
            "consumers back off after failures, are paused, or hang: see their logs",
        )]
    if all(client.in_flight_count >= client.ready_count for client in channel.clients):
        return [warning(
            "RDY", name, f"{channel.depth} wait, and every consumer has all that its RDY allows",
            "handlers are the limit: more workers, a higher max_in_flight, or more consumers",
        )]
    return []
