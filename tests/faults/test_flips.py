"""One byte is flipped on its way. TLS finds it; without TLS the clients survive it."""

import pytest

from nsqclient import Consumer, Producer, PublishError
from nsqclient.producer.nodes import HANDSHAKE_TIMEOUT
from tests.faults.dialogues import (
    BODIES, FULL, QUICK, RECOVERY, SCAN, Seen, consume, drain, faithful, make_channel,
    positions, publish_three_ways, try_all,
)
from tests.support.certificates import Certificates
from tests.support.faults.proxy import CLIENT, SERVER, FaultProxy
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 120),
              pytest.mark.parametrize("server_kind", ["embedded"])]

_CHOICE = 8
# A byte of the length of IDENTIFY makes nsqd wait for more, and the client for an answer, which it
# does for HANDSHAKE_TIMEOUT before it dials again.


def flips(places, direction):
    return [
        (f"{direction} {place}", lambda proxy, place=place: proxy.flip_after(place, direction))
        for place in places
    ]


@pytest.mark.parametrize("direction", [CLIENT, SERVER])
@pytest.mark.parametrize("dialogue", ["consume", "persist"])
def test_tls_finds_every_flipped_byte(server_factory, tmp_path, dialogue, direction):
    certificates = Certificates(tmp_path)
    server = server_factory(
        msg_timeout=0.3, tls_cert=certificates.server, tls_key=certificates.server_key
    )
    config = QUICK.replace(tls_v1=True, tls_root_ca_file=certificates.ca)
    make_channel(server, "whole")
    play = {"consume": consume, "persist": persist}[dialogue]
    length = play(server, "whole", config, faithful)[direction]
    # TLS does not protect the bytes before it: the magic, IDENTIFY and its answer.
    places = [place for place in positions(length, 1, 2 * _CHOICE) if place >= 700]
    assert try_all(server, play, config, flips(places, direction), "t")


def survive_consuming(server, topic, config, fault):
    """Three messages are handled, one of them perhaps with another body."""
    for body in BODIES:
        server.post("/pub", body, topic=topic)
    seen = Seen()
    with FaultProxy(server.tcp_address) as proxy:
        fault(proxy)
        with Consumer(topic, "c", seen, nsqd_tcp_addresses=[proxy.address], max_in_flight=2,
                      config=config) as consumer:
            wait_until(lambda: len(seen.bodies) >= 3, HANDSHAKE_TIMEOUT + RECOVERY + SCAN)
            assert len(seen.bodies & BODIES) >= 2
            assert consumer.stop(2).complete
        forwarded = dict(proxy.forwarded)
    drain(server, topic)
    return forwarded


def survive_publishing(server, topic, config, fault, expected=frozenset()):
    """Every publish has one of its outcomes, and soon a good one."""
    with FaultProxy(server.tcp_address) as proxy:
        fault(proxy)
        with Producer([proxy.address], config=config) as producer:
            wait_until(lambda: publishes(producer, topic), HANDSHAKE_TIMEOUT + RECOVERY)
        forwarded = dict(proxy.forwarded)
    found = drain(server, topic, expected)
    assert not expected or found == expected
    return forwarded


def persist(*dialogue):
    """As ``publish``; a handshake with a permanent error is tried again."""
    return survive_publishing(*dialogue, expected=frozenset(BODIES | {b"later"}))


def publishes(producer, topic):
    """True if all messages can be stored now. An invalid answer ends the attempt at once."""
    try:
        publish_three_ways(producer, topic)
    except PublishError:
        return False
    return True


@pytest.mark.parametrize("direction", [CLIENT, SERVER])
@pytest.mark.parametrize("dialogue", [survive_consuming, survive_publishing])
def test_without_tls_a_flipped_byte_is_survived(server_factory, dialogue, direction):
    server = server_factory(msg_timeout=0.3)
    make_channel(server, "whole")
    length = dialogue(server, "whole", QUICK, faithful)[direction]
    places = positions(length, 2, _CHOICE)
    assert try_all(server, dialogue, QUICK, flips(places, direction), "t") == len(places)
