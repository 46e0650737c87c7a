"""``publish_batch``: publishes rows of the outbox, and says what became of each.

Knows neither the database nor the relay's loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from nsqclient.errors import (
    LocalProtocolError, NSQError, PublishNotSentError, PublishRejectedError, PublishUnknownError,
)
from nsqclient.producer.producer import Producer
from nsqclient.runtime.deadline import Deadline

#: Seconds until the second attempt with a message that failed; doubled with each failure.
_RETRY_DELAY = 1.0
_MAX_RETRY_DELAY = 300.0
#: Seconds to find out whether an nsqd is connected.
_PING_TIMEOUT = 1.0


class Row(Protocol):
    """What a batch needs of an ``OutboxMessage``."""

    pk: int
    topic: str
    key: str
    body: bytes
    deliver_at: datetime | None
    failures: int


class Part(NamedTuple):
    """Rows of one topic that are published with one call; deferred ones alone."""

    topic: str
    rows: list[Row]
    defer: float | None = None  #: seconds


@dataclass
class BatchResult:
    """What became of the rows. Rows that are in no list wait for the next batch."""

    stored: list[Row] = field(default_factory=list)
    #: Rows that failed for their own sake, each with the reason.
    failed: list[tuple[Row, NSQError]] = field(default_factory=list)
    #: One of several rows failed, and the error does not say which: publish fewer at once.
    is_ambiguous: bool = False
    #: Why nothing can be published now, whatever the message; None: it can.
    outage: NSQError | None = None


def split(rows: Sequence[Row], now: datetime) -> list[Part]:
    """Return the calls that publish these rows, in order. Pure.

    A row that has failed before is published alone, ahead of the others of its topic, so that it
    does not fail them again. It has no earlier row of its key behind it, since it held these back.
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
    """Return the seconds until the next attempt, after so many failures. Pure."""
    return min(_RETRY_DELAY * 2.0 ** min(failures - 1, 30), _MAX_RETRY_DELAY)


def is_rejection(error: NSQError) -> bool:
    """Return whether a message failed for its own sake: nsqd would refuse it again. Pure."""
    if isinstance(error, PublishRejectedError):
        return not (isinstance(error, PublishNotSentError) or error.retryable)
    return isinstance(error, LocalProtocolError)


def publish_batch(
    producer: Producer, rows: Sequence[Row], now: datetime, timeout: float
) -> BatchResult:
    """Publish rows, those of a topic in their order.

    Args:
        timeout: seconds for each call; after as many none is begun.

    Blocks: twice ``timeout`` at most.
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
    """Return whether a publish without an outcome may be due to its message.

    nsqd closes the connection when it refuses a large body, and its error can be lost with it.
    """
    if not isinstance(error, PublishUnknownError):
        return False
    try:
        producer.ping(timeout=_PING_TIMEOUT)
    except NSQError:
        return False
    return True
