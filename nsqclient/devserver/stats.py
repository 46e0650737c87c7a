"""``/stats``: the numbers with nsqd's keys in nsqd's order, and the text form."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from nsqclient.devserver import latency
from nsqclient.devserver.broker import Broker
from nsqclient.devserver.protocol.commands import NSQD_VERSION, version_line
from nsqclient.devserver.protocol.server import ServerState
from nsqclient.devserver.queues import Channel, Topic
from nsqclient.devserver.session import Session
from nsqclient.runtime.deadline import format_duration

# nsqd's numbers for the states of a client; 1 and 2 are never seen in /stats.
_STATES = {
    ServerState.INIT: 0,
    ServerState.SUBSCRIBED: 3,
    ServerState.CLOSING: 4,
    ServerState.CLOSED: 1,
}


def topics(
    broker: Broker, sessions: dict[int, Session], topic: str, channel: str, include_clients: bool
) -> list[dict[str, Any]] | None:
    """Return the topics, sorted; all of them, or one, or one with one channel.

    None when the topic that was asked for does not exist.
    """
    if topic and topic not in broker.topics:
        return None
    wanted = [broker.topics[topic]] if topic else list(broker.topics.values())
    if channel:
        wanted = [each for each in wanted if channel in each.channels]
    wanted.sort(key=lambda each: each.name)
    return [_topic(each, sessions, topic, channel, include_clients) for each in wanted]


def producers(sessions: Iterable[Session], topic: str) -> list[dict[str, Any]]:
    """Return the clients that have published at least once."""
    return [client(session, topic) for session in sessions if session.handler.pub_counts]


def client(session: Session, topic: str = "") -> dict[str, Any]:
    """Return one connection's numbers, with the publish counts of one topic or of all."""
    settings = session.core.settings
    consumer = session.handler.consumer
    is_known = session.handler.pump_settings is not None
    host = session.address.rpartition(":")[0]
    counts = [
        {"topic": name, "count": count}
        for name, count in session.handler.pub_counts.items()
        if not topic or name == topic
    ]
    return {
        "client_id": settings.client_id if is_known else host,
        "hostname": settings.hostname if is_known else host,
        "version": "V2",
        "remote_address": session.address,
        "state": _STATES[session.core.state],
        "ready_count": 0 if consumer is None else consumer.ready,
        "in_flight_count": 0 if consumer is None else consumer.in_flight,
        "message_count": 0 if consumer is None else consumer.message_count,
        "finish_count": 0 if consumer is None else consumer.finish_count,
        "requeue_count": 0 if consumer is None else consumer.requeue_count,
        "connect_ts": int(session.connected_at),
        "sample_rate": settings.sample_rate,
        "deflate": settings.deflate,
        "snappy": settings.snappy,
        "user_agent": settings.user_agent,
        **session.authorizer.stats(),
        **({"pub_counts": counts} if counts else {}),
        **session.layers.stats(),
    }


def _topic(
    topic: Topic, sessions: dict[int, Session], asked: str, channel: str, include_clients: bool
) -> dict[str, Any]:
    names = [channel] if channel else sorted(topic.channels)
    return {
        "topic_name": topic.name,
        "channels": [
            _channel(topic.channels[name], sessions, asked, include_clients) for name in names
        ],
        "depth": len(topic.queue),
        "backend_depth": topic.queue.backend.depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": latency.summary(
            each.latency for each in topic.channels.values()),
    }


def _channel(
    channel: Channel, sessions: dict[int, Session], topic: str, include_clients: bool
) -> dict[str, Any]:
    clients = None
    if include_clients:
        clients = [
            client(sessions[number], topic) for number in channel.consumers if number in sessions
        ]
    return {
        "channel_name": channel.name,
        "depth": len(channel.queue),
        "backend_depth": channel.queue.backend.depth,
        "in_flight_count": len(channel.in_flight),
        "deferred_count": len(channel.deferred),
        "message_count": channel.message_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.consumers),
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": latency.summary([channel.latency]),
    }


Values = Mapping[str, Any]


def memory() -> dict[str, int]:
    """This process's memory under Go's names; numbers that Python does not have are 0."""
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": 0,
        "heap_in_use_bytes": _resident_bytes(),
        "heap_released_bytes": 0,
        "gc_pause_usec_100": 0,
        "gc_pause_usec_99": 0,
        "gc_pause_usec_95": 0,
        "next_gc_bytes": 0,
        "gc_total_runs": sum(int(each["collections"]) for each in gc.get_stats()),
    }


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # No /proc: the peak instead. In kilobytes, except on macOS.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def build(stats: Values, health: str, start_time: float, include_memory: bool) -> dict[str, Any]:
    """Build the response to /stats, keys in nsqd's order.

    Args:
        stats: ``topics`` and ``producers``.
        health: as in /ping.
        start_time: seconds since the epoch.
    """
    answer = {
        "version": NSQD_VERSION,
        "health": health,
        "start_time": int(start_time),
        "topics": stats["topics"],
    }
    if include_memory:
        answer["memory"] = memory()
    # null, not [], where no client has published.
    answer["producers"] = stats["producers"] or None
    return answer


def to_text(answer: Values, start_time: float, now: float) -> str:
    """Return the result of :func:`build` in nsqd's text form; ``now`` in seconds."""
    started = datetime.fromtimestamp(int(start_time), timezone.utc)
    lines = [
        version_line("nsqd"),
        f"start_time {started:%Y-%m-%dT%H:%M:%SZ}",
        f"uptime {format_duration(max(0.0, now - start_time))}",
        "",
        f"Health: {answer['health']}",
    ]
    if "memory" in answer:
        lines += ["", "Memory:"]
        lines += [f"   {name:<25}\t{value}" for name, value in answer["memory"].items()]
    topics = answer["topics"]
    lines += ["", "Topics:" if topics else "Topics: None"]
    for index, topic in enumerate(topics or ()):
        lines += _topic_lines(topic, now) if index == 0 else ["", *_topic_lines(topic, now)]
    producers = answer["producers"]
    lines += ["", "Producers:" if producers else "Producers: None"]
    lines += [f"   {_client(producer, now)}" for producer in producers or ()]
    return "\n".join(lines) + "\n"


def _topic_lines(topic: Values, now: float) -> list[str]:
    lines = [
        f"{_paused(topic)}[{topic['topic_name']:<15}] depth: {topic['depth']:<5}"
        f" be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8}"
        f" e2e%: {latency.to_text(topic['e2e_processing_latency'])}"
    ]
    for channel in topic["channels"]:
        lines.append(
            f"   {_paused(channel)}[{channel['channel_name']:<25}]"
            f" depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5}"
            f" inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4}"
            f" re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5}"
            f" msgs: {channel['message_count']:<8}"
            f" e2e%: {latency.to_text(channel['e2e_processing_latency'])}"
        )
        lines += [f"        {_client(client, now)}" for client in channel["clients"] or ()]
    return lines


def _paused(values: Values) -> str:
    return "*P " if values["paused"] else "   "


def _client(client: Values, now: float) -> str:
    port = client["remote_address"].rpartition(":")[2]
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    head = f"[{client['version']} {name:<21}]"
    connected = f"connected: {format_duration(max(0, int(now - client['connect_ts'])))}"
    counts = client.get("pub_counts")
    if counts:
        total = sum(count["count"] for count in counts)
        topics = ",".join(f"{count['topic']}={count['count']}" for count in counts)
        return f"{head} msgs: {total:<8} topics: {topics} {connected}"
    return (
        f"{head} state: {client['state']} inflt: {client['in_flight_count']:<4}"
        f" rdy: {client['ready_count']:<4} fin: {client['finish_count']:<8}"
        f" re-q: {client['requeue_count']:<8} msgs: {client['message_count']:<8} {connected}"
    )
