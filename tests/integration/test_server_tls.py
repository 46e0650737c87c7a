"""TLS of the servers: client certificates, HTTPS, and versions, alike on both kinds of server."""

from __future__ import annotations

import socket
import ssl
import warnings

import pytest
import requests

from nsqclient import Config, Producer, PublishRejectedError, TLSError
from tests.integration.test_negotiation import roundtrip


@pytest.fixture
def secure(server_factory, certificates):
    def start(**options):
        return server_factory(
            tls_cert=certificates.server, tls_key=certificates.server_key, **options)

    return start


@pytest.mark.parametrize("policy, name, is_accepted", [
    ("", "", True),
    ("require", "stranger", True),
    ("require", "expired", True),
    ("require", "", False),
    ("require-verify", "client", True),
    ("require-verify", "stranger", False),
    ("require-verify", "", False),
    ("unheard-of", "", True),
])
def test_clients_are_asked_for_certificates_as_the_policy_says(
    secure, certificates, policy, name, is_accepted
):
    """On the TCP port and over HTTPS."""
    options = {"tls_client_auth_policy": policy} if policy else {}
    server = secure(tls_root_ca_file=certificates.ca, **options)
    pair = (getattr(certificates, name), getattr(certificates, f"{name}_key")) if name else None
    config = Config(tls_v1=True, tls_root_ca_file=certificates.ca)
    if pair is not None:
        config = config.replace(tls_cert=pair[0], tls_key=pair[1])

    def ping():
        return requests.get(f"https://{server.https_address}/ping", cert=pair,
                            verify=certificates.ca, timeout=10).text

    if is_accepted:
        assert roundtrip(server, config, [b"x"]) == [b"x", b"x"]
        assert ping() == "OK"
    else:
        with Producer([server.tcp_address], config=config) as producer:
            with pytest.raises(PublishRejectedError) as caught:
                producer.publish("events", b"x", timeout=5)
        assert isinstance(caught.value.__cause__, TLSError), repr(caught.value.__cause__)
        with pytest.raises(requests.ConnectionError):
            ping()


def test_the_whole_api_is_there_over_https(secure, certificates):
    """A message that is published over HTTPS is in /stats, on one connection."""
    server = secure()
    with requests.Session() as session:
        base = f"https://{server.https_address}"
        answer = session.post(f"{base}/pub?topic=t", data=b"x" * 100_000,
                              verify=certificates.ca, timeout=10)
        assert (answer.status_code, answer.text) == (200, "OK")
        stats = session.get(f"{base}/stats?format=json", verify=certificates.ca,
                            timeout=10).json()
        assert [topic["depth"] for topic in stats["topics"]] == [1]


def test_http_without_tls_names_the_port_of_https(secure):
    server = secure(tls_required=True)
    answer = requests.get(f"http://{server.http_address}/ping", timeout=10)
    port = int(server.https_address.rpartition(":")[2])
    assert answer.status_code == 403
    assert answer.text == '{"message": "TLS_REQUIRED", "https_port": %d}' % port


def offers(address, version):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        try:
            with context.wrap_socket(sock):
                return True
        except ssl.SSLError:
            return False


@pytest.mark.parametrize("lowest, offered", [
    (None, (True, True, True, True)),
    ("tls1.2", (False, False, True, True)),
])
def test_the_versions_of_tls_begin_with_the_lowest_one(secure, lowest, offered):
    server = secure(**({} if lowest is None else {"tls_min_version": lowest}))
    versions = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2,
                ssl.TLSVersion.TLSv1_3)
    assert tuple(offers(server.https_address, version) for version in versions) == offered
