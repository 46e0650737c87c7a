"""Metrics and readiness: a worker that Prometheus can scrape and a load balancer can ask.

Brings its own embedded nsqd. Consumes 1,000 messages while one HTTP port serves /metrics and
/ready, asks both once, and ends.

    python examples/metrics.py
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import requests
from prometheus_client import CollectorRegistry, make_wsgi_app

from nsqclient import Consumer, Message, Producer
from nsqclient.metrics.prometheus import NSQCollector
from nsqclient.devserver import Nsqd

MESSAGES = 1_000


class QuietHandler(WSGIRequestHandler):
    """Does not log each request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def make_app(registry: CollectorRegistry, consumer: Consumer) -> Callable[..., Iterable[bytes]]:
    """A WSGI application with /metrics and /ready."""
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/ready":
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        health = consumer.healthy()
        status = "200 OK" if health else "503 Service Unavailable"
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps({"ready": health.ok, "reason": health.reason}).encode()]

    return app


def main() -> int:
    """Publish, consume, and look at it as Prometheus and a load balancer would."""
    done = threading.Semaphore(0)

    def handle(message: Message) -> None:
        done.release()

    with contextlib.ExitStack() as stack:
        nsqd = stack.enter_context(Nsqd())
        registry = CollectorRegistry()
        metrics = NSQCollector(registry)
        consumer = Consumer(
            "events", "worker", metrics.timed(handle, "events", "worker"), workers=2,
            max_in_flight=50, nsqd_tcp_addresses=[nsqd.tcp_address],
        )
        metrics.add_consumer(consumer)
        server = stack.enter_context(make_server(
            "127.0.0.1", 0, make_app(registry, consumer), handler_class=QuietHandler))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}"
        print("before the start:", requests.get(f"{url}/ready", timeout=5).text)
        stack.enter_context(consumer)
        producer = stack.enter_context(Producer([nsqd.tcp_address]))
        metrics.add_producer(producer)
        for number in range(MESSAGES):
            producer.publish("events", b"%d" % number)
        for _ in range(MESSAGES):
            if not done.acquire(timeout=30):
                return 1
        nsqd.wait_until_empty("events", "worker")
        print("at work:", requests.get(f"{url}/ready", timeout=5).text)
        for line in requests.get(f"{url}/metrics", timeout=5).text.splitlines():
            if line.startswith(("nsq_consumer_received", "nsq_consumer_handler_seconds_count",
                                "nsq_producer_messages_total")):
                print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
