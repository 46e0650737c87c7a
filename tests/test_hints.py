"""Hints: an error says what to do about it."""

import pytest

from nsqclient import errors
from nsqclient.errors import known_failure, server_error, with_hint
from nsqclient.hints import hint_on


@pytest.mark.parametrize(("data", "words"), [
    (b"E_BAD_PROTOCOL", "nsqlookupd's TCP port"),
    (b"E_SUB_CHANNEL_NOT_REGISTERED c", "/channel/create"),
    (b"E_UNAUTHORIZED", "permission"),
    (b"E_AUTH_DISABLED", "do without auth_secret"),
    (b"E_AUTH_FAILED", "auth_secret is right"),
    (b"E_SUB_FAILED", "--max-channel-consumers"),
    (b"E_INVALID cannot SUB in current state (TLS required)", "set tls_v1"),
    (b"E_BAD_BODY IDENTIFY msg timeout (60000000) is invalid", "--max-msg-timeout"),
    (b"E_BAD_BODY IDENTIFY heartbeat interval (90000) is invalid", "heartbeat_interval"),
    (b"E_BAD_BODY IDENTIFY output buffer size (9) is invalid", "--max-output-buffer-size"),
    (b"E_BAD_BODY IDENTIFY output buffer timeout (9) is invalid",
     "--min- and --max-output-buffer-timeout"),
    (b"E_SUB_FAILED SUB failed exiting", "being deleted"),
    (b"E_TOO_MANY_CHANNEL_CONSUMERS x", "--max-channel-consumers"),
])
def test_an_error_of_nsqd_has_a_hint(data, words):
    hint = server_error(data).hint
    assert words in hint and "\n" not in hint and not hint.endswith(".")


@pytest.mark.parametrize(("kind", "text", "words"), [
    ("TLS", "certificate verify failed: self-signed", "tls_root_ca_file"),
    ("TLS", "verify failed: Hostname mismatch", "tls_server_name"),
    ("TLS", "verify failed: certificate has expired", "renew"),
    ("TLS", "tlsv13 alert certificate required", "tls_cert and tls_key"),
    ("TLS", "unsupported protocol version", "tls_min_version"),
    ("TLS", "certificate verify failed: CA cert does not include key usage extension",
     "VERIFY_X509_STRICT"),
    ("TLS", "certificate verify failed: Missing Authority Key Identifier", "VERIFY_X509_STRICT"),
    ("TLS", "what else", "tls_*"),
    ("HTTP 403", "HTTP 403: channel c not registered.", "/channel/create"),
    ("HTTP 403", "HTTP 403: FORBIDDEN", "create the channel first"),
    ("nsqlookupd", "Key not found", "POST /topic/create"),
])
def test_a_text_of_openssl_or_of_an_http_api_has_a_hint(kind, text, words):
    assert words in hint_on(kind, text)


def test_an_unknown_text_has_no_hint():
    assert server_error(b"E_INVALID x").hint == server_error(b"E_BAD_BODY x").hint == ""


def test_the_hint_of_a_cause_is_shown_once():
    lost = errors.ConnectError("a:1", "refused", "start it")
    assert with_hint(lost, "a:1") == "refused; start it"
    outer = errors.PublishNotSentError(with_hint(lost))
    assert known_failure(outer) == ""  # no cause is known
    outer.__cause__ = lost
    assert known_failure(outer) == "a:1: refused; start it"
    outer = errors.PublishNotSentError("not sent")
    outer.__cause__ = lost
    assert known_failure(outer) == "not sent; start it"
    assert known_failure(ValueError()) == ""
