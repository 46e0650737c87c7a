"""``nsqclient nsqd --partitioned``: a whole embedded cluster of partitioned NSQ in one process.

The first nsqd and nsqlookupd have the addresses that were given, each further one the port two
above the one before. Topics come from ``--partitioned-topic`` or nsqlookupd's /topic/create.
"""

from __future__ import annotations

from typing import NamedTuple

from nsqclient.cli.daemon import parse_listen_address
from nsqclient.cli.goflags import INT, STRING, STRINGS, BOOL, CommandLineError, FlagSet, Parsed
from nsqclient.devserver.partitioned.cluster import PartitionedCluster
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.digits import read_digits

_KINDS = ("ordered", "extended")
_MOST_PARTITIONS = 255


class TopicSpec(NamedTuple):
    """A topic to begin with."""

    name: str
    partitions: int
    ordered: bool
    extended: bool


def add_flags(flags: FlagSet) -> None:
    """Add what a cluster needs beside the flags of nsqd."""
    flags.add("partitioned", BOOL, False,
              "run a cluster of partitioned NSQ (nsqds and nsqlookupds) instead of one nsqd")
    flags.add("partitioned-nsqds", INT, 3, "with --partitioned: how many nsqds")
    flags.add("partitioned-nsqlookupds", INT, 2, "with --partitioned: how many nsqlookupds")
    flags.add("partitioned-lookupd-http-address", STRING, "127.0.0.1:4161",
              "with --partitioned: <addr>:<port> of the first nsqlookupd")
    flags.add("partitioned-topic", STRINGS, (),
              "with --partitioned: NAME:PARTITIONS[:ordered][:extended] (may be given multiple"
              " times)")


def parse_topic(text: str) -> TopicSpec:
    """Read ``NAME:PARTITIONS[:ordered][:extended]``.

    Raises:
        CommandLineError: it is not that.
    """
    name, _, rest = text.partition(":")
    number, *kinds = rest.split(":")
    count = read_digits(number, 9)
    good = is_valid_name(name) and set(kinds) <= set(_KINDS)
    if not good or count is None or not 1 <= count <= _MOST_PARTITIONS:
        raise CommandLineError(
            f"--partitioned-topic {text!r}: give NAME:PARTITIONS[:ordered][:extended], with 1 to"
            f" {_MOST_PARTITIONS} partitions"
        )
    return TopicSpec(name, count, "ordered" in kinds, "extended" in kinds)


class Cluster:
    """A cluster with its first topics; what ``serve`` runs."""

    def __init__(self, cluster: PartitionedCluster, topics: list[TopicSpec]) -> None:
        self._cluster = cluster
        self._topics = topics

    def start(self) -> None:
        """Start it and make the topics. Raises OSError when a port is taken."""
        self._cluster.start()
        for topic in self._topics:
            self._cluster.create_topic(
                topic.name, topic.partitions, replicas=2, ordered=topic.ordered,
                extended=topic.extended,
            )

    def stop(self) -> None:
        """End everything."""
        self._cluster.stop()


def build_cluster(parsed: Parsed) -> Cluster:
    """Make the cluster that the flags describe.

    Raises:
        CommandLineError: a flag is wrong.
    """
    values = parsed.values
    for name in ("partitioned-nsqds", "partitioned-nsqlookupds"):
        if values[name] < 1:
            raise CommandLineError(f"--{name} must be at least 1")
    if values["data-path"]:
        raise CommandLineError("--data-path: a partitioned cluster lives in memory alone")
    host, tcp_port = parse_listen_address(values["tcp-address"], "tcp-address")
    _, http_port = parse_listen_address(values["http-address"], "http-address")
    _, lookupd_port = parse_listen_address(
        values["partitioned-lookupd-http-address"], "partitioned-lookupd-http-address"
    )
    cluster = PartitionedCluster(
        values["partitioned-nsqds"], values["partitioned-nsqlookupds"],
        msg_timeout=values["msg-timeout"], max_msg_timeout=values["max-msg-timeout"],
        host=host, tcp_port=tcp_port, http_port=http_port, lookupd_http_port=lookupd_port,
    )
    return Cluster(cluster, [parse_topic(text) for text in values["partitioned-topic"]])
