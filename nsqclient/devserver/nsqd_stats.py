"""nsqd's /stats: the whole answer as JSON values, and the text form with its fixed columns."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from nsqclient.devserver.release import NSQ_VERSION
from nsqclient.runtime.go_duration import format_duration

Values = Mapping[str, Any]


def memory() -> dict[str, int]:
    """This process's memory under Go's names; what Python does not know is 0."""
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
        # No /proc: the peak has to do. In kilobytes, save on macOS.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def build(stats: Values, health: str, start_time: float, include_memory: bool) -> dict[str, Any]:
    """Put the answer together, keys in nsqd's order.

    Args:
        stats: ``topics`` and ``producers``.
        health: as in /ping.
        start_time: seconds since the epoch.
    """
    answer = {
        "version": NSQ_VERSION,
        "health": health,
        "start_time": int(start_time),
        "topics": stats["topics"],
    }
    if include_memory:
        answer["memory"] = memory()
    # nsqd says null, not [], when nobody has published.
    answer["producers"] = stats["producers"] or None
    return answer


def to_text(answer: Values, start_time: float, now: float) -> str:
    """Write what :func:`build` returned as nsqd's text form; ``now`` in seconds as well."""
    started = datetime.fromtimestamp(int(start_time), timezone.utc)
    python = ".".join(map(str, sys.version_info[:3]))
    lines = [
        f"nsqd v{answer['version']} (built w/python{python})",
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
        f" be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} e2e%: "
    ]
    for channel in topic["channels"]:
        lines.append(
            f"   {_paused(channel)}[{channel['channel_name']:<25}]"
            f" depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5}"
            f" inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4}"
            f" re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5}"
            f" msgs: {channel['message_count']:<8} e2e%: "
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
