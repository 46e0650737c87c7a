"""An nsqd and nsqlookupd in Python, for first steps and for users' tests.

``with Nsqd() as nsqd:`` starts one on free ports. ``docs/topics/devserver.rst`` lists its
differences from a real one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqclient.devserver.nsqd import Nsqd
    from nsqclient.devserver.nsqlookupd import Nsqlookupd
    from nsqclient.devserver.partitioned.cluster import PartitionedCluster

__all__ = ["Nsqd", "Nsqlookupd", "PartitionedCluster"]


def __getattr__(name: str) -> Any:
    # The servers are imported with their first use: their parts import this package too.
    if name == "Nsqd":
        from nsqclient.devserver.nsqd import Nsqd

        return Nsqd
    if name == "Nsqlookupd":
        from nsqclient.devserver.nsqlookupd import Nsqlookupd

        return Nsqlookupd
    if name == "PartitionedCluster":
        from nsqclient.devserver.partitioned.cluster import PartitionedCluster

        return PartitionedCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
