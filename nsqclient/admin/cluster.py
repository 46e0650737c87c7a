"""``Cluster``: which nsqds there are, how they are reached, and their counters."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from nsqclient.admin.asking import Asker, Failure, Question
from nsqclient.admin.rewriting import Rewriter
from nsqclient.admin.settings import AdminSettings
from nsqclient.errors import NSQError
from nsqclient.http import Node as LookupdNode
from nsqclient.http import NsqdHTTP, NsqdInfo, NsqlookupdHTTP
from nsqclient.runtime.transport import format_address

T = TypeVar("T")

#: Seconds for which the list of nsqds is good enough for a page.
_NODES_KEEP = 5.0
#: nsqds change addresses with every container; clients of old ones are dropped beyond so many.
_MOST_CLIENTS = 1000


@dataclass(frozen=True)
class Node:
    """One nsqd."""

    #: What it calls itself: ``broadcast_address:http_port``.
    address: str
    #: ``host:port`` or URL of its HTTP API, from here.
    reached_at: str
    #: ``host:port`` of its TCP port, from here.
    tcp_reached_at: str
    broadcast_address: str
    hostname: str
    tcp_port: int
    http_port: int
    version: str
    #: How the first nsqlookupd sees it.
    remote_address: str = ""
    #: ``nsqlookupd/remote address`` for each nsqlookupd that knows it.
    remote_addresses: tuple[str, ...] = ()
    #: The nsqlookupds that know it.
    lookupds: tuple[str, ...] = ()
    #: Its topics as nsqlookupd knows them; nsqds that are asked directly have none here.
    topics: tuple[str, ...] = ()
    tombstoned: frozenset[str] = frozenset()
    #: A newer version runs beside it.
    out_of_date: bool = False


class Nodes(NamedTuple):
    """The nsqds, and the servers that could not say which there are."""

    nodes: tuple[Node, ...]
    failures: tuple[Failure, ...]
    #: Every topic that a nsqlookupd knows, also those that no nsqd has.
    registered: frozenset[str] = frozenset()

    def named(self, address: str) -> Node | None:
        """The node that calls itself so, or None."""
        return next((node for node in self.nodes if node.address == address), None)


class UpstreamError(NSQError):
    """Every server that was asked failed. ``failures`` says how."""

    def __init__(self, what: str, failures: Sequence[Failure]) -> None:
        super().__init__(
            f"failed to query any {what}: " + "; ".join(each.text() for each in failures)
        )
        self.failures = tuple(failures)


class Cluster:
    """Asks nsqlookupds and nsqds. ``close()`` ends its threads and connections.

    Threads: any.
    """

    def __init__(self, settings: AdminSettings) -> None:
        self.settings = settings
        self._rewrite = Rewriter(settings.rewrite_addresses)
        # A little more than a request may take: its own error says more than ours.
        self._asker = Asker(settings.connect_timeout + settings.request_timeout + 0.5)
        self._lock = threading.Lock()
        self._nsqds: dict[str, NsqdHTTP] = {}  # guarded by _lock, as the others
        self._lookupds = {
            address: self._lookupd(address) for address in settings.lookupd_http_addresses
        }
        self._known: tuple[float, Nodes] | None = None

    @property
    def has_lookupds(self) -> bool:
        """Tell whether nsqlookupds say which nsqds there are."""
        return bool(self.settings.lookupd_http_addresses)

    def lookupds(self) -> dict[str, NsqlookupdHTTP]:
        """The nsqlookupds, by their addresses."""
        with self._lock:
            return dict(self._lookupds)

    def set_lookupds(self, addresses: Iterable[str]) -> None:
        """Ask other nsqlookupds from now on."""
        fresh = {address: self._lookupd(address) for address in addresses}
        with self._lock:
            former, self._lookupds = self._lookupds, fresh
            self._known = None
        for client in former.values():
            client.close()

    def nsqd(self, node: Node) -> NsqdHTTP:
        """The HTTP API of one nsqd."""
        return self._nsqd(node.reached_at)

    def nodes(self, max_age: float = 0.0) -> Nodes:
        """Find the nsqds; an answer that is younger than ``max_age`` seconds will do.

        Raises:
            UpstreamError: nobody could say.
        """
        with self._lock:
            known = self._known
        if known is not None and time.monotonic() - known[0] < max_age:
            return known[1]
        found = self._from_lookupds() if self.has_lookupds else self._from_nsqds()
        with self._lock:
            self._known = (time.monotonic(), found)
        return found

    def recent_nodes(self) -> Nodes:
        """The nsqds, as found within the last seconds."""
        return self.nodes(_NODES_KEEP)

    def forget_nodes(self) -> None:
        """Look again the next time: something was changed."""
        with self._lock:
            self._known = None

    def stats(
        self,
        nodes: Iterable[Node],
        topic: str | None = None,
        channel: str | None = None,
        *,
        include_clients: bool = False,
    ) -> tuple[dict[Node, dict[str, Any]], list[Failure]]:
        """Ask nsqds for ``/stats``; return each one's answer, and the failures."""
        return self.each(nodes, lambda nsqd: nsqd.stats_json(
            topic, channel, include_clients=include_clients))

    def each(
        self, nodes: Iterable[Node], ask: Callable[[NsqdHTTP], T], *, is_action: bool = False
    ) -> tuple[dict[Node, T], list[Failure]]:
        """Ask each of some nsqds the same thing, at once."""

        def question(node: Node) -> Question[T]:
            # The client is made in there: an address that is none is a failure of this nsqd alone.
            return Question("nsqd", node.address, lambda: ask(self.nsqd(node)), node.reached_at)

        return self._asker.ask({node: question(node) for node in nodes}, even_if_slow=is_action)

    def each_lookupd(
        self, ask: Callable[[NsqlookupdHTTP], T], *, is_action: bool = False
    ) -> tuple[dict[str, T], list[Failure]]:
        """Ask each nsqlookupd the same thing, at once."""

        def question(address: str, client: NsqlookupdHTTP) -> Question[T]:
            return Question("nsqlookupd", address, lambda: ask(client))

        return self._asker.ask(
            {key: question(key, client) for key, client in self.lookupds().items()},
            even_if_slow=is_action,
        )

    def stop_asking(self) -> None:
        """End the rounds that are under way: whoever waits for one goes on. Idempotent."""
        self._asker.close()

    def close(self) -> None:
        """End threads and connections."""
        self.stop_asking()
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
            client = self._nsqds.get(address)
            if client is None:
                if len(self._nsqds) >= _MOST_CLIENTS:
                    self._nsqds.pop(next(iter(self._nsqds))).close()
                client = self._nsqds[address] = NsqdHTTP(
                    address, self.settings.http_config,
                    connect_timeout=self.settings.connect_timeout,
                    timeout=self.settings.request_timeout,
                )
            return client

    def _from_lookupds(self) -> Nodes:
        answers, failures = self.each_lookupd(
            lambda lookupd: (lookupd.nodes(), lookupd.topics()))
        if not answers:
            raise UpstreamError("nsqlookupd", failures)
        found: dict[str, list[tuple[str, LookupdNode]]] = {}
        for lookupd, (nodes, _) in answers.items():
            for node in nodes:
                found.setdefault(node.producer.tcp_address, []).append((lookupd, node))
        merged = _mark_old([self._merge(seen) for seen in found.values()])
        registered = frozenset(topic for _, topics in answers.values() for topic in topics)
        return Nodes(tuple(sorted(merged, key=_order)), tuple(failures), registered)

    def _merge(self, seen: list[tuple[str, LookupdNode]]) -> Node:
        producer = seen[0][1].producer
        host = producer.broadcast_address
        return Node(
            producer.http_address, self._rewrite(host, producer.http_port),
            self._rewrite(host, producer.tcp_port), host, producer.hostname, producer.tcp_port,
            producer.http_port, producer.version, producer.remote_address,
            tuple(f"{lookupd}/{node.producer.remote_address or 'N/A'}" for lookupd, node in seen),
            tuple(dict.fromkeys(lookupd for lookupd, _ in seen)),
            tuple(sorted({topic for _, node in seen for topic in node.topics})),
            frozenset(topic for _, node in seen for topic in node.tombstoned),
        )

    def _from_nsqds(self) -> Nodes:
        def question(address: str) -> Question[NsqdInfo]:
            return Question("nsqd", address, self._nsqd(address).info)

        addresses = self.settings.nsqd_http_addresses
        answers, failures = self._asker.ask({each: question(each) for each in addresses})
        if not answers:
            raise UpstreamError("nsqd", failures)
        nodes = _mark_old([self._direct(given, info) for given, info in answers.items()])
        return Nodes(tuple(sorted(nodes, key=_order)), tuple(failures))

    def _direct(self, given: str, info: NsqdInfo) -> Node:
        host = info.broadcast_address
        return Node(
            format_address(host, info.http_port), given, self._rewrite(host, info.tcp_port), host,
            info.hostname, info.tcp_port, info.http_port, info.version,
        )


def _order(node: Node) -> tuple[str, str]:
    return node.hostname, node.address


def _version(node: Node) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", node.version)[:3])


def _mark_old(nodes: list[Node]) -> list[Node]:
    newest = max(map(_version, nodes), default=())
    return [
        Node(**{**vars(node), "out_of_date": _version(node) < newest}) for node in nodes
    ]
