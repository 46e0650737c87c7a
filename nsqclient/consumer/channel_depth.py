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
from nsqclient.errors import DiscoveryError, NSQError, NSQHTTPTransportError
from nsqclient.http.models import NsqdInfo, TopicStats
from nsqclient.http.nsqd import NsqdHTTP, find_http_address
from nsqclient.http.urls import split_address
from nsqclient.runtime.addresses import parse_address

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("nsqclient.http")

#: Seconds for one answer.
_TIMEOUT = 2.0


class DepthQuery:
    """Asks the nsqds of one channel for its depth, again and again.

    An nsqd that has answered, or was connected, is asked from then on, also if no nsqlookupd lists
    it any more: it may be restarting.

    Args:
        sources: as the Consumer's. nsqlookupds name the HTTP address of each nsqd. An nsqd that is
            given by its TCP address is asked at an address of ``nsqd_http`` or at the port after
            its TCP port, if ``/info`` there has its TCP port; see :func:`is_at`.
        http_of: HTTP addresses that are known, by TCP address.
        creates_channel: the consumer creates the channel if it does not exist; the new channel
            gets the messages that its topic has kept.

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
        self._nsqd_http = list(dict.fromkeys(sources.nsqd_http))
        self._http = dict(http_of)  # TCP address of an nsqd -> HTTP address
        self._infos: dict[str, NsqdInfo] = {}  # given HTTP address -> its /info
        self._kept: dict[str, None] = {}  # TCP addresses of nsqds that are asked from now on
        self._has_answered: set[str] = set()  # nsqlookupds
        #: TCP addresses of the nsqds that the nsqlookupds named last.
        self.listed: frozenset[str] = frozenset()

    def fetch(self, connected: Iterable[str] = ()) -> ChannelDepths:
        """Ask every nsqd.

        Args:
            connected: TCP addresses of nsqds to which there is, or was, a connection.

        Blocks: up to a few seconds for each nsqd that does not answer.
        """
        self._kept.update(dict.fromkeys(connected))
        unknown: dict[str, str] = {}
        is_listed = self._look_up(unknown)
        found = self._ask_parts(unknown)
        if found is not None:
            return found
        without = self._find_http(unknown)
        addresses = {self._http[tcp]: tcp for tcp in self._nsqds() if self._http.get(tcp)}
        answers, failures = self._ask(
            addresses, lambda nsqd: nsqd.stats(self._topic, include_clients=False))
        unknown |= failures
        known = {
            address: depth_of(stats.topic(self._topic), self._channel, self._creates_channel)
            for address, stats in answers.items()
        }
        self._kept.update(dict.fromkeys(addresses[each] for each in answers))
        is_unknown = not (unknown or is_listed or any(one.has_topic for one in known.values()))
        if not (known or unknown):
            lookupds = ", ".join(self._sources.lookupds)
            unknown[lookupds] = "no nsqlookupd lists an nsqd that has the topic"
        return ChannelDepths(known, unknown, tuple(without), is_unknown)

    def find_http(self, nsqd: str) -> str:
        """Return the address of the HTTP API of an nsqd, by its TCP address.

        Raises:
            NSQError: it was not given, no nsqlookupd lists it, and its port is not the usual one.
        """
        self._look_up({})
        self._ask_given()
        return self._given_http(nsqd) or find_http_address(nsqd, self._config, _TIMEOUT)

    def _nsqds(self) -> list[str]:
        return list(dict.fromkeys([*self._sources.nsqds, *self._kept, *self.listed]))

    def _look_up(self, unknown: dict[str, str]) -> bool:
        """Ask the nsqlookupds; return whether one has the topic."""
        is_listed = False
        listed: set[str] = set()
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

    def _find_http(self, unknown: dict[str, str]) -> list[str]:
        """Find the HTTP address of each nsqd; return the nsqds without one."""
        silent = self._ask_given()
        without = []
        for nsqd in self._nsqds():
            if self._given_http(nsqd):
                continue
            if silent:  # one of these addresses may be the nsqd's
                unknown |= silent
            elif nsqd in self._sources.nsqds:
                try:
                    self._http[nsqd] = find_http_address(nsqd, self._config, _TIMEOUT)
                except NSQError as exc:
                    unknown[nsqd] = f"{exc}{self._others()}"
                    if not isinstance(exc, NSQHTTPTransportError) or _has_no_http(nsqd):
                        without.append(nsqd)
            elif nsqd in self.listed:
                unknown[nsqd] = f"nsqlookupd has no HTTP port of it{self._others()}"
                without.append(nsqd)
            else:
                unknown[nsqd] = "no nsqlookupd lists it"
        return without

    def _ask_given(self) -> dict[str, str]:
        """Ask each given HTTP address for its /info; return the failures."""
        silent = {}
        for address in self._nsqd_http:
            if address not in self._infos:
                try:
                    with self._client(address) as client:
                        self._infos[address] = client.info()
                except NSQError as exc:
                    silent[address] = str(exc)
        return silent

    def _given_http(self, nsqd: str) -> str:
        """Return the HTTP address of an nsqd; empty if it is neither known nor given."""
        if not self._http.get(nsqd):
            for http, info in self._infos.items():
                if is_at(nsqd, http, info):
                    self._http[nsqd] = http
                    break
        return self._http.get(nsqd, "")

    def _others(self) -> str:
        """Say whose the given HTTP addresses are."""
        return "".join(f"; of the given HTTP addresses, {http} has the TCP port {info.tcp_port}"
                       for http, info in self._infos.items())

    # -- seams

    def _ask_lookupd(
        self, lookupd: str, config: Config
    ) -> tuple[bool, Iterable[str], Mapping[str, str]]:
        """Ask one nsqlookupd: does it know the topic, the nsqds to use, their HTTP addresses."""
        found = lookup_topic(lookupd, self._topic, config)
        return found.is_known, self._sources.choose(found.nsqds), found.http_addresses

    def _ask_parts(self, unknown: dict[str, str]) -> ChannelDepths | None:
        """Return the depths if the topic is more than a set of nsqds; None: it is not."""
        return None

    def _ask(
        self, addresses: Iterable[str], ask: Callable[[NsqdHTTP], T]
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Ask nsqds; return the answers, and the reasons of failures."""
        answers, failures = {}, {}
        for address in addresses:
            try:
                with self._client(address) as client:
                    answers[address] = ask(client)
            except NSQError as exc:
                logger.debug("no depth: %s", exc)
                failures[address] = str(exc)
        return answers, failures

    def _client(self, nsqd: str) -> NsqdHTTP:
        return NsqdHTTP(nsqd, self._config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT)


def is_at(nsqd: str, http: str, info: NsqdInfo) -> bool:
    """Whether the HTTP address that gave this ``/info`` belongs to the nsqd.

    It has the TCP port of the nsqd, and is on its host or announces it. Blocks: until the names of
    hosts are looked up.
    """
    host, port = parse_address(nsqd)
    beside = split_address(http, "nsqd_http_address").hostname or ""
    return port == info.tcp_port and (
        host in (beside, info.broadcast_address)
        or not _ips(host).isdisjoint(_ips(beside) | _ips(info.broadcast_address)))


def _ips(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):  # unknown, or a name that cannot be encoded
        return set()


def _has_no_http(nsqd: str) -> bool:
    """Whether the nsqd runs without an HTTP API at the usual port.

    A suspended nsqd accepts connections at both ports, one that restarts at none.
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
    """Return what one nsqd's answer says of a channel; a new channel gets what its topic kept."""
    if topic is None:
        return ChannelDepth(0, 0, 0, has_topic=False)
    channel = topic.channel(channel_name)
    if channel is None:
        kept = topic.depth if creates_channel else 0
        return ChannelDepth(kept, 0, 0, is_paused=creates_channel and topic.paused)
    return ChannelDepth(
        topic.depth + channel.depth, channel.in_flight_count, channel.client_count,
        channel.deferred_count, topic.paused or channel.paused,
    )
