"""``DepthQuery``: asks nsqds at their HTTP ports how many messages a channel has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from nsqclient.config import Config
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths
from nsqclient.discovery import config_for, lookup_topic
from nsqclient.errors import ConfigError, DiscoveryError, NSQError, NSQHTTPError
from nsqclient.http.models import NsqdInfo, TopicStats
from nsqclient.http.nsqd import NsqdHTTP, find_http_address
from nsqclient.http.urls import split_address
from nsqclient.runtime.addresses import parse_address

T = TypeVar("T")

#: Timeout in seconds for one answer.
_TIMEOUT = 2.0


class DepthQuery:
    """Asks the nsqds of one channel for its depth, repeatedly.

    An nsqd that has answered or was connected is asked from then on, even if no nsqlookupd lists it
    any more: it may be restarting.

    Args:
        http_of: known HTTP addresses, by TCP address.
        creates_channel: the consumer creates the channel if it does not exist. A new channel gets
            the messages that its topic has kept.

    Threads: one at a time.
    """

    def __init__(
        self, topic: str, channel: str, config: Config, sources: NsqdSources, *,
        http_of: Mapping[str, str] = {}, creates_channel: bool = True,
    ) -> None:
        self._creates_channel = creates_channel
        self._topic = topic
        self._channel = channel
        self._config = config
        self._sources = sources
        self._http = dict(http_of)  # TCP address of an nsqd -> HTTP address; empty: it has none
        self._infos: dict[str, NsqdInfo] = {}  # given HTTP address -> its /info
        self._kept: dict[str, None] = {}  # TCP addresses of nsqds that are asked from now on
        self._has_answered: set[str] = set()  # nsqlookupds
        #: TCP addresses of the nsqds in the last answers of the nsqlookupds.
        self.listed: frozenset[str] = frozenset()

    def fetch(self, connected: Iterable[str] = ()) -> ChannelDepths:
        """Ask every nsqd.

        Args:
            connected: TCP addresses of nsqds that are, or were, connected.

        Blocks: up to a few seconds for each nsqd that does not answer.
        """
        self._kept.update(dict.fromkeys(connected))
        unknown: dict[str, str] = {}
        is_listed = self._look_up(unknown)
        found = self._ask_parts(unknown)
        if found is not None:
            return found
        known: dict[str, ChannelDepth] = {}
        without = []
        for nsqd in dict.fromkeys([*self._sources.nsqds, *self._kept, *self.listed]):
            try:
                known[nsqd] = self._ask(self._find_http(nsqd), self._fetch_depth)
            except NSQError as exc:
                unknown[nsqd] = str(exc)
                if isinstance(exc, ConfigError):
                    without.append(nsqd)
        self._kept.update(dict.fromkeys(known))
        is_unknown = not (unknown or is_listed or any(one.has_topic for one in known.values()))
        if self._sources.lookupds and not (known or unknown):
            lookupds = ", ".join(self._sources.lookupds)
            unknown[lookupds] = "no nsqlookupd lists an nsqd that has the topic"
        return ChannelDepths(known, unknown, tuple(without), is_unknown)

    def fetch_one(self, nsqd: str) -> ChannelDepth:
        """Ask one nsqd, by its TCP address. Raises an NSQError if it does not answer."""
        return self._ask(self.find_http(nsqd), self._fetch_depth)

    def _fetch_depth(self, client: NsqdHTTP) -> ChannelDepth:
        stats = client.stats(self._topic, include_clients=False)
        return depth_of(stats.topic(self._topic), self._channel, self._creates_channel)

    def find_http(self, nsqd: str) -> str:
        """Return the HTTP address of an nsqd, by its TCP address. Raises an NSQError."""
        self._look_up({})
        return self._find_http(nsqd)

    def _find_http(self, nsqd: str) -> str:
        """Return an nsqd's HTTP address: from an nsqlookupd, from the user, or TCP port + 1.

        Raises:
            ConfigError: no nsqd with this TCP port answers there.
            NSQHTTPError: an address that the user gave does not answer. It may be the nsqd's.
        """
        if self._http.get(nsqd):
            return self._http[nsqd]
        failures: list[NSQError] = []
        for http in self._sources.nsqd_http:
            try:
                if http not in self._infos:
                    self._infos[http] = self._ask(http, NsqdHTTP.info)
            except NSQError as exc:
                failures.append(exc)
                continue
            if is_at(nsqd, http, self._infos[http]):
                self._http[nsqd] = http
                return http
        if failures:
            raise failures[0]
        try:
            self._http[nsqd] = find_http_address(nsqd, self._config, _TIMEOUT)
        except NSQHTTPError as exc:
            raise ConfigError(str(exc)) from exc
        return self._http[nsqd]

    def _look_up(self, unknown: dict[str, str]) -> bool:
        """Ask the nsqlookupds. Returns True if one of them has the topic."""
        is_listed, listed = False, set[str]()
        lookupds = self._sources.lookupds
        config = self._config.replace(lookupd_poll_timeout=_TIMEOUT)
        for lookupd in lookupds:
            try:
                is_known, nsqds, http = self._ask_lookupd(
                    lookupd, config_for(lookupd, lookupds, config))
            except DiscoveryError as exc:
                # Every nsqd is registered with each nsqlookupd: an earlier answer is enough.
                if lookupd not in self._has_answered:
                    unknown[lookupd] = str(exc)
                continue
            self._has_answered.add(lookupd)
            is_listed = is_listed or is_known
            listed.update(nsqds)
            self._http |= http
        self.listed = frozenset(listed)
        return is_listed

    def _ask(self, http: str, question: Callable[[NsqdHTTP], T]) -> T:
        with NsqdHTTP(
            http, self._config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT
        ) as client:
            return question(client)

    # -- methods to override

    def _ask_lookupd(
        self, lookupd: str, config: Config
    ) -> tuple[bool, Iterable[str], Mapping[str, str]]:
        """Ask one nsqlookupd. Returns: is the topic known, the nsqds, their HTTP addresses."""
        found = lookup_topic(lookupd, self._topic, config)
        return found.is_known, self._sources.choose(found.nsqds), found.http_addresses

    def _ask_parts(self, unknown: dict[str, str]) -> ChannelDepths | None:
        """Return the depths of a topic that has parts of its own, otherwise None."""
        return None


def is_at(nsqd: str, http: str, info: NsqdInfo) -> bool:
    """True if the server that returned this ``/info`` is the nsqd, by port and host."""
    host, port = parse_address(nsqd)
    http_host = split_address(http, "nsqd_http_address").hostname or ""
    return port == info.tcp_port and host.lower() in (http_host, info.broadcast_address.lower())


def depth_of(
    topic: TopicStats | None, channel_name: str, creates_channel: bool = True
) -> ChannelDepth:
    """Return the depth of a channel from the answer of one nsqd."""
    if topic is None:
        return ChannelDepth(0, 0, 0, has_topic=False)
    channel = topic.channel(channel_name)
    if channel is None:  # a new channel gets the messages that its topic has kept
        kept = topic.depth if creates_channel else 0
        return ChannelDepth(kept, 0, 0, is_paused=creates_channel and topic.paused)
    return ChannelDepth(
        topic.depth + channel.depth, channel.in_flight_count, channel.client_count,
        channel.deferred_count, topic.paused or channel.paused,
    )
