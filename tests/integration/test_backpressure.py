"""A consumer that is sent more than its handlers can do, on both kinds of server."""

import threading
from collections import Counter

from nsqclient import Config
from tests.integration.test_consumer import consume, publish
from tests.support.waiting import wait_until

KIB = 1024
#: No backoff, and one connection attempt after another at once.
#: Without a level of its own, the queue fills whatever handlers take.
CONFIG = Config(max_backoff_duration=0, max_reconnect_delay=0.1, rdy_share_of_timeout=0,
                max_queued_bytes=2000 * KIB)


class Handler:
    """Waits for leave before each message, and counts each."""

    def __init__(self):
        self.leave = threading.Semaphore(0)
        self.seen = Counter()

    def __call__(self, message):
        assert self.leave.acquire(timeout=30)
        self.seen[message.body[:4]] += 1

    @property
    def count(self):
        return sum(self.seen.values())

    def allow(self, count=100_000):
        self.leave.release(count)


def test_a_held_consumer_says_so_and_lets_others_have_the_messages(server):
    handler, lost = Handler(), []
    publish(server, *(b"%04d" % number + b"x" * (200 * KIB - 4) for number in range(200)))
    # 20 messages are twice max_queued_bytes: no more than that can arrive too late after RDY 0.
    with consume(server, handler, config=CONFIG, on_error=lost.append,
                 max_in_flight=20) as consumer:
        wait_until(lambda: consumer.stats().is_held)
        wait_until(lambda: [conn.rdy for conn in consumer.stats().connections] == [0])
        health, stats = consumer.healthy(), consumer.stats()
        assert not health
        assert health.reason.startswith("held by max_queued_bytes: ")
        assert stats.queued_bytes > 1000 * KIB
        other = Handler()
        other.allow()
        with consume(server, other, max_in_flight=10):
            wait_until(lambda: other.count >= 50)
        handler.allow()
        # Each at least once: the end of a connection may cost an answer.
        wait_until(lambda: len(handler.seen + other.seen) == 200, 20)
        wait_until(lambda: consumer.healthy() and not consumer.stats().is_held)
    assert lost == []
