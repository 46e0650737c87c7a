"""AUTH between our client and both kinds of server, with a real auth server behind them."""

from __future__ import annotations

import logging

import pytest

from nsqclient import Config, Consumer, Producer, PublishRejectedError
from nsqclient.errors import ServerError
from tests.integration.test_consumer import Collector
from tests.integration.test_negotiation import refuse, roundtrip
from tests.support.servers.auth_server import NOTHING, AuthServer, granted
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

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
    """Publishing and consuming work; each connection asks once, with what nsqd knows."""
    with caplog.at_level(logging.DEBUG):
        assert roundtrip(guarded, Config(auth_secret=SECRET), [b"x"]) == [b"x", b"x"]
    assert auth.questions[0] == {
        "secret": SECRET, "tls": "false", "remote_ip": "127.0.0.1", "common_name": "",
    }
    assert len(auth.questions) == 2
    assert "authenticated as joe" in caplog.text and "without TLS" in caplog.text


def test_no_logger_shows_the_secret(guarded, caplog):
    """Not ours, and not those of the libraries under us: right or wrong, at any level."""
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
    """One of two is down: the other decides."""
    addresses = [f"127.0.0.1:{free_port()}", auth.address]
    server = server_factory(auth_http_addresses=addresses)
    assert roundtrip(server, Config(auth_secret=SECRET), [b"x"]) == [b"x", b"x"]


def test_a_consumer_reports_why_it_may_not_subscribe(guarded, auth):
    """SUB of a topic that is not permitted: on_error gets nsqd's words."""
    auth.rule = lambda query: granted(topic="^other$")
    errors = []
    consumer = Consumer(
        "events", "c", Collector(), nsqd_tcp_addresses=[guarded.tcp_address],
        config=Config(auth_secret=SECRET), on_error=errors.append,
    )
    with consumer:
        wait_until(lambda: errors)
    refusals = [error for error in (errors[0], errors[0].__cause__)
                if isinstance(error, ServerError)]
    assert refusals[0].code == "E_UNAUTHORIZED"
    assert 'SUB on "events" "c"' in str(refusals[0])


def test_a_permission_that_expires_is_asked_for_again(guarded, auth):
    """After its ttl nsqd asks anew, and goes on while the answer is the same."""
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


@pytest.mark.parametrize("policy", ["require", "require-verify"])
def test_an_identity_for_tls_connections_is_granted_with_tls(
    server_factory, certificates, auth, policy
):
    """The auth server hears whether TLS is spoken, and the name in the client's certificate."""
    auth.rule = lambda query: granted() if query["tls"] == "true" else NOTHING
    server = server_factory(
        auth_http_addresses=[auth.address], tls_cert=certificates.server,
        tls_key=certificates.server_key, tls_root_ca_file=certificates.ca,
        tls_client_auth_policy=policy, tls_required=False,
    )
    config = Config(
        auth_secret=SECRET, tls_v1=True, tls_root_ca_file=certificates.ca,
        tls_cert=certificates.client, tls_key=certificates.client_key, snappy=True,
    )
    assert roundtrip(server, config, [b"x"]) == [b"x", b"x"]
    assert {query["common_name"] for query in auth.questions} == {"worker-1"}


def test_a_secret_may_have_any_bytes(guarded, auth):
    """Bytes of a command line that are no UTF-8 reach the auth server as they were."""
    auth.rule = lambda query: granted()
    assert roundtrip(guarded, Config(auth_secret="k\udcff\u00e9y"), [b"x"]) == [b"x", b"x"]
    assert auth.questions[0]["secret"] == "k\udcff\u00e9y"
