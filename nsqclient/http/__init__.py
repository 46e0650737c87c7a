"""The HTTP APIs of nsqd and nsqlookupd: every endpoint, typed answers, typed errors.

``urls`` makes addresses into URLs, ``session`` sends requests and says what went wrong,
``fields`` reads JSON, ``answers`` are the values that come back, ``nsqd`` and ``nsqlookupd`` the
two clients. These are loaded when they are asked for: ``requests`` takes longer to import than the
rest of the library, and who gives addresses of nsqds never needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsqclient.http.answers import (
    ChannelStats,
    ClientStats,
    Latency,
    LookupdInfo,
    Lookup,
    Node,
    NsqdInfo,
    Percentile,
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
    "Latency",
    "Lookup",
    "LookupdInfo",
    "Node",
    "NsqdHTTP",
    "NsqdInfo",
    "NsqlookupdHTTP",
    "Percentile",
    "Producer",
    "Stats",
    "TopicStats",
]


def __getattr__(name: str) -> Any:
    """Load a client. Source: PEP 562."""
    if name == "NsqdHTTP":
        from nsqclient.http.nsqd import NsqdHTTP
        return NsqdHTTP
    if name == "NsqlookupdHTTP":
        from nsqclient.http.nsqlookupd import NsqlookupdHTTP
        return NsqlookupdHTTP
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
