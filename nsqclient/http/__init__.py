"""The HTTP APIs of nsqd and nsqlookupd: every endpoint, typed answers, typed errors.

``urls`` makes addresses into URLs, ``session`` sends requests and says what went wrong,
``fields`` reads JSON, ``answers`` are the values that come back, ``nsqd`` and ``nsqlookupd`` the
two clients.
"""

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
