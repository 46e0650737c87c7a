"""Publish, and tell the outcomes apart: stored, rejected, unknown.

Brings its own nsqd and ends by itself::

    python examples/quick_producer.py
"""

from __future__ import annotations

from nsqclient import NSQError, Producer, PublishRejected, PublishUnknown
from nsqclient.devserver import Nsqd


def publish(producer: Producer, body: bytes) -> str:
    """Publish one message; say what became of it."""
    try:
        producer.publish("events", body, timeout=0.5)
    except PublishRejected as exc:
        return f"surely not stored ({exc})"
    except PublishUnknown as exc:
        return f"stored or not, nobody can say ({exc})"
    except NSQError as exc:
        return f"not sent ({type(exc).__name__}: {exc})"
    return "stored"


def main() -> None:
    """Publish while nsqd is well, refuses, is silent, and is gone."""
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
