"""How type checkers judge programs: mypy fails if an expected error is not reported.

Nothing here runs.
"""

from __future__ import annotations

import nsqclient
from nsqclient import Consumer, GiveUp, Message, Producer, Requeue, TimeLimit
from nsqclient import Consummer  # type: ignore[attr-defined] # noqa: F401


def handle(message: Message) -> None:
    """The usual one."""


def decide(message: Message) -> Requeue | type[GiveUp] | None:
    """Returns what it could raise."""
    return Requeue(5) if message.attempts < 3 else GiveUp


async def handle_later(message: Message) -> None:
    """An async handler would never run."""


def consume(addresses: list[str]) -> None:
    Consumer("t", "c", handle, nsqd_tcp_addresses=addresses, middleware=[TimeLimit(5)])
    Consumer("t", "c", decide, nsqd_tcp_addresses=("127.0.0.1:4150",))
    Consumer("t", "c", lambda message: print(message.body), lookupd_http_addresses={"h:4161"})
    Consumer("t", "c", handle_later, nsqd_tcp_addresses=addresses)  # type: ignore[arg-type]
    Consumer("t", "c", handle, nsqd_tcp_addresses="127.0.0.1:4150")  # type: ignore[arg-type]
    nsqclient.handler("t", "c")(decide)
    nsqclient.handler("t", "c")(handle_later)  # type: ignore[type-var]
    nsqclient.Consummer("t", "c")  # type: ignore[attr-defined]


def publish(addresses: list[str]) -> None:
    with Producer(addresses) as producer:
        producer.publish("t", bytearray(b"x"))
        producer.publish_many("t", [b"x", memoryview(b"x")])
        producer.publish("t", "x")  # type: ignore[arg-type]
        producer.publish("t", b"x", delay=5)  # type: ignore[arg-type]
    Producer("127.0.0.1:4150")  # type: ignore[arg-type]
