"""A running cluster for each test, and consumers that end with it."""

import threading

import pytest

from nsqclient import Config
from nsqclient.partitioned import Consumer
from nsqclient.devserver import PartitionedCluster
from tests.support.waiting import wait_until

#: Quick enough for tests: rounds of discovery, and pauses of ordered messages.
QUICK = Config(lookupd_poll_interval=0.1, ordered_retry_delay=0.01, lookupd_poll_timeout=2.0)


class Collector:
    """A handler that keeps its messages, and fails for some bodies."""

    def __init__(self):
        self.messages = []
        self.failures = {}  # body -> how many more times it fails
        self.lock = threading.Lock()

    def __call__(self, message):
        with self.lock:
            left = self.failures.get(message.body, 0)
            if left:
                self.failures[message.body] = left - 1
                raise ValueError(f"{message.body!r} fails")
            self.messages.append(message)

    def bodies(self, partition=None):
        """The handled bodies, of one partition or of all."""
        with self.lock:
            return [m.body for m in self.messages if partition in (None, m.partition)]


def sent(cluster, name):
    """The commands with this name that an nsqd has received."""
    return [c.event for nsqd in cluster.nsqds for c in nsqd.commands if c.name == name]


@pytest.fixture
def cluster(leak_guard):
    with PartitionedCluster(3, 2, msg_timeout=20.0) as running:
        yield running


@pytest.fixture
def consume(cluster):
    """Start consumers of topic t, channel c: ``consume(handler, ordered=True)``."""
    started = []

    def start(handler, lookupds=None, config=QUICK, topic="t", connected=None, **options):
        errors = []
        if not options.get("ordered"):
            options.setdefault("max_in_flight", 8)  # else partitions would have RDY in turn
        consumer = Consumer(
            topic, "c", handler, lookupd_http_addresses=lookupds or cluster.lookupd_http_addresses,
            config=config, on_error=errors.append, **options,
        ).start()
        consumer.errors = errors
        started.append(consumer)
        if connected is not None:
            wait_until(lambda: len(consumer.stats().connections) == connected)
        return consumer

    yield start
    for consumer in started:
        consumer.stop(5.0)
