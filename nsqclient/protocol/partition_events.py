"""The events of a partitioned server's core, beside those of a stock one.

``partition`` is None where the client named none. Every event says in its first line what the
I/O side must answer.
"""

from __future__ import annotations

from typing import NamedTuple


class NewMessage(NamedTuple):
    """One message of a publish, as it came."""

    body: bytes
    trace_id: int = 0
    header: bytes = b""  #: the JSON header


class OpenPartition(NamedTuple):
    """No answer, unless there is no such topic or partition: fatal, before the body is read."""

    command: str
    topic: str
    partition: int | None


class CheckExt(NamedTuple):
    """No answer when the topic takes headers; else fail and call ``desynchronise()``."""

    command: str
    topic: str
    partition: int | None


class PartitionPub(NamedTuple):
    """Answer with OK, or with 30 bytes where the command or a header asks for them."""

    command: str
    topic: str
    partition: int | None
    messages: list[NewMessage]


class PartitionSub(NamedTuple):
    """Answer with OK, or an error; SUB, SUB_ORDERED or SUB_ADVANCED."""

    command: str
    topic: str
    channel: str
    partition: int | None
    start: str = ""  #: where SUB_ADVANCED begins to read


class CreateTopic(NamedTuple):
    """Answer with E_CREATE_TOPIC_FAILED: in a cluster topics are made through nsqlookupd."""

    command: str
    topic: str
    partition: int | None


PartitionEvent = OpenPartition | CheckExt | PartitionPub | PartitionSub | CreateTopic
