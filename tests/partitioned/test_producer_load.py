"""PartitionLoad by value: busy partitions, unanswered publishes, and permitted batches."""

import contextlib

import pytest

from nsqclient.partitioned import attempts as producer_load
from nsqclient.partitioned.attempts import PartitionLoad

NSQD = "n:1"


@pytest.fixture
def load():
    """A PartitionLoad, and an exit stack for attempts under way."""
    with contextlib.ExitStack() as stack:
        load = PartitionLoad()
        load.begin = lambda name, nsqd=NSQD, is_async=True: stack.enter_context(
            load.attempt(nsqd, name, is_async))
        yield load


def test_a_partition_is_unanswered_while_it_is_published_to(load):
    with load.attempt(NSQD, "t 0", False):
        assert load.unanswered(60.0) == set() and load.unanswered(0.0) == {"t 0"}
    assert load.unanswered(0.0) == set()


def test_a_partition_that_left_a_publish_unanswered_is_avoided_until_it_answers(load):
    load.note("t 0", False, 1.0)
    assert load.unanswered(60.0) == {"t 0"}
    load.note("t 0", True, 1.0)
    assert load.unanswered(60.0) == set()


def test_one_nsqd_has_a_part_of_the_threads(load, monkeypatch):
    monkeypatch.setattr(producer_load, "MAX_AT_ONCE", 2)
    load.begin("t 0")
    load.begin("t 1", is_async=False)
    load.begin("t 2", nsqd="n:2")
    assert load.may_begin(NSQD, "t 3")
    load.begin("t 3")
    assert not load.may_begin(NSQD, "t 4") and load.may_begin("n:2", "t 4")


def test_partitions_that_hang_have_a_part_of_that(load, monkeypatch):
    monkeypatch.setattr(producer_load, "_MAX_SUSPECT", 1)
    for name in ("t 0", "t 1"):
        load.note(name, False, 1.0)
    assert load.may_begin(NSQD, "t 0")
    load.begin("t 0")
    assert not load.may_begin(NSQD, "t 1") and load.may_begin(NSQD, "t 2")
