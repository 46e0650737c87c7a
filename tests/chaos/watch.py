"""Looks for consumers that are stuck: alive, free to work, with work to do, and idle."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import requests

from tests.chaos.cluster import Cluster
from tests.chaos.ledger import Ledger
from tests.chaos.program import CHANNEL, TOPIC

#: Seconds for which an nsqlookupd must have listed an nsqd before its depth counts.
LISTED = 10.0
#: A consumer that handles nothing for this many seconds, although it has work, is stuck.
PATIENCE = 15.0
#: A state that is older says nothing.
_FRESH = 3.0
_INTERVAL = 0.5


class Depths(NamedTuple):
    queued: int
    in_flight: int
    deferred: int


class StuckMeter:
    """Decides from samples which consumers are stuck. Pure: the time is an argument."""

    def __init__(self) -> None:
        self.stuck: list[str] = []
        self._since: dict[str, float] = {}  # since when it should have handled something

    def observe(
        self, now: float, name: str, state: dict[str, Any] | None, work: list[int]
    ) -> None:
        """One sample of one consumer: its state (None: not alive), nsqds with work for it."""
        if (
            state is None or not work or state["paused"] or state["backoff"]
            or now - state["at"] > _FRESH
        ):
            self._since.pop(name, None)
            return
        since = max(self._since.setdefault(name, now), state["last"])
        if now - since > PATIENCE:
            self.stuck.append(f"{name}: idle for {now - since:.1f} s, work on {work}: {state}")
            self._since[name] = now


class Watch:
    """A thread that samples the cluster twice a second while the ``with`` block runs."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._meter = StuckMeter()
        self._listed_since: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-watch", daemon=True)
        self.errors: list[str] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    @property
    def stuck(self) -> list[str]:
        return self._meter.stuck

    def _run(self) -> None:
        while not self._over.wait(_INTERVAL):
            try:
                self._sample()
            except Exception as exc:
                self.errors.append(f"watch: {exc!r}")

    def _sample(self) -> None:
        cluster, now = self._cluster, time.monotonic()
        self._note_listed(now)
        work = [
            number for number in range(len(cluster.nsqds))
            if now - self._listed_since.get(number, now) >= LISTED
            and (held := depths(cluster, number)) is not None and held.queued > 0
        ]
        self._ledger.read()
        for (role, index), programs in cluster.programs.items():
            if role == "consumer":
                is_there = programs.runs and (role, index) not in cluster.hurt
                state = self._ledger.states.get(programs.name) if is_there else None
                self._meter.observe(time.monotonic(), programs.name, state, work)

    def _note_listed(self, now: float) -> None:
        ports: set[int] = set()
        for index, lookupd in enumerate(self._cluster.lookupds):
            if ("lookupd", index) in self._cluster.hurt:
                continue
            answer = _ask(f"http://{lookupd.http_address}/lookup", topic=TOPIC)
            ports |= {entry["tcp_port"] for entry in (answer or {}).get("producers", ())}
        for number, proxy in enumerate(self._cluster.proxies):
            if int(proxy.address.rpartition(":")[2]) in ports:
                self._listed_since.setdefault(number, now)
            else:
                self._listed_since.pop(number, None)


def depths(cluster: Cluster, number: int) -> Depths | None:
    """Messages that an nsqd holds for the channel, over all topics; None if unreachable."""
    if ("nsqd", number) in cluster.hurt:
        return None
    answer = _ask(f"http://{cluster.nsqds[number].http_address}/stats", format="json")
    found = [
        Depths(topic["depth"] + channel["depth"], channel["in_flight_count"],
               channel["deferred_count"])
        for topic in (answer or {}).get("topics") or () if topic["topic_name"] in cluster.topics
        for channel in topic["channels"] or () if channel["channel_name"] == CHANNEL
    ]
    if len(found) < len(cluster.topics):
        return None
    return Depths(*map(sum, zip(*found)))


def _ask(url: str, **params: str) -> dict[str, Any] | None:
    try:
        answer = requests.get(url, params=params, timeout=1)
        return answer.json() if answer.ok else None
    except (requests.RequestException, ValueError):
        return None  # down just now
