"""``Outgoing``: one message of ``Producer.publish_many`` with a key, headers or a partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nsqclient.partitioned.sharding import Key


class Outgoing(NamedTuple):
    """A message to publish to a partitioned NSQ; the fields are arguments of ``publish``."""

    body: bytes
    key: Key | None = None
    headers: Mapping[str, Any] | None = None
    partition: int | None = None
