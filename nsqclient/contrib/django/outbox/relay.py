"""``Relay``: publishes the rows of the outbox and deletes them, until it is stopped.

A row is deleted after nsqd has stored its message, so a crash in between causes a duplicate.

On PostgreSQL several relays can share the table. Each locks its rows (``FOR UPDATE SKIP LOCKED``)
in a transaction that ends when they are published. Only the relay with an advisory lock publishes
rows with a key, in their order. On other databases only one relay may run. It publishes outside of
a transaction, which would lock out all other processes on SQLite.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

import django.db
from django.db import connections, transaction
from django.db.models import Count, Min
from django.utils import timezone

from nsqclient.contrib.django.outbox.models import OutboxMessage, due_messages
from nsqclient.display import counted, printable
from nsqclient.errors import (
    LocalProtocolError, NSQError, PublishNotSentError, PublishRejectedError, PublishUnknownError,
)
from nsqclient.log_records import log_fields
from nsqclient.partitioned.producer import Producer
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.delays import reconnect_delay

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: Seconds until the second attempt with a failed message; doubled with each failure.
_RETRY_DELAY = 1.0
_MAX_RETRY_DELAY = 300.0
_PING_TIMEOUT = 1.0


class Row(Protocol):
    pk: int
    topic: str
    key: str
    body: bytes
    deliver_at: datetime | None
    failures: int


class Part(NamedTuple):
    """Rows of one topic for one call. A deferred row gets a call to itself."""

    topic: str
    rows: list[Row]
    defer: float | None = None  #: seconds


@dataclass
class BatchResult:
    """The outcome of each row. A row in no list waits for the next batch."""

    stored: list[Row] = field(default_factory=list)
    #: Rows that caused a failure, each with the reason.
    failed: list[tuple[Row, NSQError]] = field(default_factory=list)
    #: One of several rows failed, and the error does not say which.
    is_ambiguous: bool = False
    #: Why no message can be published now; None if messages can be published.
    outage: NSQError | None = None


def split(rows: Sequence[Row], now: datetime) -> list[Part]:
    """Divide rows into calls. Pure.

    A row that has failed before is published alone, so that no other row fails with it, and first,
    because later rows with its key wait for it.
    """
    single: list[Part] = []
    plain: dict[str, list[Row]] = {}
    for row in rows:
        defer = None if row.deliver_at is None else (row.deliver_at - now).total_seconds()
        if defer is not None and defer > 0:
            single.append(Part(row.topic, [row], defer))
        elif row.failures:
            single.append(Part(row.topic, [row]))
        else:
            plain.setdefault(row.topic, []).append(row)
    return [*single, *(Part(topic, group) for topic, group in plain.items())]


def retry_delay(failures: int) -> float:
    return min(_RETRY_DELAY * 2.0 ** min(failures - 1, 30), _MAX_RETRY_DELAY)


def is_rejection(error: NSQError) -> bool:
    if isinstance(error, PublishRejectedError):
        return not (isinstance(error, PublishNotSentError) or error.retryable)
    return isinstance(error, LocalProtocolError)


def publish_batch(
    producer: Producer, rows: Sequence[Row], now: datetime, timeout: float
) -> BatchResult:
    """Publish rows, in order within each topic. Blocks: at most twice ``timeout``.

    Args:
        timeout: seconds for each call, and until the last call starts.
    """
    result = BatchResult()
    deadline = Deadline(timeout)
    held: set[tuple[str, str]] = set()  # topic and key of rows that failed
    for part in split(rows, now):
        part = part._replace(
            rows=[row for row in part.rows if not row.key or (row.topic, row.key) not in held])
        if not part.rows:
            continue
        if deadline.expired():
            break
        try:
            bodies = [bytes(row.body) for row in part.rows]  # psycopg2 has memoryviews
            if part.defer is None:
                producer.publish_many(part.topic, bodies, timeout=timeout)
            else:
                producer.publish(part.topic, bodies[0], defer=part.defer, timeout=timeout)
        except NSQError as exc:
            stored = getattr(exc, "stored", 0)
            result.stored += part.rows[:stored]
            rest = part.rows[stored:]
            if not is_rejection(exc) and not _may_be_of_message(producer, exc):
                result.outage = exc
                break
            if len(rest) > 1:
                result.is_ambiguous = True
                continue
            result.failed.append((rest[0], exc))
            held.add((rest[0].topic, rest[0].key))
        else:
            result.stored += part.rows
    return result


def _may_be_of_message(producer: Producer, error: NSQError) -> bool:
    """True if the message may be the reason why the outcome is unknown.

    nsqd closes the connection when it rejects a large body, and its error can be lost.
    """
    if not isinstance(error, PublishUnknownError):
        return False
    try:
        producer.ping(timeout=_PING_TIMEOUT)
    except NSQError:
        return False
    return True


logger: logging.Logger = logging.getLogger("nsqclient.outbox")

#: The advisory lock of the relay that publishes rows with a key ("nsq_outb" as a number).
_ORDER_LOCK = 0x6E73715F6F757462
#: PostgreSQL ends the transaction of a frozen relay after these seconds and twice the publish
#: timeout, so that other relays get its rows.
_FROZEN = 30.0
_MAX_PAUSE = 10.0
_MEASURE_INTERVAL = 5.0
_LONGEST_ERROR = 1000


class NSQOutageError(Exception):
    """No message can be published at present; see ``__cause__``."""


class Waiting(NamedTuple):
    messages: int = 0
    failed: int = 0  #: rows that wait for another attempt
    age: float = 0.0  #: age of the oldest message, in seconds


class OutboxCounters:
    """The counters of one relay. Only the relay writes them; other threads may read them."""

    def __init__(self) -> None:
        self.published: Counter[str] = Counter()  #: topic -> messages
        self.failed: Counter[str] = Counter()  #: topic -> failed attempts
        self.failures = 0  #: batches that failed as a whole
        self.waiting: Waiting = Waiting()

    def measure(self, using: str) -> None:
        found = OutboxMessage.objects.using(using).aggregate(
            messages=Count("pk"), failed=Count("retry_at"), oldest=Min("created_at"))
        age = 0.0
        if found["oldest"] is not None:
            age = max(0.0, (timezone.now() - found["oldest"]).total_seconds())
        self.waiting = Waiting(found["messages"], found["failed"], age)

    def collect(self) -> Iterator[Metric]:
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


class Relay:
    """Publishes the outbox of one database. Threads: one.

    Args:
        using: alias of the database.
        producer: publishes; the caller closes it.
        batch_size: maximum number of rows in a transaction.
        interval: seconds between two queries of an empty table.
        measures: keep the gauges of ``counters`` up to date.
    """

    def __init__(
        self, using: str, producer: Producer, *, batch_size: int = 100, interval: float = 0.5,
        measures: bool = False,
    ) -> None:
        self.counters: OutboxCounters = OutboxCounters()
        #: Why the last batch failed; empty if it did not fail.
        self.failure: str = ""
        self._using = using
        self._producer = producer
        self._batch_size = batch_size
        self._interval = interval
        self._measures = measures
        self._limit = batch_size  # lower after an ambiguous error
        self._shares_table = connections[using].vendor == "postgresql"
        self._failures = 0
        self._next_measurement = Deadline(0.0)

    def run(self, wait: Callable[[float], bool]) -> None:
        """Publish until ``wait(seconds)`` returns True and the current batch is over."""
        pause = 0.0
        while not wait(pause):
            pause = self.step()

    def step(self) -> float:
        """Publish one batch; return the seconds to wait before the next. Logs failures."""
        try:
            if self._measures and self._next_measurement.expired():
                self.counters.measure(self._using)
                self._next_measurement = Deadline(_MEASURE_INTERVAL)
            is_more = self.publish_batch()
        except NSQOutageError as exc:
            return self._pause_after(f"cannot publish: {exc}")
        except django.db.Error as exc:
            # The next query opens a new connection.
            connections[self._using].close()
            return self._pause_after(f"the database failed: {exc}")
        if self._failures:
            logger.info("outbox of %s: working again after %d failures", self._using,
                        self._failures)
            self._failures, self.failure = 0, ""
        return 0.0 if is_more else self._interval

    def _pause_after(self, reason: str) -> float:
        self.failure = printable(" ".join(reason.split()))  # psycopg's texts have several lines
        self._failures += 1
        self.counters.failures += 1
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        logger.log(level, "outbox of %s: %s; trying again, the messages stay in the table",
                   self._using, self.failure)
        return reconnect_delay(self._failures, _MAX_PAUSE, random.Random())

    def publish_batch(self) -> bool:
        """Publish rows and delete them; return True if there may be more.

        Raises:
            NSQOutageError: no message can be published now; the published rows are deleted.
            django.db.Error: the database failed; messages may have been published.
        """
        timeout = self._producer.config.publish_timeout
        limit = self._limit
        with self._claim(limit, timeout) as rows:
            result = publish_batch(self._producer, rows, timezone.now(), timeout)
            self.counters.published.update(row.topic for row in result.stored)
            if result.stored:
                table = OutboxMessage.objects.using(self._using)
                table.filter(pk__in=[row.pk for row in result.stored]).delete()
            for row, error in result.failed:
                self._note_failure(row, error)
        if result.outage is not None:
            raise NSQOutageError(str(result.outage)) from result.outage
        if result.is_ambiguous:
            self._limit = 1
        elif rows:
            self._limit = min(2 * limit, self._batch_size)
        return len(rows) == limit or len(rows) > len(result.stored) + len(result.failed)

    @contextmanager
    def _claim(self, limit: int, timeout: float) -> Iterator[list[Row]]:
        """Yield rows that no other relay publishes before the block ends."""
        rows = due_messages(self._using, timezone.now())
        if not self._shares_table:
            yield list(rows[:limit])
            return
        connection = connections[self._using]
        is_outermost = not connection.in_atomic_block  # False in an application's tests
        with transaction.atomic(using=self._using):
            with connection.cursor() as cursor:
                if is_outermost:
                    # Rows that another relay deletes before this one has the lock must not be seen.
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                frozen_after = min(round((2 * timeout + _FROZEN) * 1000), 2**31 - 1)
                cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = {frozen_after}")
                cursor.execute(f"SELECT pg_try_advisory_xact_lock({_ORDER_LOCK})")
                [holds_order] = cursor.fetchone()
            if not holds_order:
                rows = rows.filter(key="")
            yield list(rows.select_for_update(skip_locked=True)[:limit])

    def _note_failure(self, row: Row, error: NSQError) -> None:
        failures = row.failures + 1
        delay = retry_delay(failures)
        OutboxMessage.objects.using(self._using).filter(pk=row.pk).update(
            failures=failures, error=str(error)[:_LONGEST_ERROR],
            retry_at=timezone.now() + timedelta(seconds=delay))
        self.counters.failed[row.topic] += 1
        logger.error("outbox of %s: message %d to %s failed, next attempt in %g s: %s",
                     self._using, row.pk, row.topic, delay, error,
                     extra=log_fields(topic=row.topic))


def publish_all(relay: Relay) -> str:
    """Publish until the table is empty or a batch fails; return why it failed. Blocks."""
    while not relay.failure:
        if relay.step():
            break
    failed = sum(relay.counters.failed.values())
    if failed and not relay.failure:
        return f"failed: {counted(failed, 'message')}; the column error of the table says why"
    return relay.failure
