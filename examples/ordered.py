"""Ordered consumption on a partitioned NSQ, with a cluster in this process.

    python examples/ordered.py

Four orders get three events each; the events of an order stay in order, although partitions are
consumed side by side, a leader moves in between, and one event fails twice.
"""

from __future__ import annotations

import threading

from nsqclient import Config, Message
from nsqclient.partitioned import Consumer, Producer
from nsqclient.devserver import PartitionedCluster

ORDERS = ["order-1", "order-2", "order-3", "order-4"]
EVENTS = ["placed", "paid", "shipped"]


def main() -> None:
    """Publish, consume, and print the messages."""
    lock = threading.Lock()
    seen: dict[str, list[str]] = {}

    def handle(message: Message) -> None:
        order, event = message.body.decode().split()
        if event == "paid" and order == "order-2" and message.attempts < 3:
            raise RuntimeError("the bank does not answer")  # only this partition waits
        with lock:
            seen.setdefault(order, []).append(event)

    with PartitionedCluster(nsqds=3, nsqlookupds=2) as cluster:
        # The channel first: a new one begins at the end of the queue.
        cluster.create_topic("orders", 4, replicas=2, ordered=True, channels=["billing"])
        lookupds = cluster.lookupd_http_addresses
        config = Config(ordered_retry_delay=0.05, lookupd_poll_interval=1.0)
        with Producer(lookupd_http_addresses=lookupds) as producer, Consumer(
            "orders", "billing", handle, lookupd_http_addresses=lookupds, ordered=True,
            workers=4, config=config,
        ):
            for event in EVENTS:
                for order in ORDERS:
                    # The key decides on the partition, so that an order has one place.
                    stored = producer.publish(
                        "orders", f"{order} {event}".encode(), key=order, trace_id=ORDERS.index(
                            order) + 1)
                    assert stored is not None
                cluster.move_leader("orders", 0)
            cluster.wait_until_empty("orders", "billing")
    for order in ORDERS:
        print(order, " -> ".join(seen[order]))


if __name__ == "__main__":
    main()
