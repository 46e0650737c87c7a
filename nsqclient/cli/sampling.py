"""Counters of one channel on every nsqd that has it, and the rates between two polls.

A server that does not answer is left out of a poll, and its problem recorded; the rates of the
others stay right. No output; problems are logged at each poll, and when they end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from nsqclient import NSQError
from nsqclient.cli.flags import CommandLineError
from nsqclient.errors import NSQHTTPStatusError
from nsqclient.http import ChannelStats, NsqdHTTP, NsqlookupdHTTP
from nsqclient.sanitize import without_password

logger = logging.getLogger("nsqclient.cli")

T = TypeVar("T")
Client = TypeVar("Client", NsqdHTTP, NsqlookupdHTTP)

#: Requests that run at the same time.
_CONCURRENCY = 16


class Counters(NamedTuple):
    """The counters of the channel on one nsqd, or the sum over several."""

    messages: int = 0  #: since nsqd's start
    depth: int = 0
    on_disk: int = 0  #: the part of the depth that is on disk
    in_flight: int = 0
    deferred: int = 0
    requeued: int = 0
    timed_out: int = 0
    clients: int = 0
    paused: int = 0  #: on how many nsqds

    @classmethod
    def of(cls, channel: ChannelStats) -> Counters:
        """The counters of one nsqd's answer."""
        return cls(
            channel.message_count, channel.depth, channel.backend_depth, channel.in_flight_count,
            channel.deferred_count, channel.requeue_count, channel.timeout_count,
            channel.client_count, int(channel.paused),
        )


class Row(NamedTuple):
    """Counters, and the rates per second since the last poll."""

    name: str
    ingress: float
    egress: float
    counters: Counters


class Answer(NamedTuple):
    """The counters of one nsqd, and when they were received, on ``time.monotonic()``."""

    counters: Counters
    at: float


def rates(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> list[Row]:
    """One row for each nsqd of the later poll. A new nsqd has rates of 0.

    Each rate is over the time between the two answers of its nsqd: a poll may have waited for
    another one.
    """
    rows = []
    for address, (now, at) in after.items():
        then, began = before.get(address, (now, at))
        if now.messages < then.messages:
            then = Counters()  # nsqd was restarted, and counts from 0 again
        came = now.messages - then.messages
        went = came - (now.depth - then.depth)
        elapsed = max(at - began, 1e-9)  # 0 for a new nsqd, whose rates are 0
        rows.append(Row(address, came / elapsed, went / elapsed, now))
    return rows


def total(rows: Iterable[Row]) -> Row:
    """The sum of all rows."""
    rows = list(rows)
    sums = [sum(values) for values in zip(*(row.counters for row in rows))]
    return Row("total", sum(row.ingress for row in rows), sum(row.egress for row in rows),
               Counters(*sums))


class Sampler:
    """Polls the servers.

    Args:
        nsqds: HTTP addresses of nsqds to ask, each under the address that was given.
        lookupds: HTTP addresses of nsqlookupds to find them.
        connect_timeout, request_timeout: of each request, in seconds.
        quiet: log nothing; ``problems`` has everything.

    Life: usable at once; ``close()`` ends it. Threads: one; it has its own for the requests.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        *,
        nsqds: Iterable[str],
        lookupds: Iterable[str],
        connect_timeout: float,
        request_timeout: float,
        quiet: bool = False,
    ) -> None:
        self._topic, self._channel = topic, channel
        self._nsqd = partial(NsqdHTTP, connect_timeout=connect_timeout, timeout=request_timeout)
        lookupd = partial(
            NsqlookupdHTTP, connect_timeout=connect_timeout, timeout=request_timeout)
        # By the addresses as they are shown, without passwords.
        self._lookupds = {without_password(address): lookupd(address) for address in lookupds}
        self._nsqds = {without_password(address): self._nsqd(address) for address in nsqds}
        self._quiet = quiet
        self._threads = ThreadPoolExecutor(_CONCURRENCY, thread_name_prefix="nsq-stat")
        #: Given ones that have not answered yet.
        self._untried = {*self._lookupds, *self._nsqds}
        #: address -> what is wrong there now. An empty address: what is wrong as a whole.
        self.problems: dict[str, str] = {}

    def poll(self) -> dict[str, Answer]:
        """Ask all servers once; return the counters of nsqds that have the channel.

        Blocks: about two request timeouts at most, three where nsqlookupds are asked.

        Raises:
            CommandLineError: a server that was given, and has never answered, is another one.
        """
        problems: dict[str, str] = {}
        if self._lookupds:
            self._find_nsqds(problems)
        answers = self._ask(self._nsqds, self._counters_of, problems)
        found = {address: one for address, one in answers.items() if one is not None}
        if not found and not problems:
            problems[""] = f"no nsqd has channel {self._channel} of topic {self._topic} (yet)"
        self._report(problems)
        return found

    def close(self) -> None:
        """End the threads and connections. Idempotent."""
        self._threads.shutdown()
        for client in [*self._nsqds.values(), *self._lookupds.values()]:
            client.close()

    def _find_nsqds(self, problems: dict[str, str]) -> None:
        """Ask the nsqlookupds which nsqds have the topic now.

        While none of them answers, the nsqds that were found before are asked.
        """
        answers = self._ask(self._lookupds, self._producers_of, problems)
        if not answers:
            return
        wanted = set().union(*answers.values())
        for address in set(self._nsqds) - wanted:
            self._nsqds.pop(address).close()
        for address in sorted(wanted - set(self._nsqds)):
            self._nsqds[address] = self._nsqd(address)

    def _producers_of(self, lookupd: NsqlookupdHTTP) -> set[str]:
        try:
            producers = lookupd.lookup(self._topic).producers
        except NSQHTTPStatusError as exc:
            if exc.message == "TOPIC_NOT_FOUND":
                return set()
            raise
        return {producer.http_address for producer in producers
                if producer.broadcast_address and 0 < producer.http_port < 65536}

    def _counters_of(self, nsqd: NsqdHTTP) -> Answer | None:
        stats = nsqd.stats(self._topic, self._channel, include_clients=False)
        topic = stats.topic(self._topic)
        channel = None if topic is None else topic.channel(self._channel)
        return None if channel is None else Answer(Counters.of(channel), time.monotonic())

    def _ask(
        self,
        clients: Mapping[str, Client],
        request: Callable[[Client], T],
        problems: dict[str, str],
    ) -> dict[str, T]:
        """Send a request to all of them at once; record the problems of those that fail."""
        asked = {address: self._threads.submit(request, client)
                 for address, client in clients.items()}
        answers = {}
        for address, future in asked.items():
            try:
                answers[address] = future.result()
                self._untried.discard(address)
            except NSQError as exc:
                reason = str(getattr(exc, "reason", exc))
                if getattr(exc, "is_lasting", False) and address in self._untried:
                    raise CommandLineError(f"{address}: {reason}") from exc
                problems[address] = reason
        return answers

    def _report(self, problems: dict[str, str]) -> None:
        """Log the problems, at each poll, and their ends."""
        former, self.problems = self.problems, problems
        if self._quiet:
            return
        for address, problem in problems.items():
            where = f"{address}: " if address else ""
            logger.warning("%s%s", where, problem)
        for address in former:
            if address and address not in problems:
                logger.info("%s answers again", address)
