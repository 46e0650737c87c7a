"""``Diagnosis``: runs the checks of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from nsqclient.config import Config
from nsqclient.cluster.doctor.checks import (
    LookupdView, check_clock, check_counters, check_lookupd, check_nsqd, check_topic,
)
from nsqclient.cluster.doctor.findings import Finding, Severity, curl, error, ok, warning
from nsqclient.display import counted
from nsqclient.errors import NSQError, NSQHTTPStatusError
from nsqclient.http import NsqdHTTP, Stats
from nsqclient.cluster.ask_all import AskAll, Request
from nsqclient.partitioned.http import fetch_stats
from nsqclient.http.nsqd import find_http_address
from nsqclient.http.urls import nsqd_url
from nsqclient.protocol.events import is_partitioned_version
from nsqclient.runtime.arguments import closest

R = TypeVar("R")

#: Names of topics or channels that a finding lists.
_MOST_NAMES = 10

#: Seconds for one check of all servers.
_LONGEST = 60.0


class Target(NamedTuple):
    topic: str  #: empty: every topic
    channel: str  #: empty: every channel
    nsqds: list[str]  #: TCP addresses
    lookupds: list[str]
    nsqd_http: list[str]
    config: Config
    timeouts: tuple[float, float]  #: seconds to connect, and seconds for the answer
    #: Options of requests over HTTP; None: as ``config``.
    http_config: Config | None = None
    #: Address that nsqlookupd lists -> address that is reachable from here.
    reached_at: Callable[[str], str] = str
    #: nsqds that are checked at most.
    most_nsqds: int = 2000

    @property
    def http(self) -> Config:
        return self.config if self.http_config is None else self.http_config


class Diagnosis:
    """One run of all checks. Lifecycle: ``with``. Threads: one."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ask_all = AskAll(_LONGEST, "nsq-doctor")
        self.findings: list[Finding] = []
        self._stats: dict[str, Stats] = {}  # HTTP address -> the first statistics

    def __enter__(self) -> Diagnosis:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ask_all.close()

    def run(self) -> None:
        """Run every check once. Never raises: a check that fails is a finding."""
        target = self._target
        views = self._checked("nsqlookupd", target.lookupds, lambda address: check_lookupd(
            address, target.topic, target.http, target.timeouts))
        for view in views:
            self.findings += view.findings
        listings = _listed(views)
        listed = dict(self._checked(
            "nsqd", islice(listings, target.most_nsqds),
            lambda tcp: (target.reached_at(tcp),
                         (target.reached_at(listings[tcp][0]), listings[tcp][1]))))
        nsqds = {address: "" for address in target.nsqds}
        nsqds |= {tcp: lookupd for tcp, (_, lookupd) in listed.items() if tcp not in nsqds}
        for found in self._checked("nsqd", nsqds, lambda address: check_nsqd(
            address, target.config, target.timeouts[1], nsqds[address]
        )):
            self.findings += found
        self._check_statistics(list(dict.fromkeys([
            *target.nsqd_http, *(http for http, _ in listed.values()), *self._guess_http(nsqds),
        ])))
        if target.topic:
            self._checked("topic", [target.topic], lambda _: self._check_presence(views))
        else:
            self._checked("topic", ["topics"], lambda _: self._check_listed(views))

    def _checked(
        self, check: str, places: Iterable[str], work: Callable[[str], R]
    ) -> list[R]:
        """Call ``work`` for every place at once; return the results in their order."""
        results, failures = self._ask_all.run({
            place: Request(check, place, partial(work, place)) for place in places})
        self.findings += [
            error(check, failure.address, f"the check failed: {failure.reason}",
                  "the other checks are not affected; report it with this text")
            for failure in failures]
        return list(results.values())

    def check_again(self, seconds: float) -> bool:
        """Compare the counters with the results of ``run``; True if an error counter has grown."""
        target = self._target
        grown: list[Finding] = []
        for address, after in self._get_stats(list(self._stats)).items():
            if isinstance(after, Stats):
                grown += check_counters(self._stats[address], after, target.topic, target.channel,
                                        address, seconds)
        self.findings = [old for old in self.findings if old.check not in _COUNTERS] + grown
        return any(finding.severity is Severity.ERROR for finding in grown)

    @property
    def can_check_again(self) -> bool:
        """True if an nsqd that has the topic gave its counters."""
        topic = self._target.topic
        return any(stats.topic(topic) if topic else stats.topics for stats in self._stats.values())

    def _get_stats(self, addresses: list[str]) -> dict[str, Stats | NSQError]:
        def get(address: str) -> tuple[str, Stats | NSQError]:
            target = self._target
            try:
                with NsqdHTTP(address, target.http, connect_timeout=target.timeouts[0],
                              timeout=target.timeouts[1]) as client:
                    return address, fetch_stats(
                        client, target.topic or None, include_clients=True)
            except NSQError as exc:
                return address, exc

        return dict(self._checked("nsqd http", addresses, get))

    def _check_statistics(self, addresses: list[str]) -> None:
        target = self._target
        for address, stats in self._get_stats(addresses).items():
            if isinstance(stats, Stats):
                self._stats[address] = stats
            else:
                self.findings.append(_no_statistics(stats, address))
        for found in (
            *self._checked("topic", self._stats, lambda where: check_topic(
                self._stats[where], target.topic, target.channel, where)),
            *self._checked("clock", self._stats, lambda where: check_clock(
                nsqd_url(where, "ping"), where, target.timeouts)),
        ):
            self.findings += found

    def _guess_http(self, nsqds: Iterable[str]) -> list[str]:
        if self._target.nsqd_http:
            return []

        def find(nsqd: str) -> str:
            try:
                return find_http_address(nsqd, self._target.http, 1.0)
            except NSQError:
                return ""

        return list(filter(None, self._checked("nsqd http", nsqds, find)))

    def _check_listed(self, views: list[LookupdView]) -> None:
        answered = [view for view in views if view.answered]
        listed = set().union(*(view.node_topics for view in answered))
        for address, stats in self._stats.items() if answered else ():
            names = [topic.name for topic in stats.topics if topic.name not in listed]
            if names and not is_partitioned_version(stats.version):
                self.findings.append(warning(
                    "topic", address, f"no nsqlookupd lists the topics {_some(names)}",
                    "consumers do not find them: give that nsqd the --lookupd-tcp-address of these"
                    " nsqlookupds (port 4160)"))

    def _check_presence(self, views: list[LookupdView]) -> None:
        topic, channel = self._target.topic, self._target.channel
        on_nsqds = [address for address, stats in self._stats.items() if stats.topic(topic)]
        answered = [view for view in views if view.answered]
        knowing = [view.address for view in answered if view.producers]
        if answered and not knowing:
            self.findings.append(_topic_unknown(topic, answered, on_nsqds, [*self._stats]))
        elif len(knowing) < len(answered):
            missing = [view.address for view in answered if not view.producers]
            self.findings.append(warning(
                "topic", topic, f"not known to nsqlookupd {', '.join(missing)}",
                "give every nsqd the --lookupd-tcp-address of every nsqlookupd"))
        elif answered:
            nsqds = counted(len(_listed(answered, with_topic=True)), "nsqd")
            self.findings.append(ok("topic", topic, f"on {nsqds}, according to all nsqlookupds"))
        elif self._stats and not on_nsqds:
            self.findings.append(error(
                "topic", topic, "no nsqd that answered has it", *_create(topic, (), self._stats)))
        elif not self._stats and self._has_healthy_nsqd():
            self.findings.append(warning(
                "topic", topic, "cannot be checked: no nsqlookupd and no statistics are available",
                "give nsqd's --nsqd-http-address, or a --lookupd-http-address"))
        channels = sorted({
            each.name for stats in self._stats.values()
            if (found := stats.topic(topic)) is not None for each in found.channels
        })
        if channel and on_nsqds and channel not in channels:
            self.findings.append(warning(
                "channel", f"{topic}/{channel}", f"no nsqd has it{_others('channel', channels)}",
                f"{_meant(channel, channels)}a consumer creates it when it subscribes; messages"
                " before that go to the other channels only, or wait for the first one"))

    def _has_healthy_nsqd(self) -> bool:
        """True if an nsqd passed its check, and its statistics led to no finding."""
        checks = {found.check: found.severity for found in self.findings}
        return checks.get("nsqd") is Severity.OK and "nsqd http" not in checks


#: The checks of ``check_again``; the findings of its last call count.
_COUNTERS = ("timeouts", "requeues")


def _listed(
    views: Iterable[LookupdView], with_topic: bool = False
) -> dict[str, tuple[str, str]]:
    """Return TCP address -> (HTTP address, nsqlookupd), of nsqds with the topic or of all."""
    views = list(views)
    chosen = [(view, producer) for view in views for producer in view.producers or ()]
    if not chosen and not with_topic:
        chosen = [(view, producer) for view in views for producer in view.nodes]
    found: dict[str, tuple[str, str]] = {}
    for view, producer in chosen:  # the first of two claims counts
        found.setdefault(producer.tcp_address, (producer.http_address, view.address))
    return found


def _others(kind: str, names: Iterable[str]) -> str:
    names = list(names)
    if not names:
        return f"; there is no {kind}"
    plural = "" if len(names) == 1 else "s"
    return f"; there {'is' if not plural else 'are'} the {kind}{plural} {_some(names)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _meant(name: str, known: Iterable[str]) -> str:
    close = closest(name, known)
    return f"did you mean {close}? Else " if close else ""


def _topic_unknown(
    topic: str, answered: list[LookupdView], on_nsqds: list[str], nsqd_http: list[str]
) -> Finding:
    if on_nsqds:
        return error("topic", topic, f"nsqd {', '.join(on_nsqds)} has it, no nsqlookupd knows it",
                     "give that nsqd the --lookupd-tcp-address of these nsqlookupds (port 4160)")
    hidden = [producer.tcp_address for view in answered for producer in view.hidden]
    if hidden:
        return error("topic", topic, f"tombstoned on {', '.join(hidden)}: lookups hide it",
                     "wait for nsqlookupd's --tombstone-lifetime, or restart that nsqd")
    checks = {each.check for view in answered for each in view.findings}
    if "broadcast" in checks and any(view.producers is not None for view in answered):
        return error("topic", topic, "no nsqd that has it announces an address that can be used",
                     "see the broadcast addresses above")
    known = sorted({name for view in answered for name in view.topics})
    return error("topic", topic, f"no nsqlookupd knows it{_others('topic', known)}",
                 *_create(topic, known, nsqd_http))


def _create(topic: str, known: Iterable[str], nsqd_http: Iterable[str]) -> tuple[str, str]:
    """Return a hint and a command that creates a topic."""
    hint = f"{_meant(topic, known)}check the spelling of the name; publish to it once, or create it"
    for address in nsqd_http:
        return f"{hint} on an nsqd", curl(nsqd_url(address, "topic/create"), topic=topic)
    return f"{hint} on an nsqd: POST /topic/create?topic={topic}", ""


def _no_statistics(exc: NSQError, address: str) -> Finding:
    reason = getattr(exc, "reason", str(exc))
    if isinstance(exc, NSQHTTPStatusError) and "TLS" in exc.message:
        hint = "give --nsqd-http-address=https://HOST:4152 (and --consumer-opt=tls_v1)"
    elif isinstance(exc, NSQHTTPStatusError):
        hint = "another server answers there: give nsqd's --http-address (4151 by default)"
    else:
        hint = exc.hint
    return warning(
        "nsqd http", address, f"no statistics: {reason}",
        f"{hint}; without them paused channels and timeouts cannot be seen",
    )
