"""The numbers of a relay: what it published, and what waits in the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import Count, Min
from django.utils import timezone

from nsqclient.contrib.django.outbox.models import OutboxMessage
from nsqclient.contrib.metrics_registry import Family, MetricsRegistry

_TOPIC = ("topic",)


class Waiting(NamedTuple):
    """What is in the table."""

    messages: int = 0
    failed: int = 0  #: those that have failed and wait for their next attempt
    age: float = 0.0  #: of the oldest, in seconds


class OutboxCounters:
    """Counters of one relay.

    Threads: the relay's writes; others may read, and see each number as it was a moment ago.
    """

    def __init__(self) -> None:
        self.published: Counter[str] = Counter()  #: by topic, as below
        self.failed: Counter[str] = Counter()
        self.failures = 0  #: batches that failed as a whole
        self.waiting = Waiting()

    def count_published(self, topics: Iterable[str]) -> None:
        """Count messages that nsqd has stored."""
        self.published.update(topics)

    def count_failed(self, topic: str) -> None:
        """Count a message that failed for its own sake."""
        self.failed[topic] += 1

    def measure(self, using: str) -> None:
        """Ask the database what waits. Blocks: for one query."""
        found = OutboxMessage.objects.using(using).aggregate(
            messages=Count("pk"), failed=Count("retry_at"), oldest=Min("created_at"))
        age = 0.0
        if found["oldest"] is not None:
            age = max(0.0, (timezone.now() - found["oldest"]).total_seconds())
        self.waiting = Waiting(found["messages"], found["failed"], age)

    def families(self) -> list[Family]:
        """Return everything as metrics. No network."""
        waiting = self.waiting

        def by_topic(name: str, text: str, counter: Counter[str]) -> Family:
            return Family(name, "counter", text, _TOPIC,
                          [((topic,), count) for topic, count in dict(counter).items()])

        def single(name: str, kind: str, text: str, value: float) -> Family:
            return Family(name, kind, text, (), [((), value)])

        return [
            by_topic("nsq_outbox_published", "messages published by this relay",
                     self.published),
            by_topic("nsq_outbox_failed", "attempts that failed because of the message",
                     self.failed),
            single("nsq_outbox_failures", "counter",
                   "failures of nsqd or the database", self.failures),
            single("nsq_outbox_waiting", "gauge", "messages in the outbox table", waiting.messages),
            single("nsq_outbox_waiting_failed", "gauge",
                   "messages in the outbox table that have failed", waiting.failed),
            single("nsq_outbox_oldest_seconds", "gauge",
                   "age in seconds of the oldest message in the outbox table", waiting.age),
        ]


class OutboxMetrics(MetricsRegistry):
    """The numbers of a relay and of its producer."""

    def __init__(self, counters: OutboxCounters) -> None:
        super().__init__()
        self._counters = counters

    def families(self) -> list[Family]:
        """Return a snapshot of everything that has a sample. No network."""
        found = [*self._counters.families(), *super().families()]
        return [family for family in found if family.samples]
