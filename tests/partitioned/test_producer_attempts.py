"""PartitionAttempts by value: outcomes of attempts, and the error of the publish."""

import pytest

from nsqclient.errors import (
    ClosedError, ConnectError, PartitionError, PublishRejectedError, PublishUnknownError,
    ServerError,
)
from nsqclient.protocol.partitioned.lookup_table import TopicMeta, TopicRoutes
from nsqclient.protocol.partitioned.sharding import RoundRobin, murmur3
from nsqclient.partitioned.attempts import PartitionAttempts

NSQD = "n:1"
LOST = ConnectError(NSQD, "lost")
REFUSAL = ServerError("E_BAD_MESSAGE", "no")


def choose(attempts, routes, **options):
    return attempts.choose(routes, lambda: None, murmur3, RoundRobin(), **options)


def after_a_lost_answer(**options):
    attempts = PartitionAttempts("t", True, **options)
    attempts.on_partition_failure(LOST, NSQD, 0)
    return attempts


def test_a_key_without_a_number_of_partitions_waits_for_other_answers():
    routes = TopicRoutes(partitions={0: NSQD})
    attempts = PartitionAttempts("t", True, key="k")
    assert choose(attempts, routes, may_learn_more=True) is None
    assert "how many partitions" in str(attempts.final_error()) and attempts.needs_lookup
    with pytest.raises(PartitionError, match="how many partitions"):
        choose(attempts, routes)


def test_a_refusal_is_raised_with_its_code():
    attempts = PartitionAttempts("t", True)
    with pytest.raises(PublishRejectedError) as caught:
        attempts.on_partition_failure(REFUSAL, NSQD, 0)
    assert caught.value.code == "E_BAD_MESSAGE"


def test_a_refusal_after_a_lost_answer_is_unknown():
    with pytest.raises(PublishUnknownError, match="E_BAD_MESSAGE"):
        after_a_lost_answer().on_partition_failure(REFUSAL, NSQD, 0)


def test_a_closed_producer_is_said_unless_an_answer_was_lost():
    error = ClosedError("closed")
    with pytest.raises(ClosedError):
        PartitionAttempts("t", True).on_partition_failure(error, NSQD, 0)
    with pytest.raises(PublishUnknownError, match="closed"):
        after_a_lost_answer().on_partition_failure(error, NSQD, 0)


def test_one_of_several_messages_may_be_at_fault():
    for messages, expected in ((1, False), (2, True)):
        attempts = PartitionAttempts("t", True, messages=messages)
        with pytest.raises(PublishRejectedError):
            attempts.on_partition_failure(REFUSAL, NSQD, 0)
        assert attempts.is_one_at_fault is expected


@pytest.mark.parametrize(("options", "routes"), [
    ({}, TopicRoutes(partitions={0: NSQD}, meta=TopicMeta(1, ordered=True))),
    ({"has_header": True}, TopicRoutes(partitions={0: NSQD}, meta=TopicMeta(1))),
    ({"key": "k"}, TopicRoutes(partitions={0: NSQD})),
    ({"partition": 1}, TopicRoutes(partitions={0: NSQD}, meta=TopicMeta(1))),
])
def test_a_topic_that_does_not_take_the_publish_any_more_is_unknown_too(options, routes):
    """When the answer was lost, the topic may have had another kind."""
    with pytest.raises(PartitionError):
        choose(PartitionAttempts("t", True, **options), routes)
    with pytest.raises(PublishUnknownError):
        choose(after_a_lost_answer(**options), routes)
