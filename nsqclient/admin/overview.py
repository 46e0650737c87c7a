"""``Overview``: the numbers of every topic at one moment; ``RateHistory``: their rates. Pure.

A counter of nsqd starts again at 0 with nsqd. A rate is the difference of two counts per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqclient.admin.aggregate import Values, number, objects, text
from nsqclient.cluster.ask_all import Failure
from nsqclient.cluster.cluster import Node

#: Points of a sparkline: three minutes at a round every two seconds.
POINTS = 90
#: Seconds for which the counters of a silent nsqd are kept.
_KEEP = 600.0


@dataclass
class Sample:
    """A topic or channel at one moment, over all nsqds."""

    counts: dict[str, int] = field(default_factory=dict)  #: its messages on each nsqd
    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    clients: int = 0
    paused: int = 0  #: of a topic: 0 no, 1 some channel, 2 the topic
    channels: set[str] = field(default_factory=set)

    def add(self, values: Values) -> None:
        """Add the depth and the clients of a topic or channel on one nsqd."""
        self.depth += number(values, "depth")
        self.in_flight += number(values, "in_flight_count")
        self.deferred += number(values, "deferred_count")
        self.clients += number(values, "client_count")

    def count(self, node: str, values: Values) -> None:
        """Add the messages that one nsqd has counted."""
        self.counts[node] = self.counts.get(node, 0) + number(values, "message_count")


class _Track:
    __slots__ = ("rate", "rates", "depths", "nodes")

    def __init__(self) -> None:
        self.rate: float | None = None
        self.rates: deque[float | None] = deque(maxlen=POINTS)
        self.depths: deque[int | None] = deque(maxlen=POINTS)
        self.nodes: set[str] = set()  # nsqds that had it when they answered last

    def add(self, rate: float | None, depth: int | None) -> None:
        self.rate = rate
        self.rates.append(rate)
        self.depths.append(depth)


class _Answer(NamedTuple):
    """The counters of one nsqd, and the time of its answer."""

    at: float
    counts: dict[Hashable, int]


class RateHistory:
    """The history of many counters that are read in rounds.

    A rate is that between two answers of the same nsqd: the answer of another nsqd may have come
    seconds earlier or later.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self._tracks: dict[Hashable, _Track] = {}
        self._answers: dict[str, _Answer] = {}  # the last answer of each nsqd
        self._times: deque[float] = deque(maxlen=POINTS)  # of the rounds

    def add_round(
        self, samples: Mapping[Hashable, Sample], times: Mapping[str, float], now: float = 0.0
    ) -> None:
        """Add a round. A counter that is not in it has a gap while an nsqd that had it is silent;
        else its history is dropped.

        Args:
            times: the time of each nsqd's answer, in seconds on a monotonic clock.
            now: the time of the round, in seconds since the epoch.
        """
        answers = {node: _Answer(at, {}) for node, at in times.items()}
        self._times.append(now)
        silent_nodes = self._answers.keys() - times.keys()
        silent = {
            key: track for key, track in self._tracks.items()
            if key not in samples and track.nodes & silent_nodes and any(
                depth is not None for depth in track.depths)
        }
        for track in silent.values():
            track.add(None, None)
        self._tracks = {
            **{key: self._tracks.get(key) or _Track() for key in samples}, **silent}
        for key, sample in samples.items():
            track = self._tracks[key]
            track.add(self._rate(key, sample.counts, times), sample.depth)
            track.nodes = set(sample.counts) | (track.nodes & silent_nodes)
            for node, count in sample.counts.items():
                if node in answers:
                    answers[node].counts[key] = count
        # A silent nsqd keeps its last answer: its next rate is the average.
        newest = max(times.values(), default=0.0)
        self._answers = {node: answer for node, answer in (self._answers | answers).items()
                         if newest - answer.at <= _KEEP}

    def _rate(
        self, key: Hashable, counts: Mapping[str, int], times: Mapping[str, float]
    ) -> float | None:
        total, known = 0.0, False
        for node, count in counts.items():
            last = self._answers.get(node)
            if last is None or node not in times or times[node] <= last.at:
                continue
            known = True
            # A new counter of a known nsqd began at 0, and so did every counter after a restart.
            before = last.counts.get(key, 0)
            came = count - before if count >= before else count
            total += came / (times[node] - last.at)
        return round(total, 2) if known else None

    def rate(self, key: Hashable) -> float | None:
        """Return the rate per second of the last round; None after the first one."""
        track = self._tracks.get(key)
        return None if track is None else track.rate

    def times(self, key: Hashable) -> list[float]:
        """Return the times of the last rates and depths, in seconds since the epoch."""
        track = self._tracks.get(key)
        return [] if track is None else list(self._times)[-len(track.rates):]

    def rates(self, key: Hashable) -> list[float | None]:
        """Return the last rates, oldest first; None: nothing was measured."""
        track = self._tracks.get(key)
        return [] if track is None else [
            None if rate is None else round(rate, 1) for rate in track.rates]

    def depths(self, key: Hashable) -> list[int | None]:
        """Return the last depths, oldest first; None: nothing was measured."""
        track = self._tracks.get(key)
        return [] if track is None else list(track.depths)


class Row(NamedTuple):
    """One topic, over all nsqds."""

    name: str
    depth: int  #: messages that wait, in the topic and in its channels
    in_flight: int
    deferred: int
    rate: float | None  #: published messages per second
    clients: int
    channels: int
    paused: int  #: 0 no, 1 some channel, 2 the topic
    nodes: int  #: nsqds that have it
    messages: int  #: since the nsqds' start


@dataclass(frozen=True)
class Overview:
    """All topics after one round."""

    serial: int  #: of the round; from 1
    begun: float  #: when it began, on the clock of ``time.monotonic()``
    at: float  #: when it ended
    rows: Mapping[str, Row]
    #: topic -> the round in which its row changed last
    changed: Mapping[str, int]
    #: The last round that removed a topic.
    removed_at: int
    nodes: tuple[Node, ...]
    #: Addresses of the nsqds that answered.
    answered: frozenset[str]
    #: Their numbers of topics.
    topic_counts: Mapping[str, int]
    failures: tuple[Failure, ...]

    @property
    def node_count(self) -> int:
        """How many nsqds are known, with those that are given or gone and do not answer."""
        return len({*(node.address for node in self.nodes),
                    *(each.address for each in self.failures if each.kind == "nsqd")})

    def since(self, serial: int) -> list[Row] | None:
        """Return the rows that changed after a round; None when a page needs all of them."""
        if not 0 < serial <= self.serial or self.removed_at > serial:
            return None
        return [row for name, row in self.rows.items() if self.changed[name] > serial]


TOPIC, CHANNEL = "topic", "channel"


def samples(stats: Mapping[Node, dict[str, Any]]) -> dict[Any, Sample]:
    """Return all topics and channels; a topic includes the depth and the clients of its channels.

    Keys are (TOPIC, topic, "") and (CHANNEL, topic, channel).
    """
    found: dict[Any, Sample] = {}
    for node, answer in stats.items():
        for topic in objects(answer, "topics"):
            name = text(topic, "topic_name")
            total = found.setdefault((TOPIC, name, ""), Sample())
            total.count(node.address, topic)
            total.add(topic)
            if topic.get("paused") is True:
                total.paused = 2
            for channel in objects(topic, "channels"):
                channel_name = text(channel, "channel_name")
                one = found.setdefault((CHANNEL, name, channel_name), Sample())
                one.count(node.address, channel)
                one.add(channel)
                total.add(channel)
                total.channels.add(channel_name)
                if channel.get("paused") is True:
                    total.paused = max(total.paused, 1)
    return found


def build_rows(
    taken: Mapping[Any, Sample], registered: Iterable[str], history: RateHistory
) -> dict[str, Row]:
    """Return the rows of all topics, sorted by name.

    Args:
        taken: of :func:`samples`.
        registered: topics that nsqlookupds list; those that no nsqd has get an empty row.
    """
    rows = {}
    for name in sorted({*registered, *(name for kind, name, _ in taken if kind == TOPIC)}):
        key = (TOPIC, name, "")
        one = taken.get(key) or Sample()
        rows[name] = Row(
            name, one.depth, one.in_flight, one.deferred, history.rate(key), one.clients,
            len(one.channels), one.paused, len(one.counts), sum(one.counts.values()))
    return rows
