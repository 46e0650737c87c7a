"""The options of TLS, on both kinds of server, and handshakes that do not end well."""

from __future__ import annotations

import ssl

import pytest

from nsqclient import Config, ConnectError, Consumer, Producer, TLSError
from nsqclient.connection.connection import Connection
from nsqclient.devserver import Nsqd
from nsqclient.protocol.frames import encode_frame
from nsqclient.runtime.deadline import Deadline
from tests.integration.test_consumer import Collector
from tests.integration.test_negotiation import refuse, roundtrip
from tests.support.servers.scripted import ScriptedServer
from tests.support.waiting import wait_until

GRANTED = encode_frame(0, b'{"version":"1.3.0","tls_v1":true}')


@pytest.fixture
def secure(server_factory, certificates):
    return server_factory(tls_cert=certificates.server, tls_key=certificates.server_key)


def test_a_minimum_version_is_negotiated(secure, certificates):
    """TLS 1.3 and nothing less; nsqd's statistics show it, and the compression."""
    config = Config(tls_v1=True, tls_root_ca_file=certificates.ca, tls_min_version="tls1.3",
                    snappy=True)
    consumer = Consumer("events", "c", Collector(), nsqd_tcp_addresses=[secure.tcp_address],
                        config=config)
    with consumer:
        wait_until(lambda: secure.stats("events", "c").get("clients"))
        client, = secure.stats("events", "c")["clients"]
    assert (client["tls"], client["tls_version"], client["snappy"], client["deflate"]) == (
        True, "TLS1.3", True, False)


def test_tls_server_name_is_checked_in_place_of_the_address(server_factory, certificates):
    server = server_factory(tls_cert=certificates.misnamed, tls_key=certificates.misnamed_key)
    config = Config(tls_v1=True, tls_root_ca_file=certificates.ca)
    assert "certificate" in str(refuse(server, config))
    named = config.replace(tls_server_name="nsqd.example")
    assert roundtrip(server, named, [b"x"]) == [b"x", b"x"]


def test_an_ssl_context_of_the_user_is_used(secure, certificates):
    context = ssl.create_default_context(cafile=certificates.ca)
    assert roundtrip(secure, Config(tls_v1=True, tls_config=context), [b"x"]) == [b"x", b"x"]
    strict = ssl.create_default_context(cafile=certificates.other_ca)
    assert "certificate" in str(refuse(secure, Config(tls_v1=True, tls_config=strict)))


def open_connection(address, timeout):
    connection = Connection(address, Config(tls_v1=True), delegate=None)
    connection.open(Deadline(timeout))


def test_a_handshake_that_is_cut_off_is_an_error():
    with ScriptedServer(lambda peer: peer.identify(GRANTED)) as server:
        with pytest.raises(ConnectError, match="during the handshake: "):
            open_connection(server.address, 10)


def test_plain_text_in_place_of_a_handshake_is_an_error():
    """What is no TLS is a TLSError, and nothing but the greeting was sent."""
    sent = []

    def script(peer):
        peer.identify(GRANTED)
        peer.send(encode_frame(0, b"OK"))
        sent.append(peer.until_closed())

    with ScriptedServer(script) as server:
        with pytest.raises(TLSError):
            open_connection(server.address, 10)
    assert sent[0].startswith(b"\x16\x03") and b"NOP" not in sent[0]


@pytest.mark.parametrize("compression", [{}, {"snappy": True}, {"deflate": True}], ids=str)
def test_heartbeats_during_the_handshake_are_not_answered_too_early(certificates, compression):
    """Also before those of the opening: no NOP goes out where nsqd reads something else."""
    with Nsqd(tls_cert=certificates.server, tls_key=certificates.server_key) as nsqd:
        nsqd.faults.heartbeat_before_answers = True
        config = Config(tls_v1=True, tls_root_ca_file=certificates.ca, **compression)
        with Producer([nsqd.tcp_address], config=config) as producer:
            producer.publish("events", b"x")
