"""PublishAttempts by value: what attempts led to, and what the publish fails with."""

from __future__ import annotations

import pytest

from nsqclient.errors import (
    ClosedError,
    ConnectError,
    InvalidMessageError,
    PartitionError,
    PublishRejectedError,
    PublishUnknownError,
    ServerError,
)
from nsqclient.partitioned.lookup_table import TopicMeta, TopicRoutes
from nsqclient.partitioned.sharding import RoundRobin, murmur3
from nsqclient.producer.outcome import PublishOutcome
from nsqclient.partitioned.producer_attempts import PublishAttempts

NSQD = "n:1"
LOST = ConnectError(NSQD, "lost")
REFUSAL = ServerError("E_BAD_MESSAGE", "no")


def choose(attempts, routes, **options):
    return attempts.choose(routes, lambda: None, murmur3, RoundRobin(), **options)


def after_a_lost_answer(**options):
    attempts = PublishAttempts("t", **options)
    attempts.on_outcome(PublishOutcome.UNKNOWN, LOST, NSQD, 0, True)
    return attempts


def test_a_key_without_a_number_of_partitions_waits_for_other_answers():
    """The first nsqlookupd may have no coordinator."""
    routes = TopicRoutes(partitions={0: NSQD})
    attempts = PublishAttempts("t", key="k")
    assert choose(attempts, routes, may_learn_more=True) is None
    assert "how many partitions" in str(attempts.final_error()) and attempts.needs_lookup
    with pytest.raises(PartitionError, match="how many partitions"):
        choose(attempts, routes)


def test_a_refusal_is_raised_with_its_code():
    """No attempt before it can be stored."""
    attempts = PublishAttempts("t")
    with pytest.raises(PublishRejectedError) as caught:
        attempts.on_outcome(PublishOutcome.REJECTED, REFUSAL, NSQD, 0, True)
    assert caught.value.code == "E_BAD_MESSAGE"


def test_a_refusal_after_a_lost_answer_is_unknown():
    """The attempt before it may be stored."""
    with pytest.raises(PublishUnknownError, match="E_BAD_MESSAGE"):
        after_a_lost_answer().on_outcome(PublishOutcome.REJECTED, REFUSAL, NSQD, 0, True)


@pytest.mark.parametrize("error", [
    ClosedError("closed"), PartitionError("no"), InvalidMessageError("no"),
])
def test_what_prevents_the_next_attempt_is_raised_unless_an_answer_was_lost(error):
    """After a lost answer the outcome is unknown."""
    with pytest.raises(type(error)):
        PublishAttempts("t").on_not_sent(0, error)
    with pytest.raises(PublishUnknownError, match=str(error)):
        after_a_lost_answer().on_not_sent(0, error)


@pytest.mark.parametrize(("options", "routes"), [
    ({}, TopicRoutes(partitions={0: NSQD}, meta=TopicMeta(1, ordered=True))),
    ({"has_header": True}, TopicRoutes(partitions={0: NSQD}, meta=TopicMeta(1))),
    ({"key": "k"}, TopicRoutes(partitions={0: NSQD})),
    ({"partition": 1}, TopicRoutes(partitions={0: NSQD}, meta=TopicMeta(1))),
])
def test_a_topic_that_does_not_take_the_publish_any_more_is_unknown_too(options, routes):
    """It may have been another topic of that name when the answer was lost."""
    with pytest.raises(PartitionError):
        choose(PublishAttempts("t", **options), routes)
    with pytest.raises(PublishUnknownError):
        choose(after_a_lost_answer(**options), routes)
