"""Retries, dead letters and metrics: a worker that charges orders.

Brings its own embedded nsqd, publishes five orders, shows the metrics and the dead letters, replays
these with ``nsqclient dead_letters``, and ends. The worker itself is the first part.

    python examples/retries.py
"""

from __future__ import annotations

import contextlib
import json
import sys

import requests
from prometheus_client import CollectorRegistry, start_http_server

from nsqclient import (
    Config, Consumer, DeadLetter, DeadLetterTopic, GiveUp, Message, Producer, Retry, RetryTable,
)
from nsqclient.cli import main as nsqclient
from nsqclient.metrics.prometheus import NSQCollector
from nsqclient.devserver import Nsqd

# -- the worker


def charge(message: Message) -> None:
    """Charge one order; the bank is busy for the first two attempts of some."""
    order = json.loads(message.body)
    if order["total"] <= 0:
        raise GiveUp(f"the total is {order['total']}")
    if order["card"] == "slow" and message.attempts < 3:
        raise ConnectionError("the bank is busy")
    if order["card"] == "stolen":
        raise PermissionError("the bank refuses the card")
    print(f"charged {order['total']}, attempt {message.attempts}", flush=True)


RETRY = RetryTable({
    ConnectionError: Retry(base=0.1, factor=2, maximum=60, backoff=False),
    PermissionError: Retry(base=0.1, max_attempts=2, backoff=False),
    ValueError: GiveUp("this is no order"),  # of json.loads
})


def make_consumer(address: str, producer: Producer, metrics: NSQCollector) -> Consumer:
    """Make the consumer of the worker."""
    consumer = Consumer(
        "orders", "billing", metrics.timed(charge, "orders", "billing"),
        nsqd_tcp_addresses=[address], max_in_flight=10, retry=RETRY,
        on_giving_up=DeadLetterTopic(producer, "orders.dead"), config=Config(max_attempts=8),
    )
    metrics.add_consumer(consumer)
    return consumer


# -- what stands for the rest of the world


def publish_orders(producer: Producer) -> None:
    """Two good orders, and three that become dead letters."""
    for order in ({"total": 30, "card": "good"}, {"total": 50, "card": "slow"},
                  {"total": -1, "card": "good"}, {"total": 70, "card": "stolen"}):
        producer.publish("orders", json.dumps(order).encode())
    producer.publish("orders", b"nonsense")


def main() -> int:
    """Run the worker, and print the messages that it kept."""
    with contextlib.ExitStack() as stack:
        nsqd = stack.enter_context(Nsqd())
        producer = stack.enter_context(Producer([nsqd.tcp_address]))
        registry = CollectorRegistry()
        server, thread = start_http_server(0, "127.0.0.1", registry)
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        publish_orders(producer)
        with make_consumer(nsqd.tcp_address, producer, NSQCollector(registry)):
            nsqd.wait_until_empty("orders", "billing")
            metrics = requests.get(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10)
        for line in metrics.text.splitlines():
            if line.startswith(("nsq_consumer_given_up_total", "nsq_consumer_requeued_total")):
                print(line)
        for message in nsqd.messages("orders.dead"):
            letter = DeadLetter.parse(message.body)
            print(f"dead letter after {letter.attempts}: {letter.reason}")
        return nsqclient([
            "dead_letters", "replay", "--topic=orders.dead", "--count=3", "--timeout=2s",
            "--destination-topic=orders", "--create-channel",
            f"--nsqd-tcp-address={nsqd.tcp_address}", f"--nsqd-http-address={nsqd.http_address}"])


if __name__ == "__main__":
    sys.exit(main())
