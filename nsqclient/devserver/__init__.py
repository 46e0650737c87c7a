"""An honest nsqd and nsqlookupd in Python, for first steps and for users' tests.

``with Nsqd() as nsqd:`` starts one on free ports. What it does not do stands at the top of
``docs/topics/devserver.rst``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqclient.devserver.nsqd import Nsqd
    from nsqclient.devserver.nsqlookupd import Nsqlookupd
    from nsqclient.devserver.partitioned.cluster import PartitionedCluster

__all__ = ["Nsqd", "Nsqlookupd", "PartitionedCluster"]


def __getattr__(name: str) -> Any:
    # pytest imports this package in every run, because our plugin lives in it; the servers
    # only come with their first use.
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
