"""PartitionPipeline on parts that a test controls: no socket, no thread."""

from __future__ import annotations

import time

import pytest

from nsqclient.errors import PublishNotSentError, PublishUnknownError, ServerError
from nsqclient.partitioned.lookup_table import TopicMeta, TopicRoutes
from nsqclient.config import Config
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.node import NsqdNode
from nsqclient.producer.outcome import PublishOutcome
from nsqclient.partitioned.producer_pipeline import PartitionPipeline
from nsqclient.partitioned.producer import PreparedMessage, PublishOptions

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
        return len(self.refreshed)

    def is_answered(self, topic, number):
        return True

    def is_traced(self, topic):
        return False

    def choose(self, attempts, routes, busy=()):
        return next(iter(routes.partitions), None)

    def partition_of(self, key, partition_num):
        return 0

    def prepare(self, topic, body, options):
        return PreparedMessage(body, None, b"header", False)

    def command(self, topic, partition, message):
        return message.command(topic, partition, 1000)

    def note_refusal(self, *arguments):
        pass

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
    """Stands in for NodePool: has at most one node."""

    node = None

    def try_connect(self, address, name, asked):
        return self.node


@pytest.fixture
def producer():
    return FakeProducer()


@pytest.fixture
def delegate():
    return FakeDelegate()


@pytest.fixture
def nodes():
    return FakeNodes()


@pytest.fixture
def pipeline(producer, nodes, delegate):
    return PartitionPipeline(producer, nodes, delegate, 1000, 0.0, True, WAIT)


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


class FakeConnection:
    """Answers a publish before ``send`` has returned, as a reader thread may."""

    is_closed = False

    def __init__(self, error):
        self.error = error

    def send(self, queue, until):
        queue(self)

    def send_traced_publish(self, command, token):
        token.settle(PublishOutcome.REJECTED, self.error)

    def awaits_answer(self):
        return False

    def close(self, reason):
        self.is_closed = True


def test_a_refused_publish_with_headers_closes_its_own_connection(pipeline, nodes):
    """Also where the answer comes at once, and where an attempt before had another one."""
    nodes.node = NsqdNode("n:1", nodes, Config())
    first, second = (FakeConnection(ServerError("E_FAILED_ON_NOT_LEADER", "no"))
                     for _ in range(2))
    nodes.node.conn = first
    pipeline.run([message(headers={"k": "v"})], False)
    assert first.is_closed
    nodes.node.conn = second
    for _ in range(3):  # the outcome, the pause, the lookup
        pipeline.run([], False)
        for batch in pipeline._waiting:
            batch.retry_at = 0.0
    assert second.is_closed
