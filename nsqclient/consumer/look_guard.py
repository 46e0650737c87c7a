"""``LookGuard``: consumers that only look subscribe where this changes nothing for others.

A subscription creates a topic or a channel that does not exist, and the first channel of a topic
takes the messages that wait in the topic. So before each SUB of such a consumer its nsqd is asked
for its topics and channels.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from nsqclient.config import Config
from nsqclient.consumer.consumer import Consumer
from nsqclient.errors import ConnectError, NSQError
from nsqclient.protocol.names import is_ephemeral

#: Seconds for one answer.
_TIMEOUT = 2.0
#: Seconds after which an nsqd is asked again at most, until it can be subscribed to.
LONGEST_WAIT = 2.0


class _Topic(Protocol):
    """What is asked for of ``TopicStats``."""

    @property
    def channels(self) -> Sequence[Any]:
        """Its channels, each with a ``name``."""
        ...


class Obstacle(enum.Enum):
    """Why an nsqd is not subscribed to."""

    NO_TOPIC = enum.auto()  #: the topic does not exist there; it may be created later
    NO_CHANNEL = enum.auto()  #: a channel is missing
    NOT_KNOWN = enum.auto()  #: the nsqd cannot be asked


class LookRefusedError(ConnectError):
    """A consumer that only looks does not subscribe to an nsqd."""

    obstacle = Obstacle.NOT_KNOWN


def refusal(
    topic: str, channel: str, channels: Collection[str], *, may_create: bool = False,
    has_partitions: bool = False,
) -> str:
    """Return what a subscription would change, and what to do; empty: nothing. Pure.

    Args:
        channels: those that the topic has on the nsqd.
        may_create: the user wants the channel to be created.
        has_partitions: a new channel of a partitioned topic begins at its end.
    """
    if channel in channels or may_create:
        return ""
    if not is_ephemeral(channel):
        return (f"topic {topic} has no channel {channel} there, and a subscription would create"
                " it: create the channel first")
    # An ephemeral channel may be gone in the next moment.
    if all(map(is_ephemeral, channels)) and not has_partitions:
        return (f"topic {topic} has no channel there, and the first one would take the messages"
                " that wait: create a channel first")
    return ""


class LookGuard:
    """Checks the nsqds of one consumer before each subscription.

    Args:
        ask: returns the topic as an nsqd has it, None if it has none, by the nsqd's TCP address.
            Raises an NSQError where this is not known. It may block for some seconds.
        probe: connects to an nsqd that cannot be asked; raises why this is not possible.
        may_create: the channel may be created, in a topic that exists.

    Threads: any.
    """

    def __init__(
        self, topic: str, channel: str, ask: Callable[[str], _Topic | None],
        probe: Callable[[str], object] = lambda address: None, *, may_create: bool = False,
    ) -> None:
        self._topic = topic
        self._channel = channel
        self._ask = ask
        self._probe = probe
        self._may_create = may_create
        #: nsqd -> the last reason; changed by single operations, for each nsqd by one thread
        self._refused: dict[str, str] = {}

    def check(self, address: str, has_partitions: bool) -> None:
        """Return if a subscription to an nsqd changes nothing.

        Raises:
            LookRefusedError: it would, or it is not known whether it would.
            NSQError: the nsqd cannot be reached at all.
        """
        obstacle = Obstacle.NO_CHANNEL
        try:
            found = self._ask(address)
        except NSQError as exc:
            self._probe(address)
            obstacle = Obstacle.NOT_KNOWN
            reason = f"not known whether a subscription would take messages of others: {exc}"
        else:
            if found is None:
                obstacle = Obstacle.NO_TOPIC
                reason = f"there is no topic {self._topic} there: check its spelling"
            else:
                reason = refusal(
                    self._topic, self._channel, [each.name for each in found.channels],
                    may_create=self._may_create, has_partitions=has_partitions)
        former = self._refused.pop(address, "")
        if not reason:
            return
        self._refused[address] = reason
        error = LookRefusedError(address, reason)
        error.is_repeated = reason == former
        error.obstacle = obstacle
        raise error


class StatsOfNsqds:
    """Asks nsqds, which are known by their TCP addresses, over HTTP. Threads: any.

    Args:
        nsqds: TCP addresses that were given, each with the address of its HTTP API; empty: not
            given. The port after its TCP port is tried then.
        lookupds: nsqlookupds, which know the HTTP ports of the nsqds that they list.
    """

    def __init__(
        self, topic: str, config: Config, nsqds: Mapping[str, str], lookupds: Sequence[str]
    ) -> None:
        self._topic = topic
        self._config = config
        self._nsqds = nsqds
        self._lookupds = lookupds

    def topic(self, address: str) -> _Topic | None:
        """Return the topic as the nsqd has it; None: it has none.

        Blocks: some seconds at most for each server.

        Raises:
            NSQError: it cannot be asked.
        """
        from nsqclient.http.nsqd import NsqdHTTP  # takes long to import

        http = self._nsqds.get(address) or self._listed(address)
        if not http:
            http = self._beside(address)
        with NsqdHTTP(http, self._config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT) as nsqd:
            return nsqd.stats(self._topic, include_clients=False).topic(self._topic)

    def _listed(self, address: str) -> str:
        """Return the HTTP address that an nsqlookupd lists; empty: none does."""
        from nsqclient.http.nsqlookupd import NsqlookupdHTTP

        for lookupd in self._lookupds:
            try:
                with NsqlookupdHTTP(lookupd, self._config, connect_timeout=_TIMEOUT,
                                    timeout=_TIMEOUT) as client:
                    producers = client.lookup(self._topic).producers
            except NSQError:
                continue
            for producer in producers:
                if producer.tcp_address == address and producer.http_port:
                    return producer.http_address
        return ""

    def _beside(self, address: str) -> str:
        from nsqclient.http.nsqd import find_http_address

        try:
            return find_http_address(address, self._config, _TIMEOUT)
        except NSQError as exc:
            raise NSQError(
                "its HTTP address is not known: give --nsqd-http-address") from exc


class LookingConsumer(Consumer):
    """A consumer whose subscriptions a guard allows. Without a guard it is any consumer."""

    def __init__(self, *args: Any, guard: LookGuard | None, **options: Any) -> None:
        config = options.get("config") or Config()
        if guard is not None:
            options["config"] = config.replace(
                max_reconnect_delay=min(config.max_reconnect_delay, LONGEST_WAIT))
        self._guard = guard
        super().__init__(*args, **options)

    def _check_nsqd(self, address: str, has_partitions: bool) -> None:
        if self._guard is not None:
            self._guard.check(address, has_partitions)
