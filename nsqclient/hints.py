"""What to do about an error, in one line: the sentences of ``NSQError.hint``.

The code that raises an error chooses its hint. For error texts of servers and of OpenSSL,
:func:`hint_on` finds the hint.
"""

from __future__ import annotations

RUNS = "see that nsqd runs, and that this is its --tcp-address (port 4150 by default)"
BLOCKED = (
    "a firewall, or an address that only another network can reach: check the route, or nsqd's"
    " --broadcast-address"
)
NOT_NSQD = "something else than nsqd's TCP port listens there, or nsqd hangs"
UNKNOWN_HOST = (
    "the name does not resolve here: correct the address, or start nsqd with a"
    " --broadcast-address that this machine can resolve"
)
NAME_SERVER = "the name server did not answer: it is asked again"
OPEN_FILES = "raise the limit of open files of this process (ulimit -n), or open fewer"
LOCAL_ADDR = "set local_addr to an address of this machine that reaches nsqd, or leave it empty"
HTTP_PORT = "give nsqd's --tcp-address (port 4150 by default), not its HTTP port (4151)"
LOOKUPD_PORT = (
    "4160 is nsqlookupd's TCP port, 4150 nsqd's: give nsqd's --tcp-address, or"
    " nsqlookupd's --http-address (4161) as the address of an nsqlookupd"
)
LOOKUPD_HTTP = "see that this is the HTTP address of an nsqlookupd (port 4161 by default)"
TLS_OPTIONS = "see the tls_* options, and nsqd's --tls-cert and --tls-key"
AUTH_NEEDED = "set auth_secret to a secret that nsqd's auth server knows"
#: Feature that nsqd has not granted -> the hint.
NOT_GRANTED = {
    "tls_v1": "start nsqd with --tls-cert and --tls-key, or do without tls_v1",
    "deflate": "start nsqd with --deflate, or do without deflate",
    "snappy": "start nsqd with --snappy, or do without snappy",
}

_CONSUMERS = "another consumer has to leave, or nsqd needs a higher --max-channel-consumers"
_AUTH = "see that auth_secret is right, and that nsqd reaches its --auth-http-address"
_UNREGISTERED = (
    "the topic takes registered channels only: register the channel with POST"
    " /channel/create?topic=...&channel=... at the leading nsqlookupd"
)
_NAME = "set tls_server_name to a name in nsqd's certificate, or dial it by that name"
_RENEW = "renew nsqd's certificate, and see that the clocks are right"
_STRICT = (
    "Python 3.13 checks certificates strictly: create the authority again with these extensions"
    " (openssl req -x509 -addext keyUsage=critical,keyCertSign), or clear ssl.VERIFY_X509_STRICT"
    " in verify_flags of your SSLContext"
)
_CLIENT = "nsqd asks for a client certificate: set tls_cert and tls_key"


def _out_of_range(option: str, unit: str, flag: str) -> str:
    return f"{option}, in {unit} here, is out of the range of nsqd's {flag}: change one of them"


#: Rows of (error code or kind of text, words in the text, hint). The first match applies.
_SAID = [
    ("E_INVALID", "tls", "nsqd demands TLS: set tls_v1 (and tls_root_ca_file)"),
    ("E_SUB_FAILED", "exiting", "the channel is being deleted: the consumer tries again"),
    ("E_SUB_FAILED", "", _CONSUMERS),
    ("E_TOO_MANY_CHANNEL_CONSUMERS", "", _CONSUMERS),
    ("E_SUB_CHANNEL_NOT_REGISTERED", "", _UNREGISTERED),
    ("E_BAD_BODY", "identify msg timeout",
     _out_of_range("msg_timeout", "seconds", "--max-msg-timeout (15m by default)")),
    ("E_BAD_BODY", "identify heartbeat interval",
     _out_of_range("heartbeat_interval", "seconds", "--max-heartbeat-interval (60s by default)")),
    ("E_BAD_BODY", "identify output buffer size",
     _out_of_range("output_buffer_size", "bytes", "--max-output-buffer-size (64 KiB by default)")),
    ("E_BAD_BODY", "identify output buffer timeout",
     _out_of_range("output_buffer_timeout", "seconds",
                   "--min- and --max-output-buffer-timeout (25ms to 30s by default)")),
    ("E_BAD_PROTOCOL", "",
     "this looks like nsqlookupd's TCP port: give nsqd's (4150 by default)"),
    ("E_UNAUTHORIZED", "",
     "ask the auth server's operator for permission on this topic and channel"),
    ("E_AUTH_DISABLED", "", "nsqd has no --auth-http-address: do without auth_secret"),
    ("E_AUTH_FAILED", "", _AUTH),
    ("E_AUTH_FIRST", "", _AUTH),
    ("E_AUTH_ERROR", "", _AUTH),
    ("TLS", "mismatch", _NAME),
    ("TLS", "not valid for", _NAME),
    ("TLS", "expired", _RENEW),
    ("TLS", "not yet valid", _RENEW),
    ("TLS", "key usage extension", _STRICT),
    ("TLS", "missing authority key identifier", _STRICT),
    ("TLS", "missing subject key identifier", _STRICT),
    ("TLS", "basic constraints of ca cert not marked critical", _STRICT),
    ("TLS", "verify failed",
     "set tls_root_ca_file to the PEM file of the authority behind nsqd's certificate"),
    ("TLS", "certificate required", _CLIENT),
    ("TLS", "bad certificate", _CLIENT),
    ("TLS", "handshake failure", _CLIENT),
    ("TLS", "version", "no TLS version that both allow: see tls_min_version here and at nsqd"),
    ("TLS", "", TLS_OPTIONS),
    ("nsqlookupd", "topic has no channel",
     "subscribe a consumer, or create a channel, before you publish"),
    ("nsqlookupd", "key not found",
     "create the topic with nsqlookupd's POST /topic/create: a publish does not"),
    ("HTTP 403", "tls_required", ""),
    ("HTTP 403", "not registered", _UNREGISTERED),
    ("HTTP 403", "", "nsqd's HTTP API refuses to set start_at: create the channel first"),
]


def hint_on(kind: str, text: str) -> str:
    """Return the hint for an error text of a server or of OpenSSL; empty if none fits.

    Args:
        kind: an error code of nsqd, or "TLS", "nsqlookupd" or "HTTP 403".
    """
    lowered = text.lower()
    return next((hint for of, words, hint in _SAID if of == kind and words in lowered), "")
