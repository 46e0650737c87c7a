"""Where publishes to a partition are sent."""

from __future__ import annotations

import time

from nsqclient.partitions.lookup_table import TopicRoutes
from nsqclient.partitions.sharding import RoundRobin
from nsqclient.producer.outcome import BusyConnection
from nsqclient.producer.partitioned.destination import PartitionDestination


class Node:
    """A connection that is taken by another partition so many times."""

    def __init__(self, refusals):
        self.refusals = refusals
        self.sent = []

    def send_batches(self, batches, until, name):
        if self.refusals:
            self.refusals -= 1
            raise BusyConnection("taken")
        self.sent.append(name)
        return "the connection"


class Nodes:
    """A pool and a cache of routes."""

    def __init__(self, *nodes):
        self._nodes = iter(nodes)

    def connect(self, nsqd, deadline, name):
        assert (nsqd, name) == ("nsqd", "t 3")
        return next(self._nodes)

    def routes(self, topic, deadline):
        return TopicRoutes(partitions={3: "nsqd"})


def test_another_connection_is_used_where_the_first_is_taken_meanwhile():
    """The publishes are sent once."""
    taken, free = Node(1), Node(0)
    nodes = Nodes(taken, free)
    destination = PartitionDestination("t", 3, nodes, nodes, RoundRobin(), 1.0)
    assert destination.send_batches([], time.monotonic() + 30.0) == "the connection"
    assert (taken.sent, free.sent) == ([], ["t 3"])
