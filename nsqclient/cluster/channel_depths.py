"""The depth of a channel on each nsqd of a cluster."""

from __future__ import annotations

from collections.abc import Container, Sequence

from nsqclient.config import Config
from nsqclient.consumer.channel_depth import depth_of
from nsqclient.consumer.drain_decision import ChannelDepth, ChannelDepths
from nsqclient.cluster.ask_all import UpstreamError
from nsqclient.cluster.cluster import Cluster, Node
from nsqclient.http.urls import split_address
from nsqclient.protocol.events import is_partitioned_version
from nsqclient.runtime.addresses import format_address

#: Seconds for one answer.
_TIMEOUT = 2.0


def fetch_depths_by_nsqd(
    topic: str, channel: str, config: Config, *, lookupds: Sequence[str],
    nsqd_http: Sequence[str], nsqds: Container[str] = (),
) -> ChannelDepths:
    """Ask every nsqd of a cluster for the depth of a channel; ``known`` is by TCP address.

    Args:
        lookupds, nsqd_http: HTTP addresses of nsqlookupds and of nsqds.
        nsqds: TCP addresses. An nsqd of ``nsqd_http`` whose broadcast address is not among them is
            looked for by the host of its HTTP address.

    Blocks: some seconds if a server does not answer.
    """
    known: dict[str, ChannelDepth] = {}
    unknown: dict[str, str] = {}
    for addresses, direct in ((lookupds, ()), ((), nsqd_http)):
        with Cluster(
            addresses, direct, config, connect_timeout=_TIMEOUT, timeout=_TIMEOUT
        ) as cluster:
            try:
                found = cluster.nodes()
            except UpstreamError as exc:
                unknown |= {each.address: each.reason for each in exc.failures}
                continue
            answers, failures = cluster.each(
                [node for node in found.nodes if topic in node.topics or not cluster.has_lookupds],
                lambda nsqd: nsqd.stats(topic, include_clients=False))
            unknown |= {each.address: each.reason for each in (*found.failures, *failures)}
        for node, stats in answers.items():
            if is_partitioned_version(stats.version):
                unknown[node.address] = (
                    "a partitioned nsqd, of whose partitions the depth is not shown")
            else:
                known[_tcp_address(node, nsqds)] = depth_of(stats.topic(topic), channel)
    return ChannelDepths(known, unknown)


def _tcp_address(node: Node, nsqds: Container[str]) -> str:
    broadcast = format_address(node.broadcast_address, node.tcp_port)
    host = split_address(node.reached_at, "nsqd").hostname or ""
    reached = format_address(host, node.tcp_port)
    return reached if reached in nsqds and broadcast not in nsqds else broadcast
