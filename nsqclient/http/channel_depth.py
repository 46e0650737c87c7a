"""The depth of a channel at each nsqd, by their HTTP ports, and where it is unknown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from nsqclient.config import Config
from nsqclient.display import counted
from nsqclient.errors import NSQError, NSQHTTPResponseError, NSQHTTPStatusError
from nsqclient.http.models import NsqdInfo, Producer, TopicStats
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.nsqlookupd import NsqlookupdHTTP
from nsqclient.http.urls import nsqd_url, split_address
from nsqclient.protocol.extensions import is_partitioned_version
from nsqclient.protocol.peer_json import InvalidField, JsonReader
from nsqclient.runtime.addresses import format_address, parse_address

logger = logging.getLogger("nsqclient.http")

#: Seconds for one answer.
_TIMEOUT = 2.0
#: The ports of an nsqd without flags.
_DEFAULT_TCP_PORT, _DEFAULT_HTTP_PORT = 4150, 4151


class ChannelDepth(NamedTuple):
    """The channel's messages at one nsqd."""

    depth: int  #: waiting, those that the topic has not given to its channels yet included
    in_flight: int  #: sent to a consumer, ours or another
    clients: int  #: connections of consumers
    deferred: int = 0  #: requeued or published with a delay that is not over
    is_paused: bool = False  #: the channel or its topic
    has_topic: bool = True


class ChannelDepths(NamedTuple):
    """The channel's messages at all nsqds, as far as they are known."""

    known: Mapping[str, ChannelDepth] = {}  #: by HTTP address
    unknown: Mapping[str, str] = {}  #: address of an nsqd or an nsqlookupd -> why

    @property
    def is_complete(self) -> bool:
        """Return whether the depth of every nsqd is known."""
        return bool(self.known) and not self.unknown

    @property
    def waiting(self) -> int:
        """Messages that wait, where it is known."""
        return sum(one.depth for one in self.known.values())

    @property
    def paused(self) -> int:
        """Those of ``waiting`` that do not come, since their channel or topic is paused."""
        return sum(one.depth for one in self.known.values() if one.is_paused)

    @property
    def in_flight(self) -> int:
        """Messages that are sent to a consumer, where it is known."""
        return sum(one.in_flight for one in self.known.values())

    @property
    def deferred(self) -> int:
        """Deferred messages, where it is known."""
        return sum(one.deferred for one in self.known.values())


class DepthQuery:
    """Asks the nsqds of one channel for its depth.

    Args:
        nsqds: TCP addresses of nsqds that were given.
        nsqd_http: HTTP addresses that were given for these. Where there are none, an nsqd at NSQ's
            default TCP port is asked at the default HTTP port of its host.
        lookupds: nsqlookupds, which know the HTTP ports of the nsqds that have the topic.
        discovery_filter: as the Consumer's: which of the nsqds that an nsqlookupd names are used.

    Threads: any.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        config: Config,
        *,
        nsqds: Sequence[str] = (),
        nsqd_http: Sequence[str] = (),
        lookupds: Sequence[str] = (),
        discovery_filter: Callable[[list[str]], Iterable[str]] | None = None,
    ) -> None:
        self._topic = topic
        self._channel = channel
        self._config = config
        self._nsqds = nsqds
        self._nsqd_http = nsqd_http
        self._lookupds = lookupds
        self._filter = discovery_filter
        self._default_ports: dict[str, str] = {}  # TCP address -> HTTP address that was found
        self._has_partitions = False  # an nsqlookupd said so

    def fetch(self) -> ChannelDepths:
        """Ask every nsqd.

        An nsqd without the channel gives a new channel the messages that its topic has kept.

        Blocks: up to a few seconds for each that does not answer.
        """
        known = {}
        addresses, unknown = self._http_addresses()
        for address in addresses:
            try:
                with self._nsqd(address) as client:
                    known[address] = self._depth_at(client)
            except NSQError as exc:
                logger.debug("no depth: %s", exc)
                unknown[address] = str(exc)
        return ChannelDepths(known, unknown)

    def _depth_at(self, client: NsqdHTTP) -> ChannelDepth:
        if self._has_partitions:
            stats_json = client.stats_json(self._topic, include_clients=False)
            try:
                return _partitions_depth(
                    JsonReader(stats_json, "its answer"), self._topic, self._channel)
            except InvalidField as exc:
                raise NSQHTTPResponseError(
                    nsqd_url(client.address, "stats"), f"not a usable answer: {exc}") from exc
        stats = client.stats(self._topic, include_clients=False)
        return _depth_of(stats.topic(self._topic), self._channel)

    def is_topic_unknown(self) -> bool:
        """Return whether nsqds are found through nsqlookupd alone, and each says: no such topic.

        Blocks: up to a few seconds for each that does not answer.
        """
        return not self._nsqds and all(map(self._is_unknown_to, self._lookupds))

    def _is_unknown_to(self, lookupd: str) -> bool:
        try:
            return not self._lookup(lookupd)
        except NSQHTTPStatusError as exc:
            return exc.status == 404
        except NSQError:
            return False

    def _http_addresses(self) -> tuple[list[str], dict[str, str]]:
        """Return the HTTP addresses of nsqds, and why there may be more."""
        addresses: list[str] = []
        unknown: dict[str, str] = {}
        covered = set()  # TCP addresses of nsqds whose HTTP port nsqlookupd knows
        for lookupd in self._lookupds:
            try:
                producers = self._lookup(lookupd)
            except NSQError as exc:
                if not (isinstance(exc, NSQHTTPStatusError) and exc.status == 404):  # no topic
                    unknown[lookupd] = str(exc)
                continue
            for producer in self._selected(producers):
                if producer.broadcast_address and producer.http_port:
                    addresses.append(producer.http_address)
                    covered.add(producer.tcp_address)
                else:
                    unknown[producer.tcp_address] = "nsqlookupd has no HTTP port of it"
        given = list(dict.fromkeys(
            address for address in self._nsqd_http if address not in addresses))
        alone = list(dict.fromkeys(
            address for address in self._nsqds if address not in covered))
        if not given:
            given = [self._default_http(address) for address in alone]
            alone = [address for address, http in zip(alone, given) if not http]
            given = [http for http in given if http and http not in addresses]
            if alone:
                unknown[", ".join(alone)] = "no HTTP address is given for it"
        elif len(given) < len(alone):
            many = counted(len(given), "HTTP address", "HTTP addresses")
            unknown[", ".join(alone)] = f"{many} for these {len(alone)}"
        return list(dict.fromkeys([*given, *addresses])), unknown

    def _default_http(self, nsqd: str) -> str:
        """Return the HTTP address of an nsqd that has NSQ's default ports; empty: unknown."""
        if nsqd not in self._default_ports:
            host, port = parse_address(nsqd, "nsqd_tcp_address")
            if port != _DEFAULT_TCP_PORT:
                return ""
            address = format_address(host, _DEFAULT_HTTP_PORT)
            try:
                with self._nsqd(address) as client:
                    if client.info().tcp_port != port:
                        return ""  # it belongs to another one
            except NSQError as exc:
                logger.debug("no depth: %s", exc)
                return ""
            self._default_ports[nsqd] = address
        return self._default_ports[nsqd]

    def _selected(self, producers: Sequence[Producer]) -> Sequence[Producer]:
        if self._filter is None:
            return producers
        used = set(self._filter([producer.tcp_address for producer in producers]))
        return [producer for producer in producers if producer.tcp_address in used]

    def _nsqd(self, address: str) -> NsqdHTTP:
        return NsqdHTTP(address, self._config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT)

    def _lookup(self, lookupd: str) -> Sequence[Producer]:
        with NsqlookupdHTTP(lookupd, self._config, connect_timeout=_TIMEOUT,
                            timeout=_TIMEOUT) as client:
            found = client.lookup(self._topic)
        self._has_partitions = self._has_partitions or bool(found.partitions)
        return found.producers


def _depth_of(topic: TopicStats | None, channel_name: str) -> ChannelDepth:
    if topic is None:
        return ChannelDepth(0, 0, 0, has_topic=False)
    channel = topic.channel(channel_name)
    if channel is None:
        return ChannelDepth(topic.depth, 0, 0, is_paused=topic.paused)
    return ChannelDepth(
        topic.depth + channel.depth, channel.in_flight_count, channel.client_count,
        channel.deferred_count, topic.paused or channel.paused,
    )


def _partitions_depth(stats: JsonReader, topic: str, channel: str) -> ChannelDepth:
    """The channel in all partitions that an nsqd leads; a new channel gets nothing that is there.

    What such an nsqd calls the depth of a topic is the size of its queue in bytes.
    """
    depth = in_flight = clients = 0
    for found in stats.objects("topics"):
        if found.text("topic_name") != topic or not found.flag("is_leader"):
            continue
        for each in found.objects("channels"):
            if each.text("channel_name") == channel:
                depth += each.number("depth")
                in_flight += each.number("in_flight_count")
                clients += each.number("client_num")
    return ChannelDepth(max(0, depth - in_flight), in_flight, clients)


def fetch_depths_by_nsqd(
    topic: str, channel: str, config: Config, *, lookupds: Iterable[str],
    nsqd_http: Iterable[str], nsqds: Container[str] = (),
) -> ChannelDepths:
    """Ask nsqds for the depth of a channel; ``known`` is by their TCP addresses.

    Args:
        lookupds, nsqd_http: addresses of nsqlookupds, and of the HTTP ports of nsqds.
        nsqds: TCP addresses. An nsqd of ``nsqd_http`` that has its broadcast address not among
            them, but that of its HTTP port, is known by that one.

    Blocks: up to a few seconds for each that does not answer.
    """
    addresses: dict[str, str] = {}  # of the HTTP port -> TCP
    known: dict[str, ChannelDepth] = {}
    unknown: dict[str, str] = {}
    for one in lookupds:
        try:
            with NsqlookupdHTTP(one, config, connect_timeout=_TIMEOUT,
                                timeout=_TIMEOUT) as client:
                addresses |= {producer.http_address: producer.tcp_address
                              for producer in client.lookup(topic).producers}
        except NSQError as exc:
            if not (isinstance(exc, NSQHTTPStatusError) and exc.status == 404):  # no such topic
                unknown[one] = str(exc)
    for one in dict.fromkeys([*nsqd_http, *addresses]):
        try:
            with NsqdHTTP(one, config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT) as nsqd:
                address = addresses.get(one) or _tcp_address(one, nsqd.info(), nsqds)
                stats = nsqd.stats(topic, include_clients=False)
        except NSQError as exc:
            unknown[one] = str(exc)
        else:
            if is_partitioned_version(stats.version):
                unknown[one] = "a partitioned nsqd, of whose partitions the depth is not shown"
            else:
                known[address] = _depth_of(stats.topic(topic), channel)
    return ChannelDepths(known, unknown)


def _tcp_address(http_address: str, info: NsqdInfo, nsqds: Container[str]) -> str:
    broadcast = format_address(info.broadcast_address, info.tcp_port)
    host = split_address(http_address, "nsqd").hostname or ""
    reached = format_address(host, info.tcp_port)
    return reached if reached in nsqds and broadcast not in nsqds else broadcast
