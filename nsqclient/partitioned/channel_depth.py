"""``DepthQuery``: how many messages a channel has, for both kinds of cluster."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from nsqclient.config import Config
from nsqclient.consumer.channel_depth import DepthQuery as StockDepthQuery, depth_of
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths
from nsqclient.errors import NSQError
from nsqclient.partitioned.connections import choose_routes
from nsqclient.partitioned.discovery import lookup_routes
from nsqclient.partitioned.http import led_topics


class DepthQuery(StockDepthQuery):
    """The stock DepthQuery, which also asks the leader of each partition of a partitioned topic."""

    def __init__(
        self, *args: Any, partitions: Container[int] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._partitions = partitions
        self._numbers: set[int] = set()  # numbers of the known partitions

    def _ask_lookupd(
        self, lookupd: str, config: Config
    ) -> tuple[bool, Iterable[str], Mapping[str, str]]:
        found = lookup_routes(lookupd, self._topic, "r", config)
        routes = choose_routes(self._sources, found.routes, self._partitions)
        self._numbers.update({*routes.partitions, *range(routes.partition_num)} - routes.excluded)
        nsqds = {place.address for place in routes.places}
        return found.is_known, nsqds, routes.http_addresses

    def _ask_parts(self, unknown: dict[str, str]) -> ChannelDepths | None:
        """Ask the nsqds for the partitions that they lead."""
        if not self._numbers:
            return None
        found: dict[int, ChannelDepth] = {}
        failures = []
        for http in dict.fromkeys([*self._sources.nsqd_http, *filter(None, self._http.values())]):
            try:
                topics = self._ask(http, lambda nsqd: led_topics(
                    nsqd.stats_json(self._topic, include_clients=False), self._topic))
            except NSQError as exc:
                failures.append(str(exc))
                continue
            # A new channel begins at the end of its partition.
            found |= {number: depth_of(topic, self._channel, creates_channel=False)
                      for number, topic in topics.items()}
        missing = sorted(self._numbers.difference(found))
        reason = "; ".join(failures) or "none of the nsqds that were asked leads it"
        unknown.update((f"partition {number} of {self._topic}", reason) for number in missing)
        return ChannelDepths(
            {f"partition {number} of {self._topic}": found[number]
             for number in sorted(self._numbers.intersection(found))}, unknown)
