"""The depth of a channel at each nsqd, by their HTTP ports, and where it is unknown."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from nsqclient.config import Config
from nsqclient.errors import NSQError, NSQHTTPStatusError, NSQHTTPTransportError
from nsqclient.http.ask_all import UpstreamError
from nsqclient.http.cluster import Cluster, Node
from nsqclient.http.models import Lookup, NsqdInfo, Producer, Stats, TopicStats
from nsqclient.http.nsqd import NsqdHTTP, find_http_address, match_http_addresses
from nsqclient.http.nsqlookupd import NsqlookupdHTTP
from nsqclient.http.urls import split_address
from nsqclient.protocol.extensions import is_partitioned_version
from nsqclient.runtime.addresses import format_address, parse_address

logger: logging.Logger = logging.getLogger("nsqclient.http")

#: Seconds for one answer.
_TIMEOUT = 2.0


class ChannelDepth(NamedTuple):
    """The channel's messages at one nsqd."""

    depth: int  #: waiting, those that the topic has not given to its channels yet included
    in_flight: int  #: sent to a consumer, ours or another
    clients: int  #: connections of consumers
    deferred: int = 0  #: requeued or published with a delay that is not over
    is_paused: bool = False  #: the channel or its topic
    has_topic: bool = True

    @property
    def coming(self) -> int:
        """Those of ``depth`` that are sent to a consumer."""
        return 0 if self.is_paused else self.depth


class ChannelDepths(NamedTuple):
    """The channel's messages at all nsqds, as far as they are known.

    An nsqd is named by its HTTP address where that is known, else by its TCP address; a partition
    by its number.
    """

    known: Mapping[str, ChannelDepth] = {}
    unknown: Mapping[str, str] = {}  #: an nsqd, a partition or an nsqlookupd -> why
    #: TCP addresses of nsqds that cannot be asked, since they have no HTTP address that is known;
    #: all of them are in ``unknown``, too
    without_http: tuple[str, ...] = ()
    is_topic_unknown: bool = False  #: everything that was asked has answered: no such topic

    @property
    def is_complete(self) -> bool:
        """Return whether the depth of every nsqd is known."""
        return bool(self.known) and not self.unknown

    @property
    def waiting(self) -> int:
        """Messages that wait, where it is known."""
        return sum(one.depth for one in self.known.values())

    @property
    def coming(self) -> int:
        """Those of ``waiting`` that are sent to a consumer."""
        return sum(one.coming for one in self.known.values())

    @property
    def paused(self) -> int:
        """Those of ``waiting`` that do not come, since their channel or topic is paused."""
        return self.waiting - self.coming

    @property
    def in_flight(self) -> int:
        """Messages that are sent to a consumer, where it is known."""
        return sum(one.in_flight for one in self.known.values())

    @property
    def deferred(self) -> int:
        """Deferred messages, where it is known."""
        return sum(one.deferred for one in self.known.values())


class DepthQuery:
    """Asks the nsqds of one channel for its depth, again and again.

    What has answered once, or was connected, is asked from then on, also when no nsqlookupd lists
    it any more: it may just be restarted.

    Args:
        nsqds: TCP addresses of nsqds that were given.
        nsqd_http: HTTP addresses that were given for these; see ``match_http_addresses``. For an
            nsqd without one the port after its TCP port is tried, as NSQ's 4150 and 4151, and used
            if that nsqd says that it listens at the TCP port.
        http_of: HTTP addresses that are known, by the TCP address.
        lookupds: nsqlookupds, which know the HTTP ports of the nsqds that have the topic.
        discovery_filter: as the Consumer's: which of the nsqds that an nsqlookupd names are used.
        partitions: as the Consumer's: those of a partitioned topic that are used; None: all.
        creates_channel: the consumer makes the channel where it does not exist, and the new channel
            gets the messages that its topic has kept.

    Threads: one at a time.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        config: Config,
        *,
        nsqds: Sequence[str] = (),
        nsqd_http: Sequence[str] = (),
        http_of: Mapping[str, str] = {},
        lookupds: Sequence[str] = (),
        discovery_filter: Callable[[list[str]], Iterable[str]] | None = None,
        partitions: Container[int] | None = None,
        creates_channel: bool = True,
    ) -> None:
        self._creates_channel = creates_channel
        self._topic = topic
        self._channel = channel
        self._config = config
        self._nsqds = nsqds
        self._nsqd_http = list(dict.fromkeys(nsqd_http))
        self._lookupds = lookupds
        self._filter = discovery_filter
        self._partitions = partitions
        self._http = dict(http_of)  # TCP address of an nsqd -> HTTP, as it was found
        self._infos: dict[str, NsqdInfo] = {}  # a given HTTP address -> what it says of itself
        self._kept: dict[str, None] = {}  # TCP addresses of nsqds that are asked from now on
        self._has_answered: set[str] = set()  # nsqlookupds
        self._numbers: set[int] = set()  # partitions that there are
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
        if self._numbers:
            return self._partition_depths(unknown)
        without = self._find_http(unknown)
        addresses = self._addresses()
        answers, failures = self._stats(addresses)
        unknown |= failures
        known = {
            address: _depth_of(stats.topic(self._topic), self._channel, self._creates_channel)
            for address, stats in answers.items()
        }
        self._kept.update(dict.fromkeys(addresses[each] for each in answers))
        is_unknown = not (unknown or is_listed or any(one.has_topic for one in known.values()))
        if not (known or unknown):
            unknown[", ".join(self._lookupds)] = "no nsqlookupd lists an nsqd that has the topic"
        return ChannelDepths(known, unknown, tuple(without), is_unknown)

    def find_http(self, nsqd: str) -> str:
        """Return the address of the HTTP API of an nsqd, by its TCP address.

        Raises:
            NSQError: it was not given, no nsqlookupd lists it, and its port is not the usual one.
        """
        self._look_up({})
        self._match_given([*self._nsqds, nsqd])
        return self._http.get(nsqd) or find_http_address(nsqd, self._config, _TIMEOUT)

    def _look_up(self, unknown: dict[str, str]) -> bool:
        """Ask the nsqlookupds; return whether one has the topic."""
        is_listed = False
        listed: set[str] = set()
        for lookupd in self._lookupds:
            try:
                with NsqlookupdHTTP(lookupd, self._config, connect_timeout=_TIMEOUT,
                                    timeout=_TIMEOUT) as client:
                    found = client.lookup(self._topic, "r")
            except NSQHTTPStatusError as exc:
                if exc.status != 404:  # no such topic
                    unknown[lookupd] = str(exc)
                    continue
            except NSQError as exc:
                # Every nsqd is registered with each of them: an answer of before is enough.
                if lookupd not in self._has_answered:
                    unknown[lookupd] = str(exc)
                continue
            else:
                is_listed = True
                listed.update(self._note(found))
            self._has_answered.add(lookupd)
        self.listed = frozenset(listed)
        return is_listed

    def _note(self, found: Lookup) -> list[str]:
        """Note where nsqds are; return the TCP addresses of those that are used."""
        leaders = found.partitions or {}
        producers = [*leaders.values(), *found.producers]
        used = [one for one in self._selected(producers) if one.broadcast_address]
        for producer in used:
            self._http[producer.tcp_address] = producer.http_address if producer.http_port else ""
        addresses = {producer.tcp_address for producer in used}
        if found.partitions is not None:
            count = 0 if found.meta is None else found.meta.partition_num
            excluded = {number for number, one in leaders.items()
                        if one.tcp_address not in addresses}
            self._numbers.update(
                number for number in {*leaders, *range(count)}.difference(excluded)
                if self._partitions is None or number in self._partitions)
        return list(addresses)

    def _find_http(self, unknown: dict[str, str]) -> list[str]:
        """Find the HTTP addresses of nsqds; return the TCP addresses of those that have none."""
        silent = self._match_given([*self._nsqds, *self._kept, *self.listed])
        alone = self._without([*self._nsqds, *self.listed])
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
        return {self._http[tcp]: tcp for tcp in [*self._nsqds, *self._kept, *self.listed]
                if self._http.get(tcp)}

    def _partition_depths(self, unknown: dict[str, str]) -> ChannelDepths:
        """Ask the nsqds for the partitions that they lead; each must have a leader that answers."""
        answers, failures = self._stats(
            dict.fromkeys([*self._nsqd_http, *filter(None, self._http.values())]))
        found = {
            topic.partition: _depth_of_partition(topic, self._channel)
            for stats in answers.values() for topic in stats.topics
            if topic.name == self._topic and topic.is_leader and topic.partition is not None
        }
        missing = sorted(self._numbers.difference(found))
        reason = "; ".join(failures.values()) or "no nsqd that was asked leads it"
        unknown.update((f"partition {number} of {self._topic}", reason) for number in missing)
        return ChannelDepths(
            {f"partition {number} of {self._topic}": found[number]
             for number in sorted(self._numbers.intersection(found))}, unknown)

    def _selected(self, producers: Sequence[Producer]) -> Sequence[Producer]:
        if self._filter is None:
            return producers
        named = list(dict.fromkeys(producer.tcp_address for producer in producers))
        used = set(self._filter(named))
        return [producer for producer in producers if producer.tcp_address in used]

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


def _depth_of(
    topic: TopicStats | None, channel_name: str, creates_channel: bool = True
) -> ChannelDepth:
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


def _depth_of_partition(partition: TopicStats, channel_name: str) -> ChannelDepth:
    """The channel in a partition; a new channel gets nothing that is there.

    Its depth is all that is not finished there, also what is deferred.
    """
    channel = partition.channel(channel_name)
    if channel is None:
        return ChannelDepth(0, 0, 0)
    return ChannelDepth(
        channel.depth, channel.in_flight_count, channel.client_count, is_paused=channel.paused)


def fetch_depths_by_nsqd(
    topic: str, channel: str, config: Config, *, lookupds: Sequence[str],
    nsqd_http: Sequence[str], nsqds: Container[str] = (),
) -> ChannelDepths:
    """Ask nsqds for the depth of a channel; ``known`` is by their TCP addresses.

    Args:
        lookupds, nsqd_http: addresses of nsqlookupds, and of the HTTP ports of nsqds.
        nsqds: TCP addresses. An nsqd of ``nsqd_http`` that has its broadcast address not among
            them, but that of its HTTP port, is known by that one.

    Blocks: some seconds, if one does not answer.
    """
    known: dict[str, ChannelDepth] = {}
    unknown: dict[str, str] = {}
    none: Sequence[str] = ()
    for of, beside in ((lookupds, none), (none, nsqd_http)):
        with Cluster(
            of, beside, config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT
        ) as cluster:
            try:
                found = cluster.nodes()
            except UpstreamError as exc:
                unknown |= {each.address: each.reason for each in exc.failures}
                continue
            answers, failures = cluster.each(
                [node for node in found.nodes if topic in node.topics or not cluster.has_lookupds],
                lambda nsqd: nsqd.stats(topic, include_clients=False))
            unknown |= {each.address: each.reason for each in (*found.failures, *failures)}
        for node, stats in answers.items():
            if is_partitioned_version(stats.version):
                unknown[node.address] = (
                    "a partitioned nsqd, of whose partitions the depth is not shown")
            else:
                known[_tcp_address(node, nsqds)] = _depth_of(stats.topic(topic), channel)
    return ChannelDepths(known, unknown)


def _tcp_address(node: Node, nsqds: Container[str]) -> str:
    broadcast = format_address(node.broadcast_address, node.tcp_port)
    host = split_address(node.reached_at, "nsqd").hostname or ""
    reached = format_address(host, node.tcp_port)
    return reached if reached in nsqds and broadcast not in nsqds else broadcast
