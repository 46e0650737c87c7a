"""``Examination``: what to look at, in which order, from what is known so far.

First the nsqlookupds, then every nsqd that was named or is listed, then the topic and its channels
over nsqd's HTTP API, and these once more after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from nsqclient import Config, NSQError
from nsqclient.advice import advice_for
from nsqclient.cli.doctor.clock import compare_clock
from nsqclient.cli.doctor.findings import Finding, Verdict, ok, warning, wrong
from nsqclient.cli.doctor.lookupd import LookupdView, examine_lookupd
from nsqclient.cli.doctor.nsqd import examine_nsqd
from nsqclient.cli.doctor.queues import judge_change, judge_topic
from nsqclient.errors import HTTPStatusError
from nsqclient.http import NsqdHTTP, Stats
from nsqclient.http.urls import nsqd_url
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.transport import format_address, parse_address

T = TypeVar("T")
R = TypeVar("R")

#: Servers that are asked at once.
_AT_ONCE = 16


class Patient(NamedTuple):
    """What is to be examined."""

    topic: str
    channel: str  #: empty: every channel
    nsqds: list[str]  #: TCP addresses
    lookupds: list[str]
    nsqd_http: list[str]
    config: Config
    timeouts: tuple[float, float]  #: to connect, and to answer, in seconds


class Examination:
    """One examination; ``findings`` grows. Threads: one."""

    def __init__(self, patient: Patient) -> None:
        self._patient = patient
        self.findings: list[Finding] = []
        self._stats: dict[str, Stats] = {}  # HTTP address -> the first look

    def look(self) -> None:
        """Look at everything once. Never raises an NSQError."""
        patient = self._patient
        views = _all(patient.lookupds, lambda address: examine_lookupd(
            address, patient.topic, patient.config, patient.timeouts))
        for view in views:
            self.findings += view.findings
        listed = _listed(views)
        targets = {address: "" for address in patient.nsqds}
        targets |= {tcp: lookupd for tcp, (_, lookupd) in listed.items() if tcp not in targets}
        for found in _all(targets.items(), lambda target: examine_nsqd(
            target[0], patient.config, patient.timeouts[1], target[1]
        )):
            self.findings += found
        self._look_at_queues(list(dict.fromkeys([
            *patient.nsqd_http, *(http for http, _ in listed.values()), *self._guessed(targets),
        ])))
        self._judge_presence(views)

    def look_again(self, seconds: float) -> bool:
        """Look at the counters again, so many seconds after ``look``.

        Returns: whether something grew that should not.
        """
        patient, grown = self._patient, []
        for address, after in self._ask_all(list(self._stats)).items():
            if isinstance(after, Stats):
                grown += judge_change(self._stats[address], after, patient.topic, patient.channel,
                                      address, seconds)
        self.findings = [old for old in self.findings if old.check not in _WATCHED] + grown
        return any(finding.verdict is Verdict.WRONG for finding in grown)

    @property
    def can_look_again(self) -> bool:
        """Tell whether some nsqd that has the topic gave its counters."""
        return any(stats.topic(self._patient.topic) for stats in self._stats.values())

    def _ask_all(self, addresses: list[str]) -> dict[str, Stats | NSQError]:
        def ask(address: str) -> Stats | NSQError:
            patient = self._patient
            try:
                with NsqdHTTP(address, patient.config, connect_timeout=patient.timeouts[0],
                              timeout=patient.timeouts[1]) as client:
                    return client.stats(patient.topic)
            except NSQError as exc:
                return exc

        return dict(zip(addresses, _all(addresses, ask)))

    def _look_at_queues(self, addresses: list[str]) -> None:
        patient = self._patient
        for address, answer in self._ask_all(addresses).items():
            if isinstance(answer, Stats):
                self._stats[address] = answer
                self.findings += judge_topic(answer, patient.topic, patient.channel, address)
                self.findings += compare_clock(
                    nsqd_url(address, "ping"), address, patient.timeouts)
            else:
                self.findings.append(_judge_http(answer, address))

    def _guessed(self, targets: Iterable[str]) -> list[str]:
        """HTTP addresses of nsqds that nobody named: beside the TCP port, if it is that nsqd."""
        if self._patient.nsqd_http:
            return []

        def guess(address: str) -> list[str]:
            host, port = parse_address(address)
            beside = format_address(host, port + 1 if port < 65535 else port)
            try:
                with NsqdHTTP(beside, self._patient.config, connect_timeout=0.5, timeout=1) as http:
                    return [beside] if http.info().tcp_port == port else []
            except NSQError:
                return []

        return [address for found in _all(targets, guess) for address in found]

    def _judge_presence(self, views: list[LookupdView]) -> None:
        """Say whether the topic, and the channel, exist anywhere."""
        topic, channel = self._patient.topic, self._patient.channel
        on_nsqds = [address for address, stats in self._stats.items() if stats.topic(topic)]
        answered = [view for view in views if view.answered]
        knowing = [view.address for view in answered if view.producers]
        if answered and not knowing:
            self.findings.append(_topic_unknown(topic, answered, on_nsqds))
        elif len(knowing) < len(answered):
            missing = [view.address for view in answered if not view.producers]
            self.findings.append(warning(
                "topic", topic, f"not known to nsqlookupd {', '.join(missing)}",
                "give every nsqd the --lookupd-tcp-address of every nsqlookupd"))
        elif answered:
            nsqds = counted(len(_listed(answered, with_topic=True)), "nsqd")
            self.findings.append(ok("topic", topic, f"on {nsqds}, say all nsqlookupds"))
        elif self._stats and not on_nsqds:
            self.findings.append(wrong(
                "topic", topic, "no nsqd that answered has it", _create(topic)))
        elif not self._stats and self._has_well_nsqd():
            self.findings.append(warning(
                "topic", topic, "cannot be looked at: no nsqlookupd and no statistics were asked",
                "give nsqd's --nsqd-http-address, or a --lookupd-http-address"))
        if channel and on_nsqds and not any(
            found.channel(channel) for stats in self._stats.values()
            if (found := stats.topic(topic)) is not None
        ):
            self.findings.append(warning(
                "channel", f"{topic}/{channel}", "no nsqd has it",
                "a consumer makes it when it subscribes; messages before that go to the other"
                " channels only, or wait for the first one"))

    def _has_well_nsqd(self) -> bool:
        """Tell whether an nsqd is well, and nothing was said about its statistics."""
        checks = {found.check: found.verdict for found in self.findings}
        return checks.get("nsqd") is Verdict.OK and "nsqd http" not in checks


#: What ``look_again`` finds; the last look counts.
_WATCHED = ("timeouts", "requeues")


def _listed(
    views: Iterable[LookupdView], with_topic: bool = False
) -> dict[str, tuple[str, str]]:
    """TCP address -> (HTTP address, the nsqlookupd that lists it).

    The nsqds that have the topic, and where nobody has it, all that there are.
    """
    views = list(views)
    chosen = [(view, producer) for view in views for producer in view.producers or ()]
    if not chosen and not with_topic:
        chosen = [(view, producer) for view in views for producer in view.nodes]
    return {
        producer.tcp_address: (producer.http_address, view.address) for view, producer in chosen
    }


def _topic_unknown(topic: str, answered: list[LookupdView], on_nsqds: list[str]) -> Finding:
    if on_nsqds:
        return wrong("topic", topic, f"nsqd {', '.join(on_nsqds)} has it, no nsqlookupd knows it",
                     "give that nsqd the --lookupd-tcp-address of these nsqlookupds (port 4160)")
    hidden = [producer.tcp_address for view in answered for producer in view.hidden]
    if hidden:
        return wrong("topic", topic, f"tombstoned on {', '.join(hidden)}: lookups hide it",
                     "wait for nsqlookupd's --tombstone-lifetime, or restart that nsqd")
    return wrong("topic", topic, "no nsqlookupd knows it", _create(topic))


def _create(topic: str) -> str:
    return (
        f"see that the name is spelt right; publish to it once, or POST /topic/create?topic={topic}"
        " to an nsqd"
    )


def _judge_http(error: NSQError, address: str) -> Finding:
    reason = getattr(error, "reason", str(error))
    if isinstance(error, HTTPStatusError) and "TLS" in error.message:
        advice = "give --nsqd-http-address=https://HOST:4152 (and --consumer-opt=tls_v1)"
    elif isinstance(error, HTTPStatusError):
        advice = "another server answers there: give nsqd's --http-address (4151 by default)"
    else:
        advice = advice_for(error).replace("nsqlookupd", "nsqd").replace("416", "415")
    return warning(
        "nsqd http", address, f"no statistics: {reason}",
        f"{advice}; without them paused channels and timeouts cannot be seen",
    )


def _all(items: Iterable[T], work: Callable[[T], R]) -> list[R]:
    """Do it for all of them, many at once; the results are in their order."""
    items = list(items)
    if not items:
        return []
    with ThreadPoolExecutor(min(len(items), _AT_ONCE), "nsq-doctor") as pool:
        return list(pool.map(work, items))
