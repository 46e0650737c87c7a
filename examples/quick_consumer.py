"""Consume through nsqlookupd with four workers; one message fails once and comes again.

Brings its own servers and ends by itself::

    python examples/quick_consumer.py
"""

from __future__ import annotations

import threading

from nsqclient import Config, Consumer, Message, Producer, Requeue
from nsqclient.devserver import Nsqd, Nsqlookupd

MESSAGES = 20


class Greeter:
    """A handler that collects bodies; four threads call it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = MESSAGES
        self.is_done = threading.Event()

    def __call__(self, message: Message) -> None:
        if message.body == b"guest 7" and message.attempts == 1:
            print("guest 7 is not here yet")
            raise Requeue(delay=0.2, backoff=False)
        with self._lock:
            self._left -= 1
            print(f"hello {message.body.decode()} (attempt {message.attempts})")
            if self._left == 0:
                self.is_done.set()


def main() -> None:
    """Publish to an nsqd, find it through nsqlookupd, and handle everything."""
    greeter = Greeter()
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        with Producer([nsqd.tcp_address]) as producer:
            producer.publish_many("guests", [b"guest %d" % n for n in range(MESSAGES)])
        consumer = Consumer(
            "guests", "greeter", greeter,
            lookupd_http_addresses=[lookupd.http_address],
            max_in_flight=8, workers=4, config=Config(lookupd_poll_interval=0.5),
        )
        with consumer:
            greeter.is_done.wait(30)
            report = consumer.stop(timeout=5)
    print(f"stopped: {report}")


if __name__ == "__main__":
    main()
