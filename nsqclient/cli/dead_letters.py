"""``--dead-letter-topic``: where a tool publishes what would be lost otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from nsqclient import Config, DeadLetterTopic, Producer


def make_dead_letters(
    values: Mapping[str, Any], config: Config, stack: contextlib.ExitStack
) -> DeadLetterTopic:
    """Build what publishes to ``--dead-letter-topic``, on the nsqds that messages come from.

    Its producer is closed when ``stack`` ends.
    """
    producer = Producer(
        nsqd_tcp_addresses=list(dict.fromkeys(values["nsqd-tcp-address"])),
        lookupd_http_addresses=values["lookupd-http-address"], config=config,
    )
    stack.callback(producer.close)
    return DeadLetterTopic(producer, values["dead-letter-topic"])
