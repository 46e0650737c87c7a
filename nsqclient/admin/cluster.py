"""``Cluster``: which nsqds there are, how they are reached, and their counters."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from nsqclient.admin.asking import Asker, Failure, Question
from nsqclient.admin.rewriting import Rewriter
from nsqclient.admin.settings import AdminSettings
from nsqclient.display import without_password
from nsqclient.errors import NSQError
from nsqclient.http import Node as LookupdNode
from nsqclient.http import NsqdHTTP, NsqdInfo, NsqlookupdHTTP, Producer
from nsqclient.protocol.names import is_valid_name
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
    #: ``host:port`` or URL of its HTTP API, from here; without the password that it may have.
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


class Answer(NamedTuple):
    """What one nsqd says in ``/stats``, and when it came, on ``time.monotonic()``."""

    stats: dict[str, Any]
    at: float


class UpstreamError(NSQError):
    """Every server that was asked failed. ``failures`` says how."""

    def __init__(self, what: str, failures: Sequence[Failure]) -> None:
        super().__init__(
            f"failed to query any {what}: " + "; ".join(each.text() for each in failures)
        )
        self.failures = tuple(failures)


class Cluster:
    """Asks nsqlookupds and nsqds. ``close()`` ends its threads and connections.

    Addresses are shown on pages, so all that it returns are without passwords; they stay in the
    HTTP clients. ``progressive`` is that of :class:`Asker`: for pages, which ask again soon.

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
            without_password(address): self._lookupd(address)
            for address in settings.lookupd_http_addresses
        }
        #: Address as it is shown -> as it was given; not changed after this.
        self._given_nsqds = {
            without_password(address): address for address in settings.nsqd_http_addresses
        }
        self._known: tuple[float, Nodes] | None = None
        self._asker.set_sources(self._lookupds)

    @property
    def has_lookupds(self) -> bool:
        """Tell whether nsqlookupds say which nsqds there are."""
        return bool(self.settings.lookupd_http_addresses)

    def lookupds(self) -> dict[str, NsqlookupdHTTP]:
        """The nsqlookupds, by their addresses."""
        with self._lock:
            return dict(self._lookupds)

    def set_lookupds(self, addresses: Iterable[str]) -> None:
        """Ask other nsqlookupds from now on; one that is known may be named as it is shown."""
        known = {shown: client.address for shown, client in self.lookupds().items()}
        clients = [
            self._lookupd(known.get(each, each) if isinstance(each, str) else each)
            for each in addresses
        ]
        fresh = {without_password(client.address): client for client in clients}
        with self._lock:
            former, self._lookupds = self._lookupds, fresh
            self._known = None
        self._asker.set_sources(fresh)
        for client in former.values():
            client.close()

    def nsqd(self, node: Node) -> NsqdHTTP:
        """The HTTP API of one nsqd."""
        return self._nsqd(node.reached_at)

    def nodes(self, max_age: float = 0.0, *, progressive: bool = False) -> Nodes:
        """Find the nsqds; an answer that is younger than ``max_age`` seconds will do.

        Raises:
            UpstreamError: nobody could say.
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
        """The nsqds, as found within the last seconds."""
        return self.nodes(_NODES_KEEP, progressive=progressive)

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
        progressive: bool = False,
    ) -> tuple[dict[Node, dict[str, Any]], list[Failure]]:
        """Ask nsqds for ``/stats``; return each one's answer, and the failures."""
        return self.each(nodes, lambda nsqd: nsqd.stats_json(
            topic, channel, include_clients=include_clients), progressive=progressive)

    def counters(self, nodes: Iterable[Node]) -> tuple[dict[Node, Answer], list[Failure]]:
        """Ask nsqds progressively for the counters of all topics, for rates."""
        def ask(nsqd: NsqdHTTP) -> Answer:
            # The time is that of this nsqd's answer: another one's may come seconds later.
            return Answer(nsqd.stats_json(None, None, include_clients=False), time.monotonic())

        return self.each(nodes, ask, progressive=True)

    def each(
        self,
        nodes: Iterable[Node],
        ask: Callable[[NsqdHTTP], T],
        *,
        is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[Node, T], list[Failure]]:
        """Ask each of some nsqds the same thing, at once."""

        def question(node: Node) -> Question[T]:
            # The client is made in there: an address that is none is a failure of this nsqd alone.
            return Question("nsqd", node.address, lambda: ask(self.nsqd(node)), node.reached_at,
                            node.lookupds)

        return self._asker.ask({node: question(node) for node in nodes},
                               even_if_slow=is_action, progressive=progressive)

    def each_lookupd(
        self,
        ask: Callable[[NsqlookupdHTTP], T],
        *,
        is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[str, T], list[Failure]]:
        """Ask each nsqlookupd the same thing, at once."""

        def question(address: str, client: NsqlookupdHTTP) -> Question[T]:
            return Question("nsqlookupd", address, lambda: ask(client))

        return self._asker.ask(
            {key: question(key, client) for key, client in self.lookupds().items()},
            even_if_slow=is_action, progressive=progressive,
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
            # Put at the end again: the one that was not used for longest goes first.
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
        answers, failures = self.each_lookupd(
            lambda lookupd: (lookupd.nodes(), lookupd.topics()), progressive=progressive)
        if not answers:
            raise UpstreamError("nsqlookupd", failures)
        # By the address that is asked: two claims about it must not make it count twice.
        found: dict[str, list[tuple[str, LookupdNode]]] = {}
        for lookupd, (nodes, _) in answers.items():
            for node in nodes:
                one = node.producer
                address = one.http_address if one.http_port else one.tcp_address
                found.setdefault(address, []).append((lookupd, node))
        merged = _mark_old([self._merge(seen) for seen in found.values()])
        # A name that is none could only spoil the questions about the others.
        registered = frozenset(
            topic for _, topics in answers.values() for topic in topics if is_valid_name(topic))
        return Nodes(tuple(sorted(merged, key=_order)), tuple(failures), registered)

    def _merge(self, seen: list[tuple[str, LookupdNode]]) -> Node:
        producer = _most_named([node.producer for _, node in seen])
        host = producer.broadcast_address
        return Node(
            producer.http_address, self._rewrite(host, producer.http_port),
            self._rewrite(host, producer.tcp_port), host, producer.hostname, producer.tcp_port,
            producer.http_port, producer.version, producer.remote_address,
            tuple(f"{lookupd}/{node.producer.remote_address or 'N/A'}" for lookupd, node in seen),
            tuple(dict.fromkeys(lookupd for lookupd, _ in seen)),
            tuple(sorted({topic for _, node in seen for topic in node.topics
                          if is_valid_name(topic)})),
            frozenset(topic for _, node in seen for topic in node.tombstoned),
        )

    def _from_nsqds(self, progressive: bool) -> Nodes:
        def question(address: str) -> Question[NsqdInfo]:
            return Question("nsqd", address, self._nsqd(address).info)

        answers, failures = self._asker.ask(
            {each: question(each) for each in self._given_nsqds}, progressive=progressive)
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


def _most_named(claims: Sequence[Producer]) -> Producer:
    """What most nsqlookupds say of an nsqd; the first of those that are named as often.

    Where its connection comes from is another thing to each of them.
    """
    counts = Counter(_claim(each) for each in claims)
    return max(claims, key=lambda each: counts[_claim(each)])


def _claim(producer: Producer) -> tuple[str, int, str]:
    """What an nsqd says of itself, beside the address that is asked."""
    return producer.hostname, producer.tcp_port, producer.version


def _order(node: Node) -> tuple[str, str]:
    return node.hostname, node.address


def _version(node: Node) -> tuple[int, ...]:
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", node.version, re.ASCII)
    return tuple(map(int, found.groups())) if found else ()


def _mark_old(nodes: list[Node]) -> list[Node]:
    newest = max(map(_version, nodes), default=())
    return [
        Node(**{**vars(node), "out_of_date": () < _version(node) < newest}) for node in nodes
    ]
