"""The arguments of the embedded cluster."""

import math

import pytest

from nsqclient.devserver import PartitionedCluster
from nsqclient.errors import (
    ConfigError, InvalidChannelError, InvalidMessageError, InvalidTopicError,
)


@pytest.mark.parametrize(("options", "hint"), [
    ({"nsqds": 0}, "nsqds must be a whole number of at least 1, not 0"),
    ({"nsqlookupds": -1}, "nsqlookupds must be a whole number of at least 1"),
    ({"recovery_scale": math.nan}, "recovery_scale"),
    ({"msg_timeout": 0}, "msg_timeout"),
    ({"msg_timeout": 901}, "over max_msg_timeout of 900 s"),
    ({"tcp_port": 65535}, "tcp_port must be a whole number from 0 to 65531"),
])
def test_a_cluster_checks_its_options(options, hint):
    """Before it listens anywhere."""
    with pytest.raises(ConfigError, match=hint):
        PartitionedCluster(**options)


@pytest.mark.parametrize(("call", "error"), [
    (lambda c: c.create_topic("new", 0), ConfigError),
    (lambda c: c.create_topic("new", 1025), ConfigError),
    (lambda c: c.create_topic("new", replicas=0), ConfigError),
    (lambda c: c.create_topic("new", replicas=3), ConfigError),
    (lambda c: c.create_topic("b$d"), InvalidTopicError),
    (lambda c: c.create_topic("new", channels=["b$d"]), InvalidChannelError),
    (lambda c: c.create_topic("new", channels="abc"), ConfigError),
    (lambda c: c.publish("t", 0, "text"), InvalidMessageError),
    (lambda c: c.publish("t", 1, b"x"), ConfigError),
    (lambda c: c.messages("t", 0, "other"), ConfigError),
    (lambda c: c.leader_of("t", -1), ConfigError),
    (lambda c: c.move_leader("t", 0, 2), ConfigError),
    (lambda c: c.crash(2), ConfigError),
    (lambda c: c.take_over(2), ConfigError),
    (lambda c: c.restart(True), ConfigError),
    (lambda c: c.tombstone("t", 2), ConfigError),
    (lambda c: c.lead_lookupd(1), ConfigError),
])
def test_a_method_checks_its_arguments(call, error):
    """A mistake in a test changes nothing, and is no IndexError far from it."""
    cluster = PartitionedCluster(2, 1)
    cluster.create_topic("t", channels=["c"])
    with pytest.raises(error):
        call(cluster)
    assert cluster.leader_of("t", 0) == 0 and cluster.messages("t", 0, "c") == []
