"""Publish, and distinguish the outcomes: stored, rejected, unknown.

Brings its own nsqd and ends by itself::

    python examples/quick_producer.py
"""

from __future__ import annotations

from nsqclient import NSQError, Producer, PublishRejectedError, PublishUnknownError
from nsqclient.devserver import Nsqd


def publish(producer: Producer, body: bytes) -> str:
    """Publish one message; return the outcome."""
    try:
        producer.publish("events", body, timeout=0.5)
    except PublishRejectedError as exc:
        return f"not stored ({exc})"
    except PublishUnknownError as exc:
        return f"unknown, may be stored ({exc})"
    except NSQError as exc:
        return f"not sent ({type(exc).__name__}: {exc})"
    return "stored"


def main() -> None:
    """Publish while nsqd works, refuses, does not answer, and is stopped."""
    with Nsqd() as nsqd, Producer([nsqd.tcp_address]) as producer:
        print("all is well:     ", publish(producer, b"hello"))
        print("an empty body:   ", publish(producer, b""))
        nsqd.faults.fail_next("PUB", "E_BAD_MESSAGE", "PUB refused for this example")
        print("nsqd refuses:    ", publish(producer, b"hello"))
        nsqd.faults.hold_answers("PUB")
        print("nsqd is silent:  ", publish(producer, b"hello"))
        nsqd.stop()
        print("nsqd is gone:    ", publish(producer, b"hello"))


if __name__ == "__main__":
    main()
