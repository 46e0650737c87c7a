"""``Overview``: the numbers of every topic at one moment; ``RateHistory``: their rates. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqclient.admin.aggregate import Values, number, objects, text
from nsqclient.cluster.ask_all import ServerFailure
from nsqclient.cluster.cluster import Node

POINTS = 90
#: Number of points used to estimate the time until a channel is empty.
_TREND = 15
#: Seconds for which the counters of a silent nsqd are kept.
_KEEP = 600.0


class Counts(NamedTuple):
    """Counters of a topic or channel on one nsqd, since that nsqd started."""

    came: int = 0  #: messages that it received
    left: int = 0  #: messages of its channels that were finished


@dataclass
class Sample:
    """A topic or channel at one moment, over all nsqds."""

    counts: dict[str, Counts] = field(default_factory=dict)  #: nsqd -> its counters
    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    clients: int = 0
    paused: int = 0  #: 0: not paused, 1: a channel of the topic, 2: the topic
    channels: set[str] = field(default_factory=set)

    def add(self, values: Values) -> None:
        self.depth += number(values, "depth")
        self.in_flight += number(values, "in_flight_count")
        self.deferred += number(values, "deferred_count")
        self.clients += number(values, "client_count")

    def count(self, node: str, came: int, left: int) -> None:
        known = self.counts.get(node, Counts())
        self.counts[node] = Counts(known.came + came, known.left + left)


class _Point(NamedTuple):
    """A topic or channel in one round; None: nothing was measured."""

    rate: float | None = None
    out_rate: float | None = None
    depth: int | None = None


class _Answer(NamedTuple):
    at: float
    counts: dict[Hashable, Counts]


class History(NamedTuple):
    """The last points of a topic or channel, oldest first; None: nothing was measured."""

    times: list[float] = []  #: seconds since the epoch
    rates: list[float | None] = []  #: received messages per second
    out_rates: list[float | None] = []  #: finished messages per second
    depths: list[int | None] = []

    @property
    def rate(self) -> float | None:
        """The last rate; None after the first round."""
        return self.rates[-1] if self.rates else None

    @property
    def out_rate(self) -> float | None:
        return self.out_rates[-1] if self.out_rates else None

    @property
    def seconds_to_empty(self) -> int | None:
        """Seconds until the depth is 0 at its recent rate; None if it does not fall."""
        points = [(time, depth) for time, depth in zip(self.times, self.depths)
                  if depth is not None][-_TREND:]
        if len(points) < 2:
            return None
        (begun, before), (now, depth) = points[0], points[-1]
        fallen = before - depth
        return round(depth * (now - begun) / fallen) if depth and fallen > 0 else None


class RateHistory:
    """The history of counters that are read in rounds.

    A rate is computed from two answers of the same nsqd, because the answers of different nsqds may
    be seconds apart.
    """

    def __init__(self) -> None:
        self._points: dict[Hashable, deque[_Point]] = {}
        self._answers: dict[str, _Answer] = {}  # the last answer of each nsqd
        self._times: deque[float] = deque(maxlen=POINTS)  # times of the rounds

    def add_round(
        self, samples: Mapping[Hashable, Sample], times: Mapping[str, float], now: float = 0.0
    ) -> None:
        """Add a round; a counter that is not in it has a gap.

        Args:
            times: of each nsqd's answer, in seconds on a monotonic clock.
            now: of the round, in seconds since the epoch.
        """
        self._times.append(now)
        for key in self._points.keys() - samples.keys():
            points = self._points[key]
            points.append(_Point())
            if all(point.depth is None for point in points):
                del self._points[key]
        answers = {node: _Answer(at, {}) for node, at in times.items()}
        for key, sample in samples.items():
            points = self._points.setdefault(key, deque(maxlen=POINTS))
            points.append(_Point(*self._rates(key, sample.counts, times), sample.depth))
            for node, counts in sample.counts.items():
                if node in answers:
                    answers[node].counts[key] = counts
        # A silent nsqd keeps its last answer: its next rate is the average.
        newest = max(times.values(), default=0.0)
        self._answers = {node: answer for node, answer in (self._answers | answers).items()
                         if newest - answer.at <= _KEEP}

    def _rates(
        self, key: Hashable, counts: Mapping[str, Counts], times: Mapping[str, float]
    ) -> tuple[float | None, float | None]:
        came = left = 0.0
        known = False
        for node, count in counts.items():
            last = self._answers.get(node)
            if last is None or node not in times or times[node] <= last.at:
                continue
            known = True
            seconds = times[node] - last.at
            # A new counter of a known nsqd began at 0.
            before = last.counts.get(key, Counts())
            if count.came < before.came:
                came += count.came / seconds  # nsqd was restarted, and counts from 0
            else:
                came += (count.came - before.came) / seconds
                left += max(0, count.left - before.left) / seconds
        return (round(came, 2), round(left, 2)) if known else (None, None)

    def of(self, key: Hashable) -> History:
        points = self._points.get(key)
        if not points:
            return History()
        rates, out_rates, depths = map(list, zip(*points))
        return History(list(self._times)[-len(points):], rates, out_rates, depths)


class Row(NamedTuple):
    """One topic, over all nsqds."""

    name: str
    depth: int  #: messages that wait, in the topic and in its channels
    in_flight: int
    deferred: int
    rate: float | None  #: published messages per second
    clients: int
    channels: int
    paused: int  #: 0: not paused, 1: a channel, 2: the topic
    nodes: int  #: number of nsqds that have the topic
    messages: int  #: published since the nsqds started
    out_rate: float | None  #: finished messages per second
    empty_in: int | None  #: seconds until it is empty; None: its depth does not fall
    unserved: int  #: messages that wait without a consumer
    trend: list[float | None]  #: the last rates, oldest first; empty: nothing came


@dataclass(frozen=True)
class Overview:
    serial: int = 0  #: number of the round, from 1
    rows: tuple[Row, ...] = ()
    nodes: tuple[Node, ...] = ()
    answered: frozenset[str] = frozenset()
    topic_counts: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[ServerFailure, ...] = ()

    @property
    def node_count(self) -> int:
        """The number of known nsqds, including silent ones."""
        return len({*(node.address for node in self.nodes),
                    *(each.address for each in self.failures if each.kind == "nsqd")})


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
            total.count(node.address, number(topic, "message_count"), 0)
            total.add(topic)
            if topic.get("paused") is True:
                total.paused = 2
            for channel in objects(topic, "channels"):
                channel_name = text(channel, "channel_name")
                one = found.setdefault((CHANNEL, name, channel_name), Sample())
                came = number(channel, "message_count")
                left = came - sum(number(channel, each) for each in _UNFINISHED)
                one.count(node.address, came, left)
                total.count(node.address, 0, left)
                one.add(channel)
                total.add(channel)
                total.channels.add(channel_name)
                if channel.get("paused") is True:
                    total.paused = max(total.paused, 1)
    return found


_UNFINISHED = ("depth", "in_flight_count", "deferred_count")


def build_rows(
    taken: Mapping[Any, Sample], registered: Iterable[str], history: RateHistory
) -> tuple[Row, ...]:
    """Return the rows of all topics, sorted by name; ``registered``: topics of nsqlookupds."""
    rows = []
    for name in sorted({*registered, *(name for kind, name, _ in taken if kind == TOPIC)}):
        key = (TOPIC, name, "")
        one, seen = taken.get(key) or Sample(), history.of(key)
        channels = [taken[CHANNEL, name, each] for each in one.channels]
        unserved = sum(each.depth for each in channels if not each.clients) if channels \
            else one.depth
        rows.append(Row(
            name, one.depth, one.in_flight, one.deferred, seen.rate, one.clients,
            len(one.channels), one.paused, len(one.counts),
            sum(counts.came for counts in one.counts.values()),
            seen.out_rate, seen.seconds_to_empty, unserved,
            seen.rates if any(seen.rates) else []))
    return tuple(rows)
