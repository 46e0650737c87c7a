"""``Cluster``: the nsqds of a cluster, their reachable addresses, and their answers."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from nsqclient.cluster.ask_all import AskAll, ServerFailure, Request, UpstreamError
from nsqclient.partitioned.http import PartitionedNsqlookupdHTTP, as_stock
from nsqclient.config import Config
from nsqclient.display import without_password
from nsqclient.http.models import Node as LookupdNode, NsqdInfo
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.urls import split_address
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import format_address

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Seconds for which the list of nsqds is good enough for a page.
_NODES_KEEP = 5.0
#: nsqds that one nsqlookupd may list.
_MOST_NODES = 2000
#: Clients that are kept: nsqds change their addresses with every container.
_MOST_CLIENTS = 1000


@dataclass(frozen=True)
class Node:
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
    #: Another nsqd is newer.
    out_of_date: bool = False

    @property
    def announced(self) -> str:
        """The address that it reports itself, for display only."""
        return format_address(self.broadcast_address, self.http_port)


class Nodes(NamedTuple):
    """The nsqds, and the failures of the servers that list them."""

    nodes: tuple[Node, ...]
    failures: tuple[ServerFailure, ...]
    #: Every topic that an nsqlookupd lists, also topics that no nsqd has.
    registered: frozenset[str] = frozenset()

    def named(self, address: str) -> Node | None:
        """Return the node of this name, or the only one that announces it."""
        for node in self.nodes:
            if node.address == address:
                return node
        announcing = [node for node in self.nodes if node.announced == address]
        return announcing[0] if len(announcing) == 1 else None


class Cluster:
    """Asks nsqlookupds and nsqds. ``progressive`` and ``is_action``: see :class:`AskAll`.

    Addresses in results have no passwords; only the HTTP clients know them.

    Args:
        lookupds: HTTP addresses of nsqlookupds that list the nsqds; or else:
        nsqds: HTTP addresses of nsqds; requests go to exactly these.
        rewrite: host and port that an nsqd announces -> the address that is reachable from here.

    Lifecycle: usable immediately; ``close()`` or ``with``. Threads: any.
    """

    def __init__(
        self,
        lookupds: Iterable[str] = (),
        nsqds: Iterable[str] = (),
        config: Config | None = None,
        *,
        connect_timeout: float = 2.0,
        timeout: float = 5.0,
        rewrite: Callable[[str, int], str] = format_address,
    ) -> None:
        self._options: dict[str, Any] = {
            "config": config, "connect_timeout": connect_timeout, "timeout": timeout}
        self._rewrite = rewrite
        # A little more than a request may take: its own error is more precise than ours.
        self._ask_all = AskAll(connect_timeout + timeout + 0.5)
        self._lock = threading.Lock()
        self._nsqds: dict[str, NsqdHTTP] = {}  # guarded by _lock, as the others
        self._lookupds = {
            without_password(each): PartitionedNsqlookupdHTTP(each, **self._options)
            for each in lookupds}
        #: Address without password -> address as given; never changed.
        self._given_nsqds = {without_password(each): each for each in nsqds}
        self._known: tuple[float, Nodes] | None = None
        #: Whether nsqlookupds list the nsqds.
        self.has_lookupds: bool = bool(self._lookupds)

    def lookupds(self) -> dict[str, PartitionedNsqlookupdHTTP]:
        with self._lock:
            return dict(self._lookupds)

    def set_lookupds(self, addresses: Iterable[str]) -> None:
        """Replace the nsqlookupds. For a present one, the password may be left out."""
        known = {shown: client.address for shown, client in self.lookupds().items()}
        clients = [
            PartitionedNsqlookupdHTTP(
                known.get(each, each) if isinstance(each, str) else each, **self._options)
            for each in addresses]
        fresh = {without_password(client.address): client for client in clients}
        with self._lock:
            former, self._lookupds = self._lookupds, fresh
            self._known = None
        for client in former.values():
            client.close()

    def nsqd(self, node: Node) -> NsqdHTTP:
        return self._nsqd(node.reached_at)

    def nodes(self, *, progressive: bool = False) -> Nodes:
        """Find the nsqds. Raises UpstreamError if every server failed."""
        find = self._from_lookupds if self.has_lookupds else self._from_nsqds
        found = find(progressive)
        with self._lock:
            self._known = (time.monotonic(), found)
        return found

    def recent_nodes(self, *, progressive: bool = False) -> Nodes:
        """Return the nsqds found within the last seconds."""
        with self._lock:
            known = self._known
        if known is not None and time.monotonic() - known[0] < _NODES_KEEP:
            return known[1]
        return self.nodes(progressive=progressive)

    def forget_nodes(self) -> None:
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
    ) -> tuple[dict[Node, dict[str, Any]], list[ServerFailure]]:
        """Fetch ``/stats`` of nsqds, as :func:`as_stock` returns it."""
        return self.each(nodes, lambda nsqd: as_stock(nsqd.stats_json(
            topic, channel, include_clients=include_clients)), progressive=progressive)

    def each(
        self,
        nodes: Iterable[Node],
        call: Callable[[NsqdHTTP], T],
        *,
        is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[Node, T], list[ServerFailure]]:
        return self.run({node: (node.address, node, call) for node in nodes},
                        is_action=is_action, progressive=progressive)

    def run(
        self,
        calls: Mapping[K, tuple[str, Node, Callable[[NsqdHTTP], T]]],
        *,
        is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[K, T], list[ServerFailure]]:
        """Make several calls at once, also to one nsqd.

        Args:
            calls: the address for a failure, the nsqd, and the call.
        """
        def request(name: str, node: Node, call: Callable[[NsqdHTTP], T]) -> Request[T]:
            # The client is created here, so that an invalid address fails only this nsqd.
            return Request("nsqd", name, lambda: call(self.nsqd(node)), node.reached_at)

        return self._ask_all.run({key: request(*each) for key, each in calls.items()},
                                 is_action=is_action, progressive=progressive)

    def each_lookupd(
        self,
        call: Callable[[PartitionedNsqlookupdHTTP], T],
        *,
        is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[str, T], list[ServerFailure]]:
        def request(address: str, client: PartitionedNsqlookupdHTTP) -> Request[T]:
            return Request("nsqlookupd", address, lambda: call(client))

        return self._ask_all.run(
            {key: request(key, client) for key, client in self.lookupds().items()},
            is_action=is_action, progressive=progressive,
        )

    def end_rounds(self) -> None:
        """End the current rounds; their threads go on."""
        self._ask_all.close()

    def close(self) -> None:
        self.end_rounds()
        with self._lock:
            clients = [*self._nsqds.values(), *self._lookupds.values()]
            self._nsqds = {}
        for client in clients:
            client.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- internal

    def _nsqd(self, address: str) -> NsqdHTTP:
        with self._lock:
            # Put at the end again: the least recently used client goes first.
            client = self._nsqds.pop(address, None)
            if client is None:
                if len(self._nsqds) >= _MOST_CLIENTS:
                    self._nsqds.pop(next(iter(self._nsqds))).close()
                client = NsqdHTTP(self._given_nsqds.get(address, address), **self._options)
            self._nsqds[address] = client
            return client

    def _from_lookupds(self, progressive: bool) -> Nodes:
        answers, failures = self.each_lookupd(
            lambda lookupd: (lookupd.nodes(), lookupd.topics()), progressive=progressive)
        if not answers:
            raise UpstreamError("nsqlookupd", failures)
        # By the address that is requested, so that no nsqd counts twice.
        found: dict[str, list[tuple[str, LookupdNode]]] = {}
        for lookupd, (listed, _) in answers.items():
            if len(listed) > _MOST_NODES:
                failures.append(ServerFailure(
                    "nsqlookupd", lookupd, f"it lists {len(listed)} nsqds: all after the first"
                    f" {_MOST_NODES} are left out", is_doubt=True))
            for node in listed[:_MOST_NODES]:
                one = node.producer
                if one.problem:
                    failures.append(ServerFailure(
                        "nsqd", one.tcp_address, one.problem, is_doubt=True))
                    continue
                address = one.http_address if one.http_port else one.tcp_address
                found.setdefault(address, []).append((lookupd, node))
        nodes = _mark_old(map(self._merge, found.values()))
        registered = {topic for _, topics in answers.values() for topic in topics}
        return Nodes(tuple(sorted(nodes, key=_order)), tuple(failures), _valid(registered))

    def _merge(self, seen: list[tuple[str, LookupdNode]]) -> Node:
        producer = seen[0][1].producer
        host = producer.broadcast_address
        topics = _valid(topic for _, node in seen for topic in node.topics)
        shown = {topic for _, node in seen
                 for topic in set(node.topics).difference(node.tombstoned)}
        return Node(
            producer.http_address, self._rewrite(host, producer.http_port),
            self._rewrite(host, producer.tcp_port), host, producer.hostname, producer.tcp_port,
            producer.http_port, producer.version, producer.remote_address,
            tuple(f"{lookupd}/{node.producer.remote_address or 'N/A'}" for lookupd, node in seen),
            tuple(dict.fromkeys(lookupd for lookupd, _ in seen)),
            tuple(sorted(topics)), topics - shown,
        )

    def _from_nsqds(self, progressive: bool) -> Nodes:
        names = _names(self._given_nsqds)

        def request(address: str) -> Request[NsqdInfo]:
            return Request("nsqd", names[address], self._nsqd(address).info, address)

        answers, failures = self._ask_all.run(
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


def _valid(topics: Iterable[str]) -> frozenset[str]:
    """Return the valid names: requests about others would fail."""
    return frozenset(filter(is_valid_name, topics))


def _names(given: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each given nsqd: host and port, if unique."""
    parts = {shown: split_address(address, "nsqd_http_address") for shown, address in given.items()}
    short = {shown: format_address(each.hostname or "", each.port) if each.port else shown
             for shown, each in parts.items()}
    counts = Counter(short.values())
    return {shown: name if counts[name] == 1 else shown for shown, name in short.items()}


def _collisions(nodes: Sequence[Node]) -> list[ServerFailure]:
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
                doubts.append(ServerFailure(
                    "nsqd", node.address, f"it announces {address}, as {', '.join(others)} does:"
                    " set --broadcast-address of each nsqd", node.reached_at, is_doubt=True))
    return doubts


def _order(node: Node) -> tuple[str, str]:
    return node.hostname, node.address


def _version(node: Node) -> tuple[int, ...]:
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", node.version, re.ASCII)
    return tuple(map(int, found.groups())) if found else ()


def _mark_old(nodes: Iterable[Node]) -> list[Node]:
    nodes = list(nodes)
    newest = max(map(_version, nodes), default=())
    return [replace(node, out_of_date=() < _version(node) < newest) for node in nodes]
