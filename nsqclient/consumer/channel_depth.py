"""``DepthQuery``: asks nsqds at their HTTP ports how many messages a channel has."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Mapping

from nsqclient.config import Config
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths
from nsqclient.discovery import config_for, lookup_topic
from nsqclient.errors import DiscoveryError, NSQError, NSQHTTPTransportError
from nsqclient.http.models import NsqdInfo, Stats, TopicStats
from nsqclient.http.nsqd import NsqdHTTP, find_http_address, match_http_addresses
from nsqclient.runtime.addresses import parse_address

logger: logging.Logger = logging.getLogger("nsqclient.http")

#: Seconds for one answer.
_TIMEOUT = 2.0


class DepthQuery:
    """Asks the nsqds of one channel for its depth, again and again.

    What has answered once, or was connected, is asked from then on, also when no nsqlookupd lists
    it any more: it may just be restarted.

    Args:
        sources: as the Consumer's. For an nsqd that was given by its address, and has no address in
            ``nsqd_http``, the port after its TCP port is tried, as NSQ's 4150 and 4151, and used if
            that nsqd says that it listens at the TCP port; see ``match_http_addresses``.
        http_of: HTTP addresses that are known, by the TCP address.
        creates_channel: the consumer makes the channel where it does not exist, and the new channel
            gets the messages that its topic has kept.

    Threads: one at a time.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        config: Config,
        sources: NsqdSources,
        *,
        http_of: Mapping[str, str] = {},
        creates_channel: bool = True,
    ) -> None:
        self._creates_channel = creates_channel
        self._topic = topic
        self._channel = channel
        self._config = config
        self._sources = sources
        self._nsqd_http = list(dict.fromkeys(sources.nsqd_http))
        self._http = dict(http_of)  # TCP address of an nsqd -> HTTP, as it was found
        self._infos: dict[str, NsqdInfo] = {}  # a given HTTP address -> what it says of itself
        self._kept: dict[str, None] = {}  # TCP addresses of nsqds that are asked from now on
        self._has_answered: set[str] = set()  # nsqlookupds
        #: What the nsqlookupds named last: TCP addresses.
        self.listed: frozenset[str] = frozenset()

    def fetch(self, connected: Iterable[str] = ()) -> ChannelDepths:
        """Ask every nsqd.

        Args:
            connected: TCP addresses of nsqds to which there is, or was, a connection.

        Blocks: up to a few seconds for each that does not answer.
        """
        self._kept.update(dict.fromkeys(connected))
        unknown: dict[str, str] = {}
        is_listed = self._look_up(unknown)
        found = self._ask_parts(unknown)
        if found is not None:
            return found
        without = self._find_http(unknown)
        addresses = self._addresses()
        answers, failures = self._stats(addresses)
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
        self._match_given([*self._sources.nsqds, nsqd])
        return self._http.get(nsqd) or find_http_address(nsqd, self._config, _TIMEOUT)

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
                # Every nsqd is registered with each of them: an answer of before is enough.
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
        """Find the HTTP addresses of nsqds; return the TCP addresses of those that have none."""
        silent = self._match_given([*self._sources.nsqds, *self._kept, *self.listed])
        alone = self._without([*self._sources.nsqds, *self.listed])
        for tcp in self._without(self._kept):
            if tcp not in alone:
                unknown[tcp] = "no nsqlookupd lists it"
        if len(alone) > len(silent):
            why = {one: self._try_usual_port(one) for one in alone if one not in self._http}
            alone = self._without(alone)
        if len(alone) <= len(silent):
            if alone:  # their addresses may be among these
                unknown |= silent
            return []
        others = ", ".join(f"{http} has the TCP port {info.tcp_port}"
                           for http, info in self._infos.items())
        without = []
        for one in alone:
            reason, may_have = why.get(one, ("nsqlookupd has no HTTP port of it", False))
            unknown[one] = reason + (f"; of the given HTTP addresses, {others}" if others else "")
            if not may_have:
                without.append(one)
        return without

    def _without(self, nsqds: Iterable[str]) -> list[str]:
        """Return those nsqds whose HTTP address is not known."""
        return [one for one in dict.fromkeys(nsqds) if not self._http.get(one)]

    def _match_given(self, nsqds: Iterable[str]) -> dict[str, str]:
        """Note which nsqds are at the given HTTP addresses.

        Returns: those of the addresses that do not say whose they are, and why.
        """
        silent = {}
        for address in self._nsqd_http:
            if address not in self._infos:
                try:
                    with self._client(address) as client:
                        self._infos[address] = client.info()
                except NSQError as exc:
                    silent[address] = str(exc)
        used = set(self._http.values())
        self._http |= match_http_addresses(self._without(nsqds), {
            http: info for http, info in self._infos.items() if http not in used})
        return silent

    def _try_usual_port(self, nsqd: str) -> tuple[str, bool]:
        """Note the HTTP address of an nsqd if it is the usual one.

        Returns: why it is not, and whether it may be: an nsqd that is restarted, or suspended.
        """
        try:
            self._http[nsqd] = find_http_address(nsqd, self._config, _TIMEOUT)
        except NSQHTTPTransportError as exc:
            host, port = parse_address(nsqd)
            is_alone = _accepts(host, port) and not _accepts(host, port + 1)
            return str(exc), not is_alone
        except NSQError as exc:
            return str(exc), False
        return "", True

    def _addresses(self) -> dict[str, str]:
        """The HTTP addresses to ask, with the TCP address."""
        return {self._http[tcp]: tcp for tcp in [*self._sources.nsqds, *self._kept, *self.listed]
                if self._http.get(tcp)}

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

    def _stats(self, addresses: Iterable[str]) -> tuple[dict[str, Stats], dict[str, str]]:
        """Ask nsqds; return their answers, and why others have none."""
        answers, failures = {}, {}
        for address in addresses:
            try:
                with self._client(address) as client:
                    answers[address] = client.stats(self._topic, include_clients=False)
            except NSQError as exc:
                logger.debug("no depth: %s", exc)
                failures[address] = str(exc)
        return answers, failures

    def _client(self, nsqd: str) -> NsqdHTTP:
        return NsqdHTTP(nsqd, self._config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT)


def _accepts(host: str, port: int) -> bool:
    """Return whether something accepts connections there; a host that is suspended does."""
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
    if channel is None and not creates_channel:
        return ChannelDepth(0, 0, 0)
    if channel is None:
        return ChannelDepth(topic.depth, 0, 0, is_paused=topic.paused)
    return ChannelDepth(
        topic.depth + channel.depth, channel.in_flight_count, channel.client_count,
        channel.deferred_count, topic.paused or channel.paused,
    )
