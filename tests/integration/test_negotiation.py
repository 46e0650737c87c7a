"""IDENTIFY, TLS, compression and AUTH with both kinds of server, granted and refused."""

import logging
import ssl

import pytest
import requests

from nsqclient import (
    Config, ConfigError, Producer, PublishRejectedError, TLSError,
)
from nsqclient.errors import ServerError
from tests.integration.test_consumer import Collector, consume
from tests.support.servers.auth_server import NOTHING, AuthServer, granted
from tests.support.servers.ports import free_port
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
def secure(server_factory, certificates):
    def start(**options):
        return server_factory(
            tls_cert=certificates.server, tls_key=certificates.server_key, **options)

    return start


@pytest.fixture
def secure_server(secure):
    return secure()


def roundtrip(server, config, bodies):
    """Publish and consume bodies with one config; return what arrived."""
    with Producer([server.tcp_address], config=config) as producer:
        for body in bodies:
            producer.publish("events", body)
        producer.publish_many("events", bodies)
    collector = Collector()
    with consume(server, collector, config=config, max_in_flight=5):
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
    """Publish although negotiation fails; return the error."""
    with Producer([server.tcp_address], config=config) as producer:
        with pytest.raises(PublishRejectedError) as caught:
            producer.publish("events", b"x", timeout=5)
    return caught.value


@pytest.mark.parametrize("name, ca", [
    ("server", ""), ("server", "other_ca"), ("misnamed", "ca"), ("expired", "ca"),
])
def test_a_wrong_certificate_is_refused(server_factory, certificates, name, ca):
    """Verification is on by default, against the system's roots."""
    server = server_factory(tls_cert=getattr(certificates, name),
                            tls_key=getattr(certificates, f"{name}_key"))
    ca_file = getattr(certificates, ca) if ca else ""
    error = refuse(server, Config(tls_v1=True, tls_root_ca_file=ca_file))
    assert "certificate" in str(error) and not server.stats()["topics"]


def test_verification_can_be_turned_off_with_a_warning(secure_server, caplog):
    config = Config(tls_v1=True, tls_insecure_skip_verify=True)
    with caplog.at_level(logging.WARNING):
        assert roundtrip(secure_server, config, [b"x"]) == [b"x", b"x"]
    assert "not verified" in caplog.text


def test_a_connection_without_required_tls_is_refused(secure):
    assert "TLS required" in str(refuse(secure(tls_required=True), Config()))


def connected(server, config):
    """A consumer's view of its connection, and nsqd's view of the consumer."""
    with consume(server, Collector(), config=config) as consumer:
        wait_until(lambda: server.stats("events", "c").get("clients"))
        wait_until(lambda: consumer.stats().connections)
        client, = server.stats("events", "c")["clients"]
        ours, = consumer.stats().connections
    return ours.negotiated, client


def test_the_negotiated_values_are_in_the_statistics_of_both_ends(server):
    config = Config(
        output_buffer_size=128, output_buffer_timeout=0.05, msg_timeout=2.5, sample_rate=7,
        heartbeat_interval=5, topology_region="r", topology_zone="z",
        client_id="me", hostname="here", user_agent="mine/1.0",
    )
    answer, client = connected(server, config)
    expected = {
        "version": "1.3.0", "max_rdy_count": 2500, "max_msg_timeout": 900_000,
        "output_buffer_size": 128, "output_buffer_timeout": 50, "msg_timeout": 2500,
        "sample_rate": 7, "tls_v1": False, "snappy": False, "deflate": False,
        "max_deflate_level": 6, "auth_required": False,
    }
    assert {key: answer[key] for key in expected} == expected
    keys = ("client_id", "hostname", "user_agent", "sample_rate")
    assert [client[key] for key in keys] == ["me", "here", "mine/1.0", 7]


def test_heartbeats_can_be_off_for_producers(server):
    """-1: nsqd sends none to a producer; a consumer cannot have that."""
    with Producer([server.tcp_address], config=Config(heartbeat_interval=-1)) as producer:
        producer.publish("events", b"x")
    with pytest.raises(ConfigError, match="heartbeat"):
        consume(server, Collector(), config=Config(heartbeat_interval=-1))


def refused(server, config):
    """Consume although negotiation fails; return nsqd's error, which on_error gets."""
    errors = []
    with consume(server, Collector(), config=config, on_error=errors.append):
        wait_until(lambda: errors)
    return errors[0] if isinstance(errors[0], ServerError) else errors[0].__cause__


def test_a_value_beyond_the_servers_own_limit_is_refused(server_factory):
    refusal = refused(server_factory(max_msg_timeout=60), Config(msg_timeout=61))
    assert refusal.code == "E_BAD_BODY" and "msg timeout (61000) is invalid" in str(refusal)


def test_a_minimum_version_is_negotiated(secure_server, certificates):
    config = Config(tls_v1=True, tls_root_ca_file=certificates.ca, tls_min_version="tls1.3",
                    snappy=True)
    _, client = connected(secure_server, config)
    assert (client["tls"], client["tls_version"], client["snappy"], client["deflate"]) == (
        True, "TLS1.3", True, False)


def test_tls_server_name_is_checked_in_place_of_the_address(server_factory, certificates):
    server = server_factory(tls_cert=certificates.misnamed, tls_key=certificates.misnamed_key)
    config = Config(tls_v1=True, tls_root_ca_file=certificates.ca)
    assert "certificate" in str(refuse(server, config))
    named = config.replace(tls_server_name="nsqd.example")
    assert roundtrip(server, named, [b"x"]) == [b"x", b"x"]


def test_an_ssl_context_of_the_user_is_used(secure_server, certificates):
    context = ssl.create_default_context(cafile=certificates.ca)
    assert roundtrip(secure_server, Config(tls_v1=True, tls_config=context), [b"x"]) == [b"x", b"x"]
    strict = ssl.create_default_context(cafile=certificates.other_ca)
    assert "certificate" in str(refuse(secure_server, Config(tls_v1=True, tls_config=strict)))


@pytest.mark.parametrize("policy, name, is_accepted", [
    ("", "", True),
    ("require-verify", "client", True),
    ("require-verify", "stranger", False),
    ("require-verify", "", False),
    ("unheard-of", "", True),
])
def test_clients_are_asked_for_certificates_as_the_policy_says(
    secure, certificates, policy, name, is_accepted
):
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
        error = refuse(server, config)
        assert isinstance(error.__cause__, TLSError), repr(error.__cause__)
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


SECRET = "s3cret of+the&test"


def knows_the_secret(query):
    """Permit topic ``events`` to the one secret, and nothing to others."""
    return granted() if query["secret"] == SECRET else NOTHING


@pytest.fixture
def auth():
    with AuthServer(knows_the_secret) as server:
        yield server


@pytest.fixture
def guarded(server_factory, auth):
    return server_factory(auth_http_addresses=[auth.address])


def test_the_right_secret_permits_publishing_and_consuming(guarded, auth, caplog):
    with caplog.at_level(logging.DEBUG):
        assert roundtrip(guarded, Config(auth_secret=SECRET), [b"x"]) == [b"x", b"x"]
    assert auth.questions[0] == {
        "secret": SECRET, "tls": "false", "remote_ip": "127.0.0.1", "common_name": "",
    }
    assert len(auth.questions) == 2
    assert "authenticated as joe" in caplog.text and "without TLS" in caplog.text


def test_no_logger_shows_the_secret(guarded, caplog):
    with caplog.at_level(1):
        roundtrip(guarded, Config(auth_secret=SECRET), [b"x"])
        error = refuse(guarded, Config(auth_secret=SECRET + "-wrong"))
    text = caplog.text + "".join(repr(record.args) for record in caplog.records)
    assert "s3cret" not in text + repr(error) + repr(error.__cause__)


@pytest.mark.parametrize("rule, code, text", [
    (lambda query: NOTHING, "E_UNAUTHORIZED", "AUTH no authorizations found"),
    (lambda query: 403, "E_AUTH_FAILED", "AUTH failed"),
    (lambda query: granted(ttl=0), "E_AUTH_FAILED", "AUTH failed"),
    (lambda query: granted(authorizations=[{"permissions": ["fly"]}]), "E_AUTH_FAILED",
     "AUTH failed"),
    (lambda query: granted(topic="a{99999999999}"), "E_AUTH_FAILED", "AUTH failed"),
    (lambda query: granted(topic="^other$"), "E_UNAUTHORIZED",
     'AUTH failed for PUB on "events" ""'),
], ids=["nothing granted", "403", "no ttl", "unknown permission", "bad pattern",
        "another topic"])
def test_a_refusal_carries_nsqds_text(guarded, auth, rule, code, text):
    auth.rule = rule
    error = refuse(guarded, Config(auth_secret=SECRET))
    assert error.code == code and f"{code} {text}" in str(error)


def test_the_next_auth_server_is_asked(server_factory, auth):
    addresses = [f"127.0.0.1:{free_port()}", auth.address]
    server = server_factory(auth_http_addresses=addresses)
    assert roundtrip(server, Config(auth_secret=SECRET), [b"x"]) == [b"x", b"x"]


def test_a_consumer_reports_why_it_may_not_subscribe(guarded, auth):
    auth.rule = lambda query: granted(topic="^other$")
    refusal = refused(guarded, Config(auth_secret=SECRET))
    assert refusal.code == "E_UNAUTHORIZED" and 'SUB on "events" "c"' in str(refusal)


def test_a_permission_that_expires_is_asked_for_again(guarded, auth):
    auth.rule = lambda query: granted(ttl=1)
    with Producer([guarded.tcp_address], config=Config(auth_secret=SECRET)) as producer:
        producer.publish("events", b"x")
        wait_until(lambda: producer.publish("events", b"x") or len(auth.questions) > 1)


def test_a_revoked_permission_refuses_further_publishes(guarded, auth):
    auth.rule = lambda query: granted(ttl=1)
    with Producer([guarded.tcp_address], config=Config(auth_secret=SECRET)) as producer:
        producer.publish("events", b"x")
        auth.rule = lambda query: NOTHING
        with pytest.raises(PublishRejectedError) as caught:
            wait_until(lambda: producer.publish("events", b"x"))
    assert caught.value.code == "E_UNAUTHORIZED"


def test_an_identity_for_tls_connections_is_granted_with_tls(secure, certificates, auth):
    """The auth server hears whether TLS is spoken, and the name in the client's certificate."""
    auth.rule = lambda query: granted() if query["tls"] == "true" else NOTHING
    server = secure(auth_http_addresses=[auth.address], tls_root_ca_file=certificates.ca,
                    tls_client_auth_policy="require-verify", tls_required=False)
    config = Config(
        auth_secret=SECRET, tls_v1=True, tls_root_ca_file=certificates.ca,
        tls_cert=certificates.client, tls_key=certificates.client_key, snappy=True,
    )
    assert roundtrip(server, config, [b"x"]) == [b"x", b"x"]
    assert {query["common_name"] for query in auth.questions} == {"worker-1"}


def test_a_secret_may_have_any_bytes(guarded, auth):
    auth.rule = lambda query: granted()
    assert roundtrip(guarded, Config(auth_secret="k\udcff\u00e9y"), [b"x"]) == [b"x", b"x"]
    assert auth.questions[0]["secret"] == "k\udcff\u00e9y"
