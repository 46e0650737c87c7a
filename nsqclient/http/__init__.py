"""The HTTP APIs of nsqd and nsqlookupd: every endpoint, typed responses, typed errors.

The clients are imported on first use, because ``requests`` is slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsqclient.http.models import (
    ChannelStats,
    ClientStats,
    LookupdInfo,
    Lookup,
    Node,
    NsqdInfo,
    Producer,
    Stats,
    TopicStats,
)

if TYPE_CHECKING:
    from nsqclient.http.nsqd import NsqdHTTP
    from nsqclient.http.nsqlookupd import NsqlookupdHTTP

__all__ = [
    "ChannelStats",
    "ClientStats",
    "Lookup",
    "LookupdInfo",
    "Node",
    "NsqdHTTP",
    "NsqdInfo",
    "NsqlookupdHTTP",
    "Producer",
    "Stats",
    "TopicStats",
]


def __getattr__(name: str) -> Any:
    if name == "NsqdHTTP":
        from nsqclient.http.nsqd import NsqdHTTP
        return NsqdHTTP
    if name == "NsqlookupdHTTP":
        from nsqclient.http.nsqlookupd import NsqlookupdHTTP
        return NsqlookupdHTTP
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
