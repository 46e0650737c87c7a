"""Metrics collection: requests put figures into a local queue, a worker writes them downstream.

A request must not wait for the metrics system, nor fail with it. So it publishes to the nsqd of its
own machine without waiting, and a consumer writes batches. Here the metrics system refuses twice;
the figures wait in nsqd and are all there in the end. Brings its own nsqd and ends by itself::

    python examples/topology_metrics.py
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Sequence

from nsqclient import BatchHandler, Config, Consumer, Message, Producer
from nsqclient.devserver import Nsqd

REQUESTS = 300
#: Short delays, so that the example ends soon; the defaults are for production.
HASTY = Config(default_requeue_delay=0.1, backoff_multiplier=0.1, max_attempts=0)


class MetricsSystem:
    """Stands for the database of your figures: it is away for the first two writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[bytes] = set()
        self.totals: Counter[str] = Counter()
        self.refusals = 0

    def write(self, messages: Sequence[Message]) -> None:
        """Add a batch of figures; raise while the system is away."""
        with self._lock:
            if self.refusals < 2:
                self.refusals += 1
                raise ConnectionError("the metrics system does not answer")
            for message in messages:
                # A figure that came twice is added once.
                if message.id not in self._ids:
                    self._ids.add(message.id)
                    self.totals.update(json.loads(message.body))


def serve_requests(producer: Producer) -> None:
    """Stand for a web server: each request leaves its figures behind."""
    for number in range(REQUESTS):
        figures = {"requests": 1, "bytes": 100 + number % 10}
        producer.publish_async("metrics", json.dumps(figures).encode())


def main() -> None:
    """Collect the figures of all requests in spite of the metrics system."""
    logging.getLogger("nsqclient").setLevel(logging.CRITICAL)  # the two refusals are meant
    system = MetricsSystem()
    with Nsqd() as nsqd, Producer([nsqd.tcp_address]) as producer:
        serve_requests(producer)
        producer.flush(10)
        print(f"{REQUESTS} requests are served, {producer.stats().published} figures are stored")
        handler = BatchHandler(system.write, size=100, max_wait=0.2)
        with Consumer("metrics", "write", handler, max_in_flight=200, config=HASTY,
                      nsqd_tcp_addresses=[nsqd.tcp_address]):
            nsqd.wait_until_empty("metrics", "write", timeout=30)
    print(f"the metrics system refused {system.refusals} batches")
    print(f"requests: {system.totals['requests']}, bytes: {system.totals['bytes']}")


if __name__ == "__main__":
    main()
