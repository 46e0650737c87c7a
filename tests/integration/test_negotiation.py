"""TLS and compression between our client and both kinds of server, granted and refused."""

from __future__ import annotations

import logging

import pytest

from nsqclient import Config, Consumer, Producer, PublishRejectedError
from tests.integration.test_consumer import Collector
from tests.support.waiting import wait_until

ASKED = {
    "plain": {},
    "tls": {"tls_v1": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 6},
    "tls+snappy": {"tls_v1": True, "snappy": True},
    "tls+deflate": {"tls_v1": True, "deflate": True},
}


@pytest.fixture
def secure_server(server_factory, certificates):
    return server_factory(tls_cert=certificates.server, tls_key=certificates.server_key)


def roundtrip(server, config, bodies):
    """Publish and consume bodies with one config; return what arrived."""
    with Producer([server.tcp_address], config=config) as producer:
        for body in bodies:
            producer.publish("events", body)
        producer.publish_many("events", bodies)
    collector = Collector()
    consumer = Consumer(
        "events", "c", collector, nsqd_tcp_addresses=[server.tcp_address], config=config,
        max_in_flight=5,
    )
    with consumer:
        wait_until(lambda: len(collector.messages) == 2 * len(bodies))
    return sorted(collector.bodies)


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_short_and_long_bodies_arrive_unchanged(secure_server, certificates, asked):
    """Every combination, both ways: one byte, text, and 1 MiB that does and does not compress."""
    noise = bytes((n * n * 31 + n // 7) % 251 for n in range(1024)) * 1024
    bodies = [b"x", b"hello\nworld", b"\0" * 1024 * 1024, noise]
    config = Config(**asked, tls_root_ca_file=certificates.ca if "tls_v1" in asked else "")
    assert roundtrip(secure_server, config, bodies) == sorted(bodies * 2)


def refuse(server, config):
    """Publish where it cannot work; return the error."""
    with Producer([server.tcp_address], config=config) as producer:
        with pytest.raises(PublishRejectedError) as caught:
            producer.publish("events", b"x", timeout=5)
    return caught.value


def test_an_unknown_authority_is_refused(secure_server):
    """Verification is on by default, against the system's roots."""
    assert "certificate" in str(refuse(secure_server, Config(tls_v1=True)))


@pytest.mark.parametrize("kind", ["other_ca", "misnamed", "expired"])
def test_a_wrong_certificate_is_refused(server_factory, certificates, kind):
    cert, key, ca = certificates.server, certificates.server_key, certificates.ca
    if kind == "other_ca":
        ca = certificates.other_ca
    else:
        cert, key = getattr(certificates, kind), getattr(certificates, f"{kind}_key")
    server = server_factory(tls_cert=cert, tls_key=key)
    error = refuse(server, Config(tls_v1=True, tls_root_ca_file=ca))
    assert "certificate" in str(error) and not server.stats()["topics"]


def test_verification_can_be_turned_off_with_a_warning(secure_server, caplog):
    config = Config(tls_v1=True, tls_insecure_skip_verify=True)
    with caplog.at_level(logging.WARNING):
        assert roundtrip(secure_server, config, [b"x"]) == [b"x", b"x"]
    assert "not verified" in caplog.text


def test_a_connection_without_required_tls_is_refused(server_factory, certificates):
    """nsqd's own words reach the caller."""
    server = server_factory(
        tls_cert=certificates.server, tls_key=certificates.server_key, tls_required=True
    )
    with Producer([server.tcp_address]) as producer:
        with pytest.raises(PublishRejectedError, match="TLS required"):
            producer.publish("events", b"x", timeout=5)


def test_a_restarted_nsqd_goes_through_the_same_negotiation(secure_server, certificates):
    config = Config(tls_v1=True, deflate=True, tls_root_ca_file=certificates.ca)
    with Producer([secure_server.tcp_address], config=config) as producer:
        producer.publish("events", b"before")
        secure_server.restart()
        producer.publish("events", b"after")
    assert secure_server.stats("events")["depth"] == 2
