"""Which nsqds have a topic: ``nsqlookupd`` asks one of them, ``poller`` all of them in turn.

Consumer, producer and partitioned topics ask through the same poller.
"""

from __future__ import annotations

from nsqclient.discovery.nsqlookupd import (
    LATE_AFTER,
    LookupResult,
    check_addresses,
    check_list,
    config_for,
    lookup,
    lookup_nodes,
    lookup_topic,
    lookup_url,
)

__all__ = [
    "LATE_AFTER", "LookupResult", "check_addresses", "check_list", "config_for", "lookup",
    "lookup_nodes", "lookup_topic", "lookup_url",
]
