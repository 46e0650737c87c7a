"""``DepthQuery``: asks nsqds at their HTTP ports how many messages a channel has."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from nsqclient.config import Config
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths
from nsqclient.discovery import config_for, lookup_topic
from nsqclient.errors import (
    ConfigError, DiscoveryError, NSQError, NSQHTTPError, NSQHTTPTransportError,
)
from nsqclient.http.models import NsqdInfo, TopicStats
from nsqclient.http.nsqd import NsqdHTTP, find_http_address
from nsqclient.http.urls import split_address
from nsqclient.runtime.addresses import parse_address

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("nsqclient.http")

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
        without, addresses = [], {}
        for nsqd in dict.fromkeys([*self._sources.nsqds, *self._kept, *self.listed]):
            try:
                addresses[self._find_http(nsqd)] = nsqd
            except NSQError as exc:
                unknown[nsqd] = str(exc)
                if isinstance(exc, ConfigError):
                    without.append(nsqd)
        known, failures = self._ask(addresses, self._fetch_depth)
        unknown.update((address, str(failure)) for address, failure in failures.items())
        self._kept.update(dict.fromkeys(addresses[each] for each in known))
        is_unknown = not (unknown or is_listed or any(one.has_topic for one in known.values()))
        if not (known or unknown):
            lookupds = ", ".join(self._sources.lookupds)
            unknown[lookupds] = "no nsqlookupd lists an nsqd that has the topic"
        return ChannelDepths(known, unknown, tuple(without), is_unknown)

    def fetch_one(self, nsqd: str) -> ChannelDepth:
        """Ask one nsqd, by its TCP address. Raises an NSQError if it does not answer."""
        with self._client(self.find_http(nsqd)) as client:
            return self._fetch_depth(client)

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
            ConfigError: none of them is the nsqd's.
            NSQHTTPError: an address that may be the nsqd's does not answer.
        """
        if self._http.get(nsqd):
            return self._http[nsqd]
        infos, failures = self._ask(
            [one for one in self._sources.nsqd_http if one not in self._infos], NsqdHTTP.info)
        self._infos |= infos
        for http, info in self._infos.items():
            if is_at(nsqd, http, info):
                self._http[nsqd] = http
                return http
        for failure in failures.values():
            raise failure
        try:
            self._http[nsqd] = find_http_address(nsqd, self._config, _TIMEOUT)
        except NSQHTTPError as exc:
            if not isinstance(exc, NSQHTTPTransportError) or _runs_without_http(nsqd):
                raise ConfigError(str(exc)) from exc
            raise
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

    def _ask(
        self, addresses: Iterable[str], ask: Callable[[NsqdHTTP], T]
    ) -> tuple[dict[str, T], dict[str, NSQError]]:
        """Ask nsqds by HTTP address. Returns the answers and the failures."""
        answers, failures = {}, {}
        for address in addresses:
            try:
                with self._client(address) as client:
                    answers[address] = ask(client)
            except NSQError as exc:
                logger.debug("no depth: %s", exc)
                failures[address] = exc
        return answers, failures

    def _client(self, nsqd: str) -> NsqdHTTP:
        return NsqdHTTP(nsqd, self._config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT)

    # -- methods to override

    def _ask_lookupd(
        self, lookupd: str, config: Config
    ) -> tuple[bool, Iterable[str], Mapping[str, str]]:
        """Ask one nsqlookupd. Returns: is the topic known, the nsqds, their HTTP addresses."""
        found = lookup_topic(lookupd, self._topic, config)
        return found.is_known, self._sources.choose(found.nsqds), found.http_addresses

    def _ask_parts(self, unknown: dict[str, str]) -> ChannelDepths | None:
        """Return the depths of a topic that has partitions, otherwise None."""
        return None


def is_at(nsqd: str, http: str, info: NsqdInfo) -> bool:
    """True if the server that returned this ``/info`` is the nsqd. Resolves host names."""
    host, port = parse_address(nsqd)
    http_host = split_address(http, "nsqd_http_address").hostname or ""
    return port == info.tcp_port and (
        host in (http_host, info.broadcast_address)
        or not _ips(host).isdisjoint(_ips(http_host) | _ips(info.broadcast_address)))


def _ips(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):  # unknown, or a name that cannot be encoded
        return set()


def _runs_without_http(nsqd: str) -> bool:
    """True if the TCP port of an nsqd accepts connections and the next port does not.

    A suspended nsqd accepts connections at both ports, a restarting one at neither.
    """
    host, port = parse_address(nsqd)
    return _accepts(host, port) and not _accepts(host, port + 1)


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT).close()
    except (OSError, OverflowError):  # a port above 65535
        return False
    return True


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
