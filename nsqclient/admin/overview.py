"""``Overview``: the numbers of every topic at one moment, for the page of topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nsqclient.admin.asking import Failure
from nsqclient.admin.cluster import Node
from nsqclient.admin.history import Histories, Sample
from nsqclient.admin.merging import client_count, number, objects, text


class Row(NamedTuple):
    """One topic, over all nsqds."""

    name: str
    depth: int  #: waiting, in the topic and in its channels
    in_flight: int
    deferred: int
    rate: float | None  #: messages that came in, per second
    clients: int
    channels: int
    paused: int  #: 0 no, 1 some channel, 2 the topic
    nodes: int  #: nsqds that have it
    messages: int  #: since the nsqds' start


@dataclass(frozen=True)
class Overview:
    """All topics after one round."""

    serial: int  #: of the round; from 1
    at: float  #: when it ended, on the clock of ``time.monotonic()``
    interval: float  #: seconds until the next round begins
    rows: Mapping[str, Row]
    #: topic -> the round in which its row became what it is
    changed: Mapping[str, int]
    #: The last round that removed a topic.
    removed_at: int
    nodes: tuple[Node, ...]
    #: Addresses of the nsqds that answered.
    answered: frozenset[str]
    #: How many topics each of them has.
    topic_counts: Mapping[str, int]
    failures: tuple[Failure, ...]

    def since(self, serial: int) -> list[Row] | None:
        """The rows that changed after a round; None when all of them have to be sent."""
        if not 0 < serial <= self.serial or self.removed_at > serial:
            return None
        return [row for name, row in self.rows.items() if self.changed[name] > serial]


TOPIC, CHANNEL = "topic", "channel"


def samples(stats: Mapping[Node, dict[str, Any]]) -> dict[Any, Sample]:
    """Counters and depths of all topics and channels, for :class:`Histories`."""
    counts: dict[Any, dict[str, int]] = {}
    depths: dict[Any, int] = {}
    for node, answer in stats.items():
        for topic in objects(answer, "topics"):
            name = text(topic, "topic_name")
            waiting = number(topic, "depth")
            for channel in objects(topic, "channels"):
                key = (CHANNEL, name, text(channel, "channel_name"))
                counts.setdefault(key, {})[node.address] = number(channel, "message_count")
                depth = number(channel, "depth")
                depths[key] = depths.get(key, 0) + depth
                waiting += depth
            key = (TOPIC, name, "")
            counts.setdefault(key, {})[node.address] = number(topic, "message_count")
            depths[key] = depths.get(key, 0) + waiting
    return {key: Sample(counts[key], depths[key]) for key in counts}


def build_rows(
    stats: Mapping[Node, dict[str, Any]], only_known: Iterable[str], histories: Histories
) -> dict[str, Row]:
    """The rows of all topics, sorted by name.

    Args:
        only_known: topics that nsqlookupd knows; those that no nsqd has get an empty row.
    """
    sums: dict[str, list[Any]] = {}
    channels: dict[str, set[str]] = {}
    for answer in stats.values():
        for topic in objects(answer, "topics"):
            name = text(topic, "topic_name")
            # depth, in flight, deferred, clients, paused, nodes, messages
            sum_ = sums.setdefault(name, [0, 0, 0, 0, 0, 0, 0])
            sum_[0] += number(topic, "depth")
            sum_[4] = max(sum_[4], 2 if topic.get("paused") is True else 0)
            sum_[5] += 1
            sum_[6] += number(topic, "message_count")
            names = channels.setdefault(name, set())
            for channel in objects(topic, "channels"):
                sum_[0] += number(channel, "depth")
                sum_[1] += number(channel, "in_flight_count")
                sum_[2] += number(channel, "deferred_count")
                sum_[3] += client_count(channel)
                sum_[4] = max(sum_[4], 1 if channel.get("paused") is True else 0)
                names.add(text(channel, "channel_name"))
    for name in only_known:
        sums.setdefault(name, [0, 0, 0, 0, 0, 0, 0])
    return {
        name: Row(name, sum_[0], sum_[1], sum_[2], histories.rate((TOPIC, name, "")), sum_[3],
                  len(channels.get(name, ())), *sum_[4:])
        for name, sum_ in sorted(sums.items())
    }
