"""TLS of the servers: client certificates, HTTPS, and versions, alike on both kinds of server."""

from __future__ import annotations

import socket
import ssl
import warnings

import pytest
import requests

from nsqclient import Config, NSQError, Producer
from tests.integration.test_negotiation import roundtrip
from tests.support.servers.auth_server import AuthServer, granted


@pytest.fixture
def secure(server_factory, certificates):
    """Factory of nsqds with a certificate."""

    def start(**options):
        return server_factory(
            tls_cert=certificates.server, tls_key=certificates.server_key, **options)

    return start


def client_config(certificates, name):
    """A configuration with one of the certificates as the client's."""
    return Config(
        tls_v1=True, tls_root_ca_file=certificates.ca,
        tls_cert=getattr(certificates, name), tls_key=getattr(certificates, f"{name}_key"),
    )


@pytest.mark.parametrize("name", ["stranger", "expired"])
def test_the_policy_require_accepts_any_certificate(secure, certificates, name):
    """Of any authority and any age."""
    server = secure(tls_client_auth_policy="require", tls_root_ca_file=certificates.ca)
    assert roundtrip(server, client_config(certificates, name), [b"x"]) == [b"x", b"x"]


def test_the_policy_require_refuses_a_client_without_a_certificate(secure, certificates):
    """A client without a certificate publishes nothing."""
    server = secure(tls_client_auth_policy="require")
    config = Config(tls_v1=True, tls_root_ca_file=certificates.ca)
    with Producer([server.tcp_address], config=config) as producer:
        with pytest.raises(NSQError):
            producer.publish("events", b"x", timeout=2)


def test_the_auth_server_gets_the_name_of_any_certificate(secure, certificates):
    """The common name counts although nobody vouches for it."""
    with AuthServer(lambda query: granted()) as auth:
        server = secure(tls_client_auth_policy="require", auth_http_addresses=[auth.address])
        config = client_config(certificates, "client").replace(auth_secret="s")
        assert roundtrip(server, config, [b"x"]) == [b"x", b"x"]
        assert {query["common_name"] for query in auth.questions} == {"worker-1"}


@pytest.mark.parametrize("policy, name, is_accepted", [
    ("", "", True), ("require", "stranger", True), ("require", "", False),
    ("require-verify", "client", True), ("require-verify", "stranger", False),
    ("unheard-of", "", True),
])
def test_https_asks_for_certificates_as_the_policy_says(
    secure, certificates, policy, name, is_accepted
):
    """HTTPS has the rules of the TCP port."""
    options = {"tls_client_auth_policy": policy} if policy else {}
    server = secure(tls_root_ca_file=certificates.ca, **options)
    pair = (getattr(certificates, name), getattr(certificates, f"{name}_key")) if name else None

    def ping():
        return requests.get(f"https://{server.https_address}/ping", cert=pair,
                            verify=certificates.ca, timeout=10).text

    if is_accepted:
        assert ping() == "OK"
    else:
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
    """Where TLS is required, the plain port says where to go."""
    server = secure(tls_required=True)
    answer = requests.get(f"http://{server.http_address}/ping", timeout=10)
    port = int(server.https_address.rpartition(":")[2])
    assert answer.status_code == 403
    assert answer.text == '{"message": "TLS_REQUIRED", "https_port": %d}' % port


def offers(address, version):
    """Whether a server on this address speaks this version of TLS."""
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
    """By default at TLS 1.0."""
    server = secure(**({} if lowest is None else {"tls_min_version": lowest}))
    versions = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2,
                ssl.TLSVersion.TLSv1_3)
    assert tuple(offers(server.https_address, version) for version in versions) == offered
