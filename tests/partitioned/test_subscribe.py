"""PartitionSubscribe: its command, and how it reads received messages."""

import pytest

from nsqclient.errors import NegotiationError, RemoteProtocolError
from nsqclient.partitioned.subscription import PartitionSubscribe, TopicSubscribe
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.partitioned.extensions import MessageExtension

PARTITIONED = ServerSettings(version="0.3.7-HA.1.13.0")
STOCK = ServerSettings(version="1.3.0")


@pytest.mark.parametrize("options, command", [
    ({}, b"SUB t c 3\n"), ({"ordered": True}, b"SUB_ORDERED t c 3\n"),
    ({"with_offsets": True}, b"SUB_ADVANCED t c 3\n"),
])
def test_a_partition_is_named_by_the_command(options, command):
    wanted = PartitionSubscribe("t", "c", 3, **options)
    assert wanted.command("n:1", PARTITIONED) == command
    with pytest.raises(NegotiationError, match="n:1: .* partition 3 of t, and nsqd 1.3.0 has no"):
        wanted.command("n:1", STOCK)


def test_a_whole_topic_may_be_at_an_nsqd_of_either_kind():
    for settings in (PARTITIONED, STOCK):
        assert TopicSubscribe("t", "c", True).command("n:1", settings) == b"SUB t c\n"


def test_headers_are_asked_for_where_the_topic_has_them():
    wanted = PartitionSubscribe("t", "c", 0, extended=True, identify={"desired_tag": "x"})
    assert wanted.identify_fields() == {"extend_support": True, "desired_tag": "x"}
    assert PartitionSubscribe("t", "c", 0).identify_fields() == {}


def test_received_messages_are_split_from_headers_and_positions():
    head = (5, 1, bytes(16))
    data = b"\4\0\7" + b'{"k":1}' + (7).to_bytes(8, "big") + (30).to_bytes(4, "big") + b"body"
    wanted = PartitionSubscribe("t", "c", 0, ordered=True, extended=True)
    assert wanted.read([(*head, data)]) == (
        [(*head, b"body")], [MessageExtension(b'{"k":1}', 7, 30)])
    plain = [(*head, b"body")]
    assert PartitionSubscribe("t", "c", 0).read(plain) == (plain, [MessageExtension()])
    with pytest.raises(RemoteProtocolError, match="too short"):
        wanted.read([(*head, b"\4")])
