"""The numbers of a relay: what it published, and what waits in the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import Count, Min
from django.utils import timezone

from nsqclient.contrib.django.outbox.models import OutboxMessage

if TYPE_CHECKING:
    from prometheus_client.core import Metric


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
        self.waiting: Waiting = Waiting()

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

    def collect(self) -> Iterator[Metric]:
        """Return everything as metrics. No network. Needs ``prometheus_client``."""
        from nsqclient.metrics.prometheus import counter, gauge

        def by_topic(name: str, text: str, counts: Counter[str]) -> Metric:
            return counter(name, text, ("topic",),
                           [((topic,), count) for topic, count in dict(counts).items()])

        waiting = self.waiting
        yield by_topic("nsq_outbox_published", "messages published by this relay", self.published)
        yield by_topic("nsq_outbox_failed", "attempts that failed because of the message",
                       self.failed)
        yield counter("nsq_outbox_failures", "failures of nsqd or the database", (),
                      [((), self.failures)])
        yield gauge("nsq_outbox_waiting", "messages in the outbox table", (),
                    [((), waiting.messages)])
        yield gauge("nsq_outbox_waiting_failed", "messages in the outbox table that have failed",
                    (), [((), waiting.failed)])
        yield gauge("nsq_outbox_oldest_seconds",
                    "age in seconds of the oldest message in the outbox table", (),
                    [((), waiting.age)])
