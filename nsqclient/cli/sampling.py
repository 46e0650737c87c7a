"""Counters of one channel on every nsqd that has it, and the rates between two polls.

A server that does not answer is left out of a poll, and its problem recorded; the rates of the
others stay right. No output; problems are logged at each poll, and when they end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nsqclient.cli.flags import CommandLineError
from nsqclient.http import ChannelStats, NsqdHTTP
from nsqclient.http.ask_all import Failure, UpstreamError
from nsqclient.http.cluster import Cluster, Node

logger: logging.Logger = logging.getLogger("nsqclient.cli")


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
        nsqds: HTTP addresses of nsqds to ask, each under the address that was given; or else:
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
        self._cluster = Cluster(
            lookupds, nsqds, connect_timeout=connect_timeout, timeout=request_timeout)
        self._quiet = quiet
        self._nodes: list[Node] = []
        self._answered: set[str] = set()  # servers
        #: address -> what is wrong there now. An empty address: what is wrong as a whole.
        self.problems: dict[str, str] = {}

    def poll(self) -> dict[str, Answer]:
        """Ask all servers once; return the counters of nsqds that have the channel.

        Blocks: about two request timeouts at most.

        Raises:
            CommandLineError: a server that was given, and has never answered, is another one.
        """
        cluster = self._cluster
        failures = {each.address: each for each in self._find_nsqds()}
        answers, failed = cluster.each(self._nodes, self._counters_of)
        failures |= {each.address: each for each in failed}
        self._answered.update(cluster.lookupds().keys() - failures.keys(),
                              (node.address for node in answers))
        for address, failure in failures.items():
            is_given = failure.kind == "nsqlookupd" or not cluster.has_lookupds
            if is_given and failure.is_lasting and address not in self._answered:
                raise CommandLineError(f"{address}: {failure.reason}")
        found = {node.address: one for node, one in answers.items() if one is not None}
        problems = {address: failure.reason for address, failure in failures.items()}
        if not found and not problems:
            problems[""] = f"no nsqd has channel {self._channel} of topic {self._topic} (yet)"
        self._report(problems)
        return found

    def close(self) -> None:
        """End the threads and connections. Idempotent."""
        self._cluster.close()

    def _find_nsqds(self) -> list[Failure]:
        """Find the nsqds that have the topic now; while nobody answers, those of before stay."""
        try:
            found = self._cluster.nodes()
        except UpstreamError as exc:
            return list(exc.failures)
        self._nodes = [
            node for node in found.nodes if not self._cluster.has_lookupds
            or self._topic in node.topics and self._topic not in node.tombstoned]
        return [each for each in found.failures if not each.is_doubt]

    def _counters_of(self, nsqd: NsqdHTTP) -> Answer | None:
        stats = nsqd.stats(self._topic, self._channel, include_clients=False)
        topic = stats.topic(self._topic)
        channel = None if topic is None else topic.channel(self._channel)
        return None if channel is None else Answer(Counters.of(channel), time.monotonic())

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
