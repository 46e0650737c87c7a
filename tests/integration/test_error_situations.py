"""Errors that need a situation: other clients' messages, limits, deleted topics."""

import pytest

from tests.support.servers.raw_client import ERROR, RESPONSE, RawClient

OK = (RESPONSE, b"OK")
# A message back from its timeout may be 5 s late on a real nsqd, whose scan of a new channel
# starts that late.
REDELIVERY = 20.0


def _publish(server, topic="t1"):
    server.create(topic, "c1")
    server.post("/pub", b"hello", topic=topic)


def test_a_consumer_above_the_limit_of_a_channel_is_refused(server_factory):
    server = server_factory(max_channel_consumers=2)
    address = server.tcp_address
    with RawClient(address) as one, RawClient(address) as two, RawClient(address) as three:
        one.subscribe("m2", "c")
        two.subscribe("m2", "c")
        text = b"E_SUB_FAILED SUB failed consumers for m2:c exceeds limit of 2"
        assert three.ask(b"SUB m2 c\n") == (ERROR, text)
        three.read_end()
        assert one.ask(b"PUB t1\n\0\0\0\1x") == OK


@pytest.mark.parametrize("command", [b"FIN %b\n", b"REQ %b 0\n", b"TOUCH %b\n"])
def test_a_message_of_another_client_cannot_be_finished(server, command):
    _publish(server)
    with RawClient(server.tcp_address) as owner, RawClient(server.tcp_address) as other:
        owner.subscribe("t1", "c1", ready=1)
        message_id, _, _ = owner.read_message()
        other.subscribe("t1", "c1")
        name = command.split()[0]
        text = b"E_%b_FAILED %b %b failed client does not own message" % (name, name, message_id)
        assert other.ask(command % message_id) == (ERROR, text)
        assert other.ask(b"PUB t2\n\0\0\0\1x") == OK


def test_a_fin_after_the_timeout_is_refused(server_factory):
    server = server_factory(msg_timeout=1.0)
    _publish(server)
    address = server.tcp_address
    with RawClient(address) as late, RawClient(address, timeout=REDELIVERY) as next_one:
        late.subscribe("t1", "c1", ready=1)
        message_id, _, _ = late.read_message()
        late.send(b"RDY 0\n")
        next_one.subscribe("t1", "c1", ready=1)
        assert next_one.read_message() == (message_id, 2, b"hello")
        next_one.send(b"FIN %b\nRDY 0\n" % message_id)
        assert next_one.ask(b"PUB t2\n\0\0\0\1x") == OK
        text = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
        assert late.ask(b"FIN %b\n" % message_id) == (ERROR, text)


def test_a_late_fin_finishes_a_message_that_the_same_client_got_again(server_factory):
    server = server_factory(msg_timeout=1.0)
    _publish(server)
    with RawClient(server.tcp_address, timeout=REDELIVERY) as client:
        client.subscribe("t1", "c1", ready=1)
        first = client.read_message()
        second = client.read_message()
        assert (second[0], second[1]) == (first[0], 2)
        assert client.ask(b"FIN %b\nPUB t2\n\0\0\0\1x" % first[0]) == OK
        assert server.stats("t1", "c1")["in_flight_count"] == 0


@pytest.mark.parametrize("end", [
    lambda server: server.post("/topic/delete", topic="t1"),
    lambda server: server.post("/channel/delete", topic="t1", channel="c1"),
    lambda server: server.stop(),
], ids=["topic deleted", "channel deleted", "stopped"])
def test_a_consumer_whose_channel_is_gone_sees_the_end_of_file(server, end):
    with RawClient(server.tcp_address) as client:
        client.subscribe("t1", "c1")
        end(server)
        assert not client.read_end().reset
