"""Metrics collection: requests publish to a local nsqd, and a worker writes batches downstream.

A request must not wait for the metrics system or fail with it. It publishes to the nsqd on its own
machine without waiting, and a consumer writes batches. In this example the metrics system refuses
two batches; the messages wait in nsqd meanwhile. The program starts its own nsqd and ends itself::

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
    """A stand-in for your database, which refuses the first two writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[tuple[str, str, bytes]] = set()
        self.totals: Counter[str] = Counter()
        self.refusals = 0

    def write(self, messages: Sequence[Message]) -> None:
        """Add a batch; raises while the system is down."""
        with self._lock:
            if self.refusals < 2:
                self.refusals += 1
                raise ConnectionError("the metrics system does not answer")
            for message in messages:
                # Add a message once, even if it is delivered twice. The id alone is not unique.
                key = (message.nsqd_address, message.topic, message.id)
                if key not in self._seen:
                    self._seen.add(key)
                    self.totals.update(json.loads(message.body))


def serve_requests(producer: Producer) -> None:
    """A stand-in for a web server: publish a message for each request."""
    for number in range(REQUESTS):
        figures = {"requests": 1, "bytes": 100 + number % 10}
        producer.publish_async("metrics", json.dumps(figures).encode())


def main() -> None:
    """Publish, consume and print the totals."""
    logging.getLogger("nsqclient").setLevel(logging.CRITICAL)  # hide the two expected failures
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
