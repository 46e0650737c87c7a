"""Judges a topic and its channels by nsqd's statistics, and by what changes in them.

Pure: statistics in, findings out.
"""

from __future__ import annotations

from nsqclient.cli.doctor.findings import Finding, ok, warning, wrong
from nsqclient.http import ChannelStats, Stats, TopicStats
from nsqclient.runtime.plurals import counted


def judge_topic(stats: Stats, topic: str, channel: str, where: str) -> list[Finding]:
    """Judge one look at an nsqd that has the topic.

    Args:
        channel: only this one; empty: all of them.
    """
    findings = []
    if stats.health != "OK":
        findings.append(wrong("disk", where, f"nsqd says {stats.health}",
                              "nsqd cannot write: make room on its disk, or mend it"))
    found = stats.topic(topic)
    if found is None:
        return findings
    if found.paused:
        findings.append(wrong("topic", f"{topic} at {where}", "the topic is paused",
                              f"POST /topic/unpause?topic={topic} to {where}"))
    for each in _chosen(found, channel):
        findings += _judge_channel(each, topic, where)
    return findings


def judge_change(
    before: Stats, after: Stats, topic: str, channel: str, where: str, seconds: float
) -> list[Finding]:
    """Judge what happened between two looks at an nsqd, so many seconds apart."""
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
            findings.append(wrong(
                "timeouts", name, f"{counted(timed_out, 'message')} timed out in {seconds:.0f} s",
                "handlers take longer than msg_timeout: raise it (option msg_timeout), touch() or"
                " keep_alive() long work, lower max_in_flight, or add workers; or consumers hang",
            ))
        if requeued > 0:
            findings.append(warning(
                "requeues", name, f"{counted(requeued, 'requeue')} in {seconds:.0f} s",
                "handlers fail: their log says why",
            ))
    return findings


def _chosen(topic: TopicStats, channel: str) -> list[ChannelStats]:
    return [each for each in topic.channels if channel in ("", each.name)]


def _judge_channel(channel: ChannelStats, topic: str, where: str) -> list[Finding]:
    name = f"{topic}/{channel.name} at {where}"
    waits = channel.depth + channel.deferred_count
    counts = (
        f"{channel.depth} wait, {channel.in_flight_count} in flight,"
        f" {channel.deferred_count} deferred, {counted(channel.client_count, 'consumer')}"
    )
    findings = []
    if channel.paused:
        findings.append(wrong(
            "channel", name, f"the channel is paused ({counts})",
            f"POST /channel/unpause?topic={topic}&channel={channel.name} to {where}",
        ))
    elif waits and not channel.client_count:
        findings.append(warning("channel", name, f"nobody consumes ({counts})",
                                "start a consumer, or delete the channel if it is not needed"))
    elif channel.depth and channel.clients:
        findings += _judge_rdy(channel, name)
    return findings or [ok("channel", name, counts)]


def _judge_rdy(channel: ChannelStats, name: str) -> list[Finding]:
    """Judge the consumers of a channel with messages that wait."""
    idle = [client for client in channel.clients if not client.ready_count]
    if len(idle) == len(channel.clients):
        return [wrong(
            "RDY", name, f"{channel.depth} wait, and no consumer is ready (RDY 0)",
            "consumers back off after failures, are paused, or are stuck: see their logs",
        )]
    if all(client.in_flight_count >= client.ready_count for client in channel.clients):
        return [warning(
            "RDY", name, f"{channel.depth} wait, and every consumer has all that its RDY allows",
            "handlers are the limit: more workers, a higher max_in_flight, or more consumers",
        )]
    return []
