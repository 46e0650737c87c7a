"""``/stats``: the numbers with nsqd's keys in nsqd's order, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nsqclient.devserver.broker import Broker
from nsqclient.devserver.protocol.server import ServerState
from nsqclient.devserver.queues import Channel, Topic
from nsqclient.devserver.session import Session

# nsqd's numbers for the states of a client.
#: nsqd's value without --e2e-processing-latency-percentile.
_NOT_MEASURED = {"count": 0, "percentiles": None}
_STATES = {
    ServerState.INIT: 0,
    ServerState.SUBSCRIBED: 3,
    ServerState.CLOSING: 4,
    ServerState.CLOSED: 1,
}


def topics(
    broker: Broker, sessions: dict[int, Session], topic: str, channel: str, include_clients: bool
) -> list[dict[str, Any]] | None:
    """Return all topics, or one, or one with one channel; None if the topic does not exist."""
    if topic and topic not in broker.topics:
        return None
    wanted = [broker.topics[topic]] if topic else list(broker.topics.values())
    if channel:
        wanted = [each for each in wanted if channel in each.channels]
    wanted.sort(key=lambda each: each.name)
    return [_topic(each, sessions, topic, channel, include_clients) for each in wanted]


def producers(sessions: Iterable[Session], topic: str) -> list[dict[str, Any]]:
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
        "e2e_processing_latency": _NOT_MEASURED,
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
        "e2e_processing_latency": _NOT_MEASURED,
    }
