"""PartitionPipeline on parts that a test controls: no socket, no thread."""

from __future__ import annotations

import time

import pytest

from nsqclient.errors import PublishNotSentError, PublishUnknownError
from nsqclient.partitions.lookup_table import TopicMeta, TopicRoutes
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.partitioned.pipeline import PartitionPipeline
from nsqclient.producer.partitioned.producer import PublishOptions

WAIT = 60.0


class FakeProducer:
    """Stands in for PartitionedProducer, and for its MetadataCache."""

    def __init__(self):
        self.metadata = self
        self.routes = TopicRoutes(partitions={0: "n:1"}, meta=TopicMeta(1), is_partitioned=True)
        self.refreshed = []

    def peek(self, topic):
        return self.routes

    def refresh(self, topic):
        self.refreshed.append(topic)

    def is_traced(self, topic):
        return False

    def choose(self, attempts, routes, busy=()):
        return next(iter(routes.partitions), None)

    def partition_of(self, key, partition_num):
        return 0

    def pause_before_next(self, attempts, left):
        return WAIT


class FakeDelegate:
    """Keeps what the pipeline reports."""

    def __init__(self):
        self.failed = []

    def on_failed(self, item, error):
        item.fail(error, lambda *_: None)
        self.failed.append((item, error))

    def on_retried(self, messages):
        pass

    def wake(self):
        pass


class FakeNodes:
    """Stands in for NodePool: no nsqd is connected."""

    def try_connect(self, address, name, token, asked):
        return None

    def end_lease(self, token):
        pass


@pytest.fixture
def producer():
    return FakeProducer()


@pytest.fixture
def delegate():
    return FakeDelegate()


@pytest.fixture
def pipeline(producer, delegate):
    return PartitionPipeline(producer, FakeNodes(), delegate, 1000, 0.0, True, WAIT)


def message(seconds=WAIT, **options):
    item = PublishFuture("t", b"x", None, time.monotonic() + seconds, seconds)
    if options:
        item.options = PublishOptions(**options)
    return item


def test_an_unknown_topic_is_looked_up_again_while_each_message_has_time_left(pipeline, producer):
    """Half of the least time that is left is the longest pause, also for later messages."""
    producer.routes = TopicRoutes(is_partitioned=True)
    pipeline.run([message(key="k")], False)
    assert pipeline._unrouted["t"].retry_at > time.monotonic() + 0.4 * WAIT
    pipeline.run([message(WAIT / 10, key="k")], False)
    pipeline.run([], False)
    assert pipeline._unrouted["t"].retry_at < time.monotonic() + WAIT / 10


def test_a_failure_gives_every_message_an_outcome(pipeline, producer, delegate):
    """What was sent may be stored; what was not is not."""
    sent, queued, unrouted, late = message(), message(), message(key="k"), message()
    pipeline.run([sent, queued, unrouted], False)
    sent.maybe_stored = True
    pipeline.fail_all("internal error", [sent, late])
    assert isinstance(sent.exception(0), PublishUnknownError)
    for item in (queued, unrouted, late):
        assert isinstance(item.exception(0), PublishNotSentError)
        assert "internal error" in str(item.exception(0))
    assert len(delegate.failed) == 4 and list(pipeline) == []
