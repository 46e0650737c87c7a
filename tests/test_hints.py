"""Advice: the common errors have a sentence that says what to do."""

import socket

import pytest

from nsqclient import errors
from nsqclient.hints import hint_for


@pytest.mark.parametrize(("error", "words"), [
    (errors.NotNSQError("x"), "not its HTTP port"),
    (errors.NotNSQError("TCP port (4160 by default)"), "4150 nsqd's"),
    (errors.server_error(b"E_BAD_PROTOCOL"), "nsqlookupd's TCP port"),
    (errors.ConnectError("a:1", "[Errno 111] Connection refused"), "see that nsqd runs"),
    (errors.ConnectError("a:1", "local_addr 'b:0' cannot be used: host unknown"), "or leave it"),
    (errors.ConnectError("a:1", "Name or service not known"), "does not resolve"),
    (errors.ConnectError("a:1", "connected, but no answer within 5 s"), "something else"),
    (errors.ConnectError("a:1", "no answer within 1 s"), "firewall"),
    (errors.ConnectError("a:1", "[Errno 24] Too many open files"), "ulimit -n"),
    (errors.ConnectError("a:1", "HTTP 403: channel c not registered."), "/channel/create"),
    (errors.ConnectError("a:1", "start_at: HTTP 403: FORBIDDEN"), "create the channel first"),
    (errors.server_error(b"E_SUB_CHANNEL_NOT_REGISTERED c"), "/channel/create"),
    (errors.TLSError("certificate verify failed: self-signed"), "tls_root_ca_file"),
    (errors.TLSError("verify failed: Hostname mismatch"), "tls_server_name"),
    (errors.TLSError("verify failed: certificate has expired"), "renew"),
    (errors.TLSError("tlsv13 alert certificate required"), "tls_cert and tls_key"),
    (errors.TLSError("unsupported protocol version"), "tls_min_version"),
    (errors.TLSError("what else"), "tls_*"),
    (errors.NegotiationError("nsqd requires authentication: set auth_secret"), "auth_secret"),
    (errors.NegotiationError("nsqd does not grant tls_v1"), "--tls-cert"),
    (errors.NegotiationError("nsqd does not grant snappy"), "--snappy"),
    (errors.server_error(b"E_UNAUTHORIZED"), "permission"),
    (errors.server_error(b"E_AUTH_DISABLED"), "do without auth_secret"),
    (errors.server_error(b"E_AUTH_FAILED"), "auth_secret is right"),
    (errors.server_error(b"E_SUB_FAILED"), "--max-channel-consumers"),
    (errors.server_error(b"E_INVALID cannot SUB in current state (TLS required)"), "set tls_v1"),
    (errors.server_error(b"E_BAD_BODY IDENTIFY msg timeout (60000000) is invalid"),
     "--max-msg-timeout"),
    (errors.server_error(b"E_BAD_BODY IDENTIFY heartbeat interval (90000) is invalid"),
     "heartbeat_interval"),
    (errors.server_error(b"E_BAD_BODY IDENTIFY output buffer size (9) is invalid"),
     "--max-output-buffer-size"),
    (errors.server_error(b"E_BAD_BODY IDENTIFY output buffer timeout (9) is invalid"),
     "--min- and --max-output-buffer-timeout"),
    (errors.server_error(b"E_SUB_FAILED SUB failed exiting"), "being deleted"),
    (errors.server_error(b"E_TOO_MANY_CHANNEL_CONSUMERS x"), "--max-channel-consumers"),
    (errors.TLSError("certificate verify failed: CA cert does not include key usage extension"),
     "VERIFY_X509_STRICT"),
    (errors.TLSError("certificate verify failed: Missing Authority Key Identifier"),
     "VERIFY_X509_STRICT"),
    (errors.DiscoveryError("a:1", "connection refused"), "nsqlookupd runs"),
    (errors.DiscoveryError("a:1", "host unknown"), "does not resolve"),
    (errors.DiscoveryError("a:1", "this looks like its TCP port (4160)"), "4161"),
    (errors.DiscoveryError("a:1", "TLS: wrong version"), "http://"),
    (errors.DiscoveryError("a:1", "HTTP 404: NOT_FOUND"), "HTTP address of an nsqlookupd"),
])
def test_an_error_has_a_hint(error, words):
    hint = hint_for(error)
    assert words in hint and "\n" not in hint and not hint.endswith(".")


def test_a_name_server_that_does_not_answer_is_no_wrong_address():
    error = errors.ConnectError("a:1", "host 'a' is unknown (Temporary failure in name resolution)")
    error.__cause__ = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert "correct the address" not in hint_for(error) and "name server" in hint_for(error)


@pytest.mark.parametrize("error", [
    errors.ConnectionLostError("a:1", "closed by the peer"), errors.server_error(b"E_INVALID x"),
    errors.NegotiationError("something new"), errors.server_error(b"E_BAD_BODY x"),
    errors.ConnectError("a:1", "topic t has no channel there: create a channel first"),
])
def test_an_unknown_error_has_no_hint(error):
    assert hint_for(error) == ""
