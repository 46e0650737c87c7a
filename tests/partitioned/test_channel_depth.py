"""How many messages a channel has in the partitions of a topic."""

from nsqclient import Config
from nsqclient.consumer.connections import NsqdSources
from nsqclient.devserver import PartitionedCluster
from nsqclient.consumer.channel_depth import depth_of
from nsqclient.partitioned.channel_depth import DepthQuery
from nsqclient.partitioned.http import led_topics


def test_each_partition_must_have_a_leader_that_answers():
    with PartitionedCluster(2, 1) as cluster:
        cluster.create_topic("t", 3, channels=["c"])
        where = "t", "c", Config(), NsqdSources([], cluster.lookupd_http_addresses)
        found = DepthQuery(*where).fetch()
        assert list(found.known) == [f"partition {number} of t" for number in range(3)]
        assert found.is_complete
        assert list(DepthQuery(*where, partitions=[1]).fetch().known) == ["partition 1 of t"]
        query = DepthQuery(*where)
        query._numbers.update({4})
        assert query.fetch().unknown == {
            "partition 4 of t": "none of the nsqds that were asked leads it"}


def test_a_message_with_a_long_delay_is_deferred():
    """The server counts it in neither ``depth`` nor ``deferred_count``. Seen on 0.3.7-HA.1.13.0."""
    channel = {"channel_name": "c", "depth": 0, "deferred_count": 0, "delayed_queue_count": 1}
    partition = {"topic_name": "t", "topic_partition": "0", "is_leader": True,
                 "channels": [channel]}
    depth = depth_of(led_topics({"topics": [partition]}, "t")[0], "c", creates_channel=False)
    assert (depth.depth, depth.deferred) == (0, 1)
