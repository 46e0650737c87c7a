"""``DepthQuery``: how many messages a channel has, for both kinds of cluster."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from nsqclient.config import Config
from nsqclient.consumer.channel_depth import DepthQuery as StockDepthQuery
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths
from nsqclient.http.models import TopicStats
from nsqclient.partitioned.connections import choose_routes
from nsqclient.partitioned.discovery import lookup_routes
from nsqclient.partitioned.http import led_topics


class DepthQuery(StockDepthQuery):
    """The stock DepthQuery, which also asks the leader of each partition of a partitioned topic.

    Args:
        partitions: the partitions that the Consumer uses. None: all of them.
    """

    def __init__(
        self, *args: Any, partitions: Container[int] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._partitions = partitions
        self._numbers: set[int] = set()  # partitions that there are

    def _ask_lookupd(
        self, lookupd: str, config: Config
    ) -> tuple[bool, Iterable[str], Mapping[str, str]]:
        found = lookup_routes(lookupd, self._topic, "r", config)
        routes = choose_routes(self._sources, found.routes, self._partitions)
        self._numbers.update({*routes.partitions, *range(routes.partition_num)} - routes.excluded)
        nsqds = {place.address for place in routes.places}
        return found.is_known, nsqds, routes.http_addresses

    def _ask_parts(self, unknown: dict[str, str]) -> ChannelDepths | None:
        """Ask the nsqds for the partitions that they lead; each must have a leader that answers."""
        if not self._numbers:
            return None
        answers, failures = self._ask(
            dict.fromkeys([*self._sources.nsqd_http, *filter(None, self._http.values())]),
            lambda nsqd: led_topics(
                nsqd.stats_json(self._topic, include_clients=False), self._topic))
        found = {number: _depth_of(topic, self._channel)
                 for topics in answers.values() for number, topic in topics.items()}
        missing = sorted(self._numbers.difference(found))
        reason = "; ".join(map(str, failures.values())) or "no nsqd that was asked leads it"
        unknown.update((f"partition {number} of {self._topic}", reason) for number in missing)
        return ChannelDepths(
            {f"partition {number} of {self._topic}": found[number]
             for number in sorted(self._numbers.intersection(found))}, unknown)


def _depth_of(partition: TopicStats, channel_name: str) -> ChannelDepth:
    """The channel in a partition; a new channel gets nothing that is there.

    Its depth is all that is not finished, including messages with a short delay. Messages with a
    long delay are in a queue of their own, and count as deferred only.
    """
    channel = partition.channel(channel_name)
    if channel is None:
        return ChannelDepth(0, 0, 0)
    return ChannelDepth(
        channel.depth, channel.in_flight_count, channel.client_count,
        channel.deferred_count, channel.paused)
