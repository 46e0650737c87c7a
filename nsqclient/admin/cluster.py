"""``Cluster``: the nsqds of a cluster, the addresses where they are reached, and their counters."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from nsqclient.admin.fanout import Failure, FanOut, Request, UpstreamError
from nsqclient.admin.settings import AddressMap, AdminSettings
from nsqclient.http import Node as LookupdNode, NsqdHTTP, NsqdInfo, NsqlookupdHTTP, Producer
from nsqclient.http.urls import split_address
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import format_address
from nsqclient.sanitize import without_password

T = TypeVar("T")

#: Seconds for which the list of nsqds is good enough for a page.
_NODES_KEEP = 5.0
#: Limits for one nsqlookupd; a large cluster has a few thousand topics, and tens of nsqds.
_MOST_TOPICS = 20_000
_MOST_NODES = 2000
#: nsqds change addresses with every container; clients of old ones are dropped beyond so many.
_MOST_CLIENTS = 1000


@dataclass(frozen=True)
class Node:
    """One nsqd."""

    #: Its name on the page: ``broadcast_address:http_port`` as nsqlookupds list it, or
    #: ``host:port`` of the address that was given. Never the address that it reports itself:
    #: that could be the name of another nsqd.
    address: str
    #: ``host:port`` or URL of its HTTP API, from here; without its password.
    reached_at: str
    #: ``host:port`` of its TCP port, from here.
    tcp_reached_at: str
    broadcast_address: str
    hostname: str
    tcp_port: int
    http_port: int
    version: str
    #: Its address as seen by the first nsqlookupd.
    remote_address: str = ""
    #: ``nsqlookupd/remote address`` for each nsqlookupd that lists it.
    remote_addresses: tuple[str, ...] = ()
    #: The nsqlookupds that list it.
    lookupds: tuple[str, ...] = ()
    #: Its topics as nsqlookupds list them; empty without nsqlookupds.
    topics: tuple[str, ...] = ()
    #: Topics that every nsqlookupd that lists them for this nsqd hides from lookups.
    tombstoned: frozenset[str] = frozenset()
    #: At least half of the nsqds are newer: see ``_mark_old``.
    out_of_date: bool = False

    @property
    def announced(self) -> str:
        """The address that it reports itself; unchecked, for display only."""
        return format_address(self.broadcast_address, self.http_port)


class Nodes(NamedTuple):
    """The nsqds, and the failures of the servers that list them."""

    nodes: tuple[Node, ...]
    failures: tuple[Failure, ...]
    #: Every topic that an nsqlookupd lists, also topics that no nsqd has.
    registered: frozenset[str] = frozenset()
    #: The list of an nsqlookupd was too long and is incomplete.
    is_cut: bool = False

    def named(self, address: str) -> Node | None:
        """Return the node of this name, or the only node that announces it; else None."""
        for node in self.nodes:
            if node.address == address:
                return node
        announcing = [node for node in self.nodes if node.announced == address]
        return announcing[0] if len(announcing) == 1 else None


class _Listing(NamedTuple):
    """The nsqds and topics that one nsqlookupd lists, within the limits."""

    nodes: tuple[LookupdNode, ...]
    topics: frozenset[str]
    problems: tuple[str, ...]


class Answer(NamedTuple):
    """The ``/stats`` of one nsqd, and the time of its answer, on ``time.monotonic()``."""

    stats: dict[str, Any]
    at: float


class Cluster:
    """Queries nsqlookupds and nsqds. ``close()`` ends its threads and connections.

    Pages show addresses, so addresses in results have no passwords; only the HTTP clients have
    them. ``progressive`` is that of :class:`FanOut`: for pages, which refresh soon.

    Threads: any.
    """

    def __init__(self, settings: AdminSettings) -> None:
        self.settings = settings
        self._rewrite = AddressMap(settings.rewrite_addresses)
        # A little more than a request may take: its own error is more precise than ours.
        self._fan_out = FanOut(settings.connect_timeout + settings.request_timeout + 0.5)
        self._lock = threading.Lock()
        self._nsqds: dict[str, NsqdHTTP] = {}  # guarded by _lock, as the others
        self._lookupds = {
            without_password(address): self._lookupd(address)
            for address in settings.lookupd_http_addresses
        }
        #: Address without password -> address as given; never changed.
        self._given_nsqds = {
            without_password(address): address for address in settings.nsqd_http_addresses
        }
        self._known: tuple[float, Nodes] | None = None
        #: The last ``/info`` of nsqds about which nsqlookupds disagree.
        self._infos: dict[str, NsqdInfo] = {}
        self._fan_out.set_sources(self._lookupds)

    @property
    def has_lookupds(self) -> bool:
        """Whether nsqlookupds list the nsqds."""
        return bool(self.settings.lookupd_http_addresses)

    def lookupds(self) -> dict[str, NsqlookupdHTTP]:
        """The nsqlookupds, by their addresses."""
        with self._lock:
            return dict(self._lookupds)

    def set_lookupds(self, addresses: Iterable[str]) -> None:
        """Replace the nsqlookupds; a present one may be given by its address without password."""
        known = {shown: client.address for shown, client in self.lookupds().items()}
        clients = [
            self._lookupd(known.get(each, each) if isinstance(each, str) else each)
            for each in addresses
        ]
        fresh = {without_password(client.address): client for client in clients}
        with self._lock:
            former, self._lookupds = self._lookupds, fresh
            self._known = None
        self._fan_out.set_sources(fresh)
        for client in former.values():
            client.close()

    def nsqd(self, node: Node) -> NsqdHTTP:
        """The HTTP API of one nsqd."""
        return self._nsqd(node.reached_at)

    def nodes(self, max_age: float = 0.0, *, progressive: bool = False) -> Nodes:
        """Find the nsqds; a result that is younger than ``max_age`` seconds is reused.

        Raises:
            UpstreamError: every server failed.
        """
        with self._lock:
            known = self._known
        if known is not None and time.monotonic() - known[0] < max_age:
            return known[1]
        find = self._from_lookupds if self.has_lookupds else self._from_nsqds
        found = find(progressive)
        with self._lock:
            self._known = (time.monotonic(), found)
        return found

    def recent_nodes(self, *, progressive: bool = False) -> Nodes:
        """Return the nsqds, as found within the last seconds."""
        return self.nodes(_NODES_KEEP, progressive=progressive)

    def forget_nodes(self) -> None:
        """Drop the cached nsqds: something was changed."""
        with self._lock:
            self._known = None

    def stats(
        self,
        nodes: Iterable[Node],
        topic: str | None = None,
        channel: str | None = None,
        *,
        include_clients: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[Node, dict[str, Any]], list[Failure]]:
        """Fetch ``/stats`` of nsqds; return the answers by node, and the failures."""
        return self.each(nodes, lambda nsqd: nsqd.stats_json(
            topic, channel, include_clients=include_clients), progressive=progressive)

    def counters(self, nodes: Iterable[Node]) -> tuple[dict[Node, Answer], list[Failure]]:
        """Fetch the counters of all topics progressively, for rates."""
        def fetch(nsqd: NsqdHTTP) -> Answer:
            # The time of this nsqd's answer: that of another nsqd may come seconds later.
            return Answer(nsqd.stats_json(None, None, include_clients=False), time.monotonic())

        return self.each(nodes, fetch, progressive=True)

    def each(
        self,
        nodes: Iterable[Node],
        call: Callable[[NsqdHTTP], T],
        *,
        is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[Node, T], list[Failure]]:
        """Call the HTTP API of each of some nsqds, at once."""

        def request(node: Node) -> Request[T]:
            # The client is made inside: an invalid address is a failure of this nsqd alone.
            return Request("nsqd", node.address, lambda: call(self.nsqd(node)), node.reached_at,
                           node.lookupds)

        return self._fan_out.run({node: request(node) for node in nodes},
                                 even_if_slow=is_action, progressive=progressive)

    def each_lookupd(
        self,
        call: Callable[[NsqlookupdHTTP], T],
        *,
        is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[str, T], list[Failure]]:
        """Call the HTTP API of each nsqlookupd, at once."""

        def request(address: str, client: NsqlookupdHTTP) -> Request[T]:
            return Request("nsqlookupd", address, lambda: call(client))

        return self._fan_out.run(
            {key: request(key, client) for key, client in self.lookupds().items()},
            even_if_slow=is_action, progressive=progressive,
        )

    def end_rounds(self) -> None:
        """End the rounds that are under way; threads that wait for them go on. Idempotent."""
        self._fan_out.close()

    def close(self) -> None:
        """End threads and connections."""
        self.end_rounds()
        with self._lock:
            clients = [*self._nsqds.values(), *self._lookupds.values()]
            self._nsqds = {}
        for client in clients:
            client.close()

    # -- inside

    def _lookupd(self, address: str) -> NsqlookupdHTTP:
        return NsqlookupdHTTP(
            address, self.settings.http_config, connect_timeout=self.settings.connect_timeout,
            timeout=self.settings.request_timeout,
        )

    def _nsqd(self, address: str) -> NsqdHTTP:
        with self._lock:
            # Put at the end again: the least recently used client goes first.
            client = self._nsqds.pop(address, None)
            if client is None:
                if len(self._nsqds) >= _MOST_CLIENTS:
                    self._nsqds.pop(next(iter(self._nsqds))).close()
                client = NsqdHTTP(
                    self._given_nsqds.get(address, address), self.settings.http_config,
                    connect_timeout=self.settings.connect_timeout,
                    timeout=self.settings.request_timeout,
                )
            self._nsqds[address] = client
            return client

    def _from_lookupds(self, progressive: bool) -> Nodes:
        answers, failures = self.each_lookupd(_listing, progressive=progressive)
        if not answers:
            raise UpstreamError("nsqlookupd", failures)
        # By the address that is requested: two claims about it must not make it count twice.
        found: dict[str, list[tuple[str, LookupdNode]]] = {}
        for lookupd, listing in answers.items():
            failures += [Failure("nsqlookupd", lookupd, text, is_doubt=True)
                         for text in listing.problems]
            for node in listing.nodes:
                one = node.producer
                address = one.http_address if one.http_port else one.tcp_address
                found.setdefault(address, []).append((lookupd, node))
        merged = [self._merge(seen) for seen in found.values()]
        merged, doubts = self._settle(merged, list(found.values()), progressive)
        registered = frozenset().union(*(listing.topics for listing in answers.values()))
        return Nodes(tuple(sorted(_mark_old(merged), key=_order)), (*failures, *doubts),
                     registered, any(listing.problems for listing in answers.values()))

    def _merge(self, seen: list[tuple[str, LookupdNode]]) -> Node:
        producer = _most_named(seen)
        host = producer.broadcast_address
        shown = {topic for _, node in seen
                 for topic in set(node.topics).difference(node.tombstoned)}
        return Node(
            producer.http_address, self._rewrite(host, producer.http_port),
            self._rewrite(host, producer.tcp_port), host, producer.hostname, producer.tcp_port,
            producer.http_port, producer.version, producer.remote_address,
            tuple(f"{lookupd}/{node.producer.remote_address or 'N/A'}" for lookupd, node in seen),
            tuple(dict.fromkeys(lookupd for lookupd, _ in seen)),
            tuple(sorted({topic for _, node in seen for topic in node.topics})),
            frozenset(topic for _, node in seen for topic in node.tombstoned) - shown,
        )

    def _settle(
        self, nodes: list[Node], seen: list[list[tuple[str, LookupdNode]]], progressive: bool
    ) -> tuple[list[Node], list[Failure]]:
        """Query nsqds about which nsqlookupds disagree: their own ``/info`` is better evidence."""
        disputed = {
            node: claims for node, claims in zip(nodes, seen)
            if len({_claim(each.producer) for _, each in claims}) > 1
        }
        answers, _ = self.each(disputed, lambda nsqd: nsqd.info(), progressive=progressive)
        fresh = {node.address: info for node, info in answers.items() if 0 < info.tcp_port < 65536}
        with self._lock:
            infos = self._infos = {
                address: info for address, info in {**self._infos, **fresh}.items()
                if address in {node.address for node in disputed}
            }
        doubts = []
        wrong: dict[str, list[str]] = {}  # nsqlookupd -> nsqds that it describes wrongly
        settled = {}
        for node, claims in disputed.items():
            info = infos.get(node.address)
            if info is None:
                if _is_tie(claims):
                    doubts.append(Failure("nsqd", node.address, "nsqlookupds differ about it: " +
                                          _described(claims), node.reached_at, is_doubt=True))
                continue
            settled[node] = replace(
                node, hostname=info.hostname, tcp_port=info.tcp_port, version=info.version,
                tcp_reached_at=self._rewrite(node.broadcast_address, info.tcp_port))
            truth = info.hostname, info.tcp_port, info.version
            for lookupd in dict.fromkeys(
                    name for name, each in claims if _claim(each.producer) != truth):
                wrong.setdefault(lookupd, []).append(node.address)
        for lookupd, names in wrong.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            doubts.append(Failure(
                "nsqlookupd", lookupd, f"its entry for nsqd {names[0]}{more} differs from what the"
                " nsqd reports itself (hostname, tcp_port or version)", is_doubt=True))
        return [settled.get(node, node) for node in nodes], doubts

    def _from_nsqds(self, progressive: bool) -> Nodes:
        names = _names(self._given_nsqds)

        def request(address: str) -> Request[NsqdInfo]:
            return Request("nsqd", names[address], self._nsqd(address).info, address)

        answers, failures = self._fan_out.run(
            {each: request(each) for each in self._given_nsqds}, progressive=progressive)
        if not answers:
            raise UpstreamError("nsqd", failures)
        nodes = _mark_old([
            self._direct(names[given], given, info) for given, info in answers.items()])
        return Nodes(tuple(sorted(nodes, key=_order)), (*failures, *_collisions(nodes)))

    def _direct(self, name: str, given: str, info: NsqdInfo) -> Node:
        host = info.broadcast_address
        return Node(
            name, given, self._rewrite(host, info.tcp_port), host,
            info.hostname, info.tcp_port, info.http_port, info.version,
        )


def _listing(lookupd: NsqlookupdHTTP) -> _Listing:
    """Fetch the nsqds and topics of an nsqlookupd, without unusable ones and within limits."""
    nodes, topics = lookupd.nodes(), lookupd.topics()
    problems = []
    if len(nodes) > _MOST_NODES:
        problems.append(f"it lists {len(nodes)} nsqds: all after the first {_MOST_NODES} are"
                        " left out")
    # Invalid names could only break the requests about the others.
    everything = dict.fromkeys(filter(is_valid_name, topics))
    for node in nodes[:_MOST_NODES]:
        everything |= dict.fromkeys(filter(is_valid_name, node.topics))
    taken = frozenset(islice(everything, _MOST_TOPICS))
    if len(everything) > _MOST_TOPICS:
        problems.append(f"it lists {len(everything)} topics: all after the first {_MOST_TOPICS}"
                        " are left out")
    return _Listing(
        tuple(LookupdNode(node.producer, tuple(each for each in node.topics if each in taken),
                          tuple(each for each in node.tombstoned if each in taken))
              for node in nodes[:_MOST_NODES]),
        taken.intersection(topics), tuple(problems),
    )


def _votes(seen: Sequence[tuple[str, LookupdNode]]) -> dict[str, Producer]:
    """Return the claim of each nsqlookupd about one nsqd: the first of several counts."""
    votes: dict[str, Producer] = {}
    for lookupd, node in seen:
        votes.setdefault(lookupd, node.producer)
    return votes


def _most_named(seen: Sequence[tuple[str, LookupdNode]]) -> Producer:
    """Return the claim of most nsqlookupds about an nsqd; the first of several with equal votes.

    The remote address is not compared: each nsqlookupd sees another one.
    """
    claims = list(_votes(seen).values())
    counts = Counter(map(_claim, claims))
    return max(claims, key=lambda each: counts[_claim(each)])


def _is_tie(seen: Sequence[tuple[str, LookupdNode]]) -> bool:
    """Whether no claim has more votes than every other."""
    counts = Counter(map(_claim, _votes(seen).values())).most_common(2)
    return len(counts) == 2 and counts[0][1] == counts[1][1]


def _described(seen: Sequence[tuple[str, LookupdNode]]) -> str:
    return "; ".join(
        f"{lookupd}: {each.hostname}, tcp_port {each.tcp_port}, version {each.version}"
        for lookupd, each in _votes(seen).items()
    )


def _names(given: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each given nsqd: host and port, where these are unique."""
    parts = {shown: split_address(address, "nsqd_http_address") for shown, address in given.items()}
    short = {shown: format_address(each.hostname or "", each.port) if each.port else shown
             for shown, each in parts.items()}
    counts = Counter(short.values())
    return {shown: name if counts[name] == 1 else shown for shown, name in short.items()}


def _collisions(nodes: Sequence[Node]) -> list[Failure]:
    """Return a failure for each nsqd that announces the address of another one."""
    announcing: dict[str, list[Node]] = {}
    for node in nodes:
        announcing.setdefault(node.announced, []).append(node)
    names = {node.address for node in nodes}
    doubts = []
    for address, found in announcing.items():
        for node in found:
            if node.address == address:
                continue  # the address is its own
            others = [address] if address in names else [
                each.address for each in found if each is not node]
            if others:
                doubts.append(Failure(
                    "nsqd", node.address, f"it announces {address}, as {', '.join(others)} does:"
                    " set --broadcast-address of each nsqd", node.reached_at, is_doubt=True))
    return doubts


def _claim(producer: Producer) -> tuple[str, int, str]:
    """Return the fields of a claim that are compared."""
    return producer.hostname, producer.tcp_port, producer.version


def _order(node: Node) -> tuple[str, str]:
    return node.hostname, node.address


def _version(node: Node) -> tuple[int, ...]:
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", node.version, re.ASCII)
    return tuple(map(int, found.groups())) if found else ()


def _mark_old(nodes: list[Node]) -> list[Node]:
    """Mark nsqds that are out of date: at least half of all nsqds have a newer version.

    nsqadmin compares with the newest of all, so that one nsqd with an invented version makes all
    others look old. The list of each nsqlookupd is evaluated alone, and all that list an nsqd must
    agree: nsqds that an nsqlookupd invents count in its own list only.
    """
    lists: dict[str, list[tuple[int, ...]]] = {}
    for node in nodes:
        for lookupd in node.lookupds or ("",):
            if _version(node):
                lists.setdefault(lookupd, []).append(_version(node))
    # With an even number of nsqds the newer of the two in the middle.
    usual = {lookupd: sorted(versions)[len(versions) // 2] for lookupd, versions in lists.items()}
    return [
        replace(node, out_of_date=bool(_version(node)) and all(
            _version(node) < usual[lookupd] for lookupd in node.lookupds or ("",)))
        for node in nodes
    ]
