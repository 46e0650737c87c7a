"""What becomes of the rows of a batch, by value."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest

from nsqclient import PublishNotSentError, PublishRejectedError, PublishUnknownError
from nsqclient.contrib.django.outbox.relay import (
    is_rejection, publish_batch, retry_delay, split,
)
from nsqclient.errors import ClosedError, InvalidMessageError

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
BAD = PublishRejectedError("too big", "E_BAD_MESSAGE")


@dataclass
class Row:
    pk: int
    topic: str = "t"
    key: str = ""
    failures: int = 0
    deliver_at: datetime | None = None

    @property
    def body(self) -> bytes:
        return b"%d" % self.pk


class Publisher:
    def __init__(self, is_connected=True, **errors) -> None:
        self.calls: list[tuple] = []
        self.is_connected = is_connected
        self.errors = {name.removeprefix("of_").encode(): exc for name, exc in errors.items()}

    def publish_many(self, topic, bodies, timeout):
        self._call(topic, bodies, None)

    def publish(self, topic, body, defer, timeout):
        self._call(topic, [body], defer)

    def _call(self, topic, bodies, defer):
        self.calls.append((topic, b",".join(bodies).decode(), defer))
        for body in bodies:
            if body in self.errors:
                raise self.errors[body]

    def ping(self, timeout):
        if not self.is_connected:
            raise PublishNotSentError("no nsqd")


def ids(rows) -> list[int]:
    return [row.pk for row in rows]


def run(publisher, *rows):
    return publish_batch(publisher, rows, NOW, 5.0)


def test_rows_of_a_topic_are_one_call_in_their_order():
    publisher = Publisher()
    result = run(publisher, Row(1, "b"), Row(2, "a"), Row(3, "b"))
    assert publisher.calls == [("b", "1,3", None), ("a", "2", None)]
    assert ids(result.stored) == [1, 3, 2] and not result.failed and result.outage is None


def test_deferred_rows_and_those_that_failed_are_published_alone():
    rows = [Row(1), Row(2, failures=1), Row(3, deliver_at=NOW + timedelta(seconds=9)),
            Row(4, deliver_at=NOW)]
    assert [(ids(part.rows), part.defer) for part in split(rows, NOW)] == [
        ([2], None), ([3], 9.0), ([1, 4], None)]


def test_a_rejected_row_alone_has_failed():
    result = run(Publisher(of_1=BAD), Row(1), Row(2, "u"))
    assert [(row.pk, exc) for row, exc in result.failed] == [(1, BAD)]
    assert ids(result.stored) == [2] and not result.is_ambiguous


@pytest.mark.parametrize("error", [BAD, InvalidMessageError("empty"), PublishUnknownError("lost")])
def test_a_rejected_call_of_several_rows_is_ambiguous(error):
    result = run(Publisher(of_2=error), Row(1), Row(2), Row(3, "u"))
    assert result.is_ambiguous and not result.failed and ids(result.stored) == [3]


def test_what_a_failed_call_has_stored_is_stored():
    """Its first MPUB was stored, and the second was rejected."""
    error = PublishRejectedError("too big", "E_BAD_MESSAGE")
    error.stored = 2
    result = run(Publisher(of_3=error), Row(1), Row(2), Row(3))
    assert ids(result.stored) == [1, 2] and ids(row for row, _ in result.failed) == [3]


def test_an_outage_leaves_the_rows_that_follow():
    error = PublishNotSentError("no nsqd")
    publisher = Publisher(of_2=error)
    result = run(publisher, Row(1, "a"), Row(2, "b"), Row(3, "c"))
    assert ids(result.stored) == [1] and result.outage is error and not result.failed
    assert len(publisher.calls) == 2


@pytest.mark.parametrize("is_connected", [True, False])
def test_an_unknown_outcome_is_an_outage_unless_an_nsqd_is_connected(is_connected):
    """nsqd's error to a large body can be lost when it closes the connection."""
    result = run(Publisher(is_connected, of_1=PublishUnknownError("lost")), Row(1))
    assert (result.outage is None) is is_connected and len(result.failed) == int(is_connected)


def test_rows_behind_a_failed_one_with_their_key_are_not_published():
    publisher = Publisher(of_1=BAD)
    result = run(publisher, Row(1, key="k", failures=2), Row(2, key="k"), Row(3, key="l"), Row(4),
                 Row(5, "u", key="k"))
    assert ids(result.stored) == [3, 4, 5] and ids(row for row, _ in result.failed) == [1]


def test_no_call_begins_when_the_time_is_over():
    publisher = Publisher()
    result = publish_batch(publisher, [Row(1)], NOW, 0.0)
    assert publisher.calls == [] and not result.stored and result.outage is None


@pytest.mark.parametrize(("error", "expected"), [
    (BAD, True), (InvalidMessageError("empty"), True),
    (PublishRejectedError("disk full", "E_PUB_FAILED", retryable=True), False),
    (PublishNotSentError("no", "E_AUTH_FAILED", retryable=False), False),
    (PublishUnknownError("lost"), False), (ClosedError("closed"), False),
])
def test_a_rejection_is_about_the_message(error, expected):
    assert is_rejection(error) is expected


def test_the_delay_between_attempts_doubles_up_to_five_minutes():
    assert [retry_delay(n) for n in (1, 2, 3, 9, 10, 1000)] == [1, 2, 4, 256, 300, 300]
