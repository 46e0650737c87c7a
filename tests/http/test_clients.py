"""NsqdHTTP and NsqlookupdHTTP against a server that answers what the test says."""

import json
import os
import socket
import ssl
from contextlib import ExitStack

import pytest

from nsqclient.config import Config
from nsqclient.errors import (
    ConfigError, DiscoveryError, InvalidChannelError, InvalidMessageError, InvalidTopicError,
    NSQHTTPResponseError, NSQHTTPStatusError, NSQHTTPTransportError, TLSError,
)
from nsqclient.http import NsqdHTTP, NsqlookupdHTTP
from nsqclient.http.nsqd import find_http_address
from nsqclient.http.urls import nsqd_url
from nsqclient.runtime.tls import server_context
from tests.support.certificates import Certificates
from tests.support.servers.http_recorder import recording
from tests.support.servers.scripted import ScriptedServer


@pytest.fixture
def server(leak_guard):
    with recording() as recorder:
        yield recorder


@pytest.fixture
def nsqd(server):
    with NsqdHTTP(server.address) as client:
        yield client


@pytest.fixture
def lookupd(server):
    with NsqlookupdHTTP(server.address) as client:
        yield client


@pytest.mark.parametrize("address, url", [
    ("h:1", "http://h:1/pub"), ("http://h:1/", "http://h:1/pub"), ("https://h", "https://h/pub"),
    ("http://h/nsq/", "http://h/nsq/pub"), ("[::1]:1", "http://[::1]:1/pub"),
])
def test_path_in_an_address_of_nsqd_is_a_prefix(address, url):
    assert nsqd_url(address, "pub") == url


@pytest.mark.parametrize("make", [NsqdHTTP, NsqlookupdHTTP])
@pytest.mark.parametrize("address", ["h", "ftp://h:1", None])
def test_invalid_address_is_refused(make, address):
    with pytest.raises(ConfigError, match="http_address"):
        make(address)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"connect_timeout": -1}])
def test_timeout_must_be_a_positive_duration(options):
    with pytest.raises(ConfigError, match="timeout"):
        NsqdHTTP("h:1", **options)


def test_secret_is_sent_to_nsqlookupd_only(server):
    config = Config(user_agent="mine/1", auth_secret="s3cret")
    server.body = b'{"topics":[]}'
    with NsqdHTTP(server.address, config, headers={"X-A": "\u00fc"}) as nsqd:
        nsqd.ping()
    with NsqdHTTP(server.address, config, bearer_token="t0ken") as nsqd:
        nsqd.ping()
    with NsqlookupdHTTP(server.address, config) as lookupd:
        lookupd.topics()
    with NsqlookupdHTTP(server.address, config, bearer_token="") as lookupd:
        lookupd.topics()
    sent = [request.headers for request in server.requests]
    assert sent[0]["User-Agent"] == "mine/1" and sent[0]["Accept-Encoding"] == "gzip"
    assert sent[0]["X-A"].encode("latin-1") == "\u00fc".encode()
    assert [headers.get("Authorization") for headers in sent] == [
        None, "Bearer t0ken", "Bearer s3cret", None,
    ]


@pytest.mark.parametrize("call, error", [
    (lambda c: c.pub("t", b"x" * 101), InvalidMessageError),
    (lambda c: c.pub("t!", b"x"), InvalidTopicError),
    (lambda c: c.pub("t", b"x", defer=3601), InvalidMessageError),
    (lambda c: c.pub("t", b"x", defer=-1), ConfigError),
    (lambda c: c.mpub("t", []), InvalidMessageError),
    (lambda c: c.mpub("t", [b"x" * 100] * 10), InvalidMessageError),
    (lambda c: c.mpub("t", [b"x", b""]), InvalidMessageError),
    (lambda c: c.create_topic("t\n"), InvalidTopicError),
    (lambda c: c.create_channel("t", ""), InvalidChannelError),
    (lambda c: c.stats("a b"), InvalidTopicError),
])
def test_arguments_that_nsqd_would_refuse_are_not_sent(server, call, error):
    config = Config(nsqd_max_msg_size=100, nsqd_max_body_size=1000)
    with NsqdHTTP(server.address, config) as nsqd, pytest.raises(error):
        call(nsqd)
    assert server.requests == []


@pytest.mark.parametrize("body, message", [
    (b'{"message":"INVALID_TOPIC"}', "INVALID_TOPIC"),
    (b"NOK - disk full", "NOK - disk full"),
    (b'{"message": "TLS_REQUIRED", "https_port": 4152}', "TLS_REQUIRED (HTTPS is on port 4152)"),
    (b"[1]", "[1]"),
    (b"", ""),
])
def test_error_has_the_status_and_text_of_the_server(server, nsqd, body, message):
    server.status, server.body = 403, body
    with pytest.raises(NSQHTTPStatusError) as caught:
        nsqd.ping()
    assert (caught.value.status, caught.value.message) == (403, message)
    assert str(caught.value) == f"http://{server.address}/ping: HTTP 403: {message}"


@pytest.mark.parametrize("body", [
    b"", b"OK", b"[]", b'{"topics": {}}', b"[" * 100_000, b'{"start_time": NaN}'])
def test_response_that_is_no_stats_is_an_error(server, nsqd, body):
    server.body = body
    with pytest.raises(NSQHTTPResponseError):
        nsqd.stats()


def test_json_beyond_the_limits_is_an_error(server, nsqd, lookupd):
    calls = [
        (b'{"start_time": %s}', nsqd.info), (b'{"start_time": %s, "topics": []}', nsqd.stats),
        (b'{"topics": [{"depth": %s}]}', nsqd.stats_json),
        (b"%s", lambda: nsqd.get_option("max_msg_size")),
        (b'{"producers": [{"tcp_port": %s}]}', lookupd.nodes),
    ]
    for body, call in calls:
        server.body = body % (b"1" * 309)
        with pytest.raises(
                NSQHTTPResponseError, match="not a usable answer: .*a number of 309 digits"):
            call()


def test_a_lookup_answer_with_other_fields_is_refused(server, lookupd):
    """Of another kind of NSQ: its producers would not be the nsqds of the topic."""
    server.body = b'{"channels": [], "producers": [], "partitions": {}, "meta": {}}'
    with pytest.raises(DiscoveryError, match="use nsqclient.partitioned"):
        lookupd.lookup("t")


def test_invalid_producers_do_not_hide_the_others(server, lookupd, caplog):
    server.body = (b'{"producers": [7, {"tcp_port": "x"}, {"broadcast_address": "h"},'
                   b' {"broadcast_address": "h", "tcp_port": 65536}]}')
    assert [p.broadcast_address for p in lookupd.lookup("t").producers] == ["h"]
    assert caplog.text.count("unusable producer") == 3


def test_server_that_does_not_respond_is_a_timeout(server):
    server.release.clear()
    with NsqdHTTP(server.address, timeout=0.05) as nsqd:
        with pytest.raises(NSQHTTPTransportError, match="no whole answer within 0.05 s"):
            nsqd.ping()


def test_refused_connection_names_the_server():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with NsqdHTTP("127.0.0.1:%d" % bound.getsockname()[1]) as nsqd:
            with pytest.raises(NSQHTTPTransportError, match="refused: is nsqd running there"):
                nsqd.ping()


@pytest.mark.parametrize("options", [
    {"bearer_token": "s3cret\n"}, {"bearer_token": "s3cret\r\nX: y"},
    {"config": Config(user_agent=" s3cret")},
])
def test_error_of_an_invalid_header_does_not_show_the_secret(server, options):
    with NsqdHTTP(server.address, **options) as nsqd:
        with pytest.raises(NSQHTTPTransportError) as caught:
            nsqd.ping()
    assert "s3cret" not in str(caught.value) and server.requests == []


def test_a_broken_upload_names_the_limits_of_nsqd(leak_guard):
    """The outcome is unknown. nsqd closes in the middle of a body that is too large."""
    with ScriptedServer(lambda peer: peer.exactly(4)) as server, NsqdHTTP(server.address) as nsqd:
        with pytest.raises(NSQHTTPTransportError, match="in the upload of 1000 bytes") as caught:
            nsqd.pub("t", b"x" * 1000)
    assert "--max-msg-size" in caught.value.hint


def test_a_forked_child_opens_its_own_connections(server, nsqd):
    nsqd.ping()
    before = nsqd._adapter
    pid = os.fork()
    if pid == 0:
        ok = nsqd._adapter is not before
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secure(leak_guard, certificates):
    with ExitStack() as stack:
        yield lambda pair, **options: stack.enter_context(
            recording(server_context(cert=pair[0], key=pair[1], **options)))


def _ping(server, **options):
    with NsqdHTTP(server.url, Config(**options)) as nsqd:
        nsqd.ping()


@pytest.mark.parametrize("which, authority", [
    ("server", "other_ca"), ("misnamed", "ca"), ("expired", "ca"), ("server", None),
])
def test_untrusted_server_is_refused(secure, certificates, which, authority):
    server = secure((getattr(certificates, which), getattr(certificates, f"{which}_key")))
    options = {} if authority is None else {
        "tls_v1": True, "tls_root_ca_file": getattr(certificates, authority),
    }
    with pytest.raises(NSQHTTPTransportError, match="TLS: .*certificate verify failed"):
        _ping(server, **options)
    assert server.requests == []


def test_verification_can_be_turned_off(secure, certificates):
    server = secure((certificates.misnamed, certificates.misnamed_key))
    with pytest.warns(match="Unverified HTTPS request"):
        _ping(server, tls_v1=True, tls_insecure_skip_verify=True)


def test_tls_config_is_used_as_it_is(secure, certificates):
    context = ssl.create_default_context(cafile=certificates.ca)
    _ping(secure((certificates.server, certificates.server_key)),
          tls_v1=True, tls_config=context)


@pytest.mark.parametrize(("data", "expected"), [
    (b"\0\0\0\x12\0\0\0\1E_BAD_PROTOCOL", r"looks like its TCP port \(4150 by default"),
    (b"220 mail.example.com ESMTP\r\n", "the answer is not HTTP: '220 mail"),
    (b"", "the connection was closed before an answer"),
])
def test_only_a_peer_that_answers_as_nsq_is_called_its_tcp_port(data, expected):
    def script(peer):
        peer.exactly(4)
        while data and peer.line().strip():
            pass
        peer.send(data)

    with ScriptedServer(script) as server:
        with NsqdHTTP(server.address) as nsqd:
            with pytest.raises(NSQHTTPTransportError, match=expected) as caught:
                nsqd.ping()
    assert caught.value.is_lasting == bool(data)


def test_unreadable_ca_file_is_a_tls_error():
    with pytest.raises(TLSError, match="no-such-file"):
        NsqdHTTP("https://h", Config(tls_v1=True, tls_root_ca_file="no-such-file"))


def test_an_http_api_beside_a_port_must_be_of_the_same_nsqd(server):
    """The port after the TCP port may be another nsqd's."""
    host, _, port = server.address.rpartition(":")
    nsqd = f"{host}:{int(port) - 1}"
    server.body = json.dumps({"tcp_port": int(port) - 1}).encode()
    assert find_http_address(nsqd, Config(), 10) == server.address
    server.body = b'{"tcp_port": 4150}'
    with pytest.raises(NSQHTTPResponseError, match="has the TCP port 4150"):
        find_http_address(nsqd, Config(), 10)
