"""What to do about an error, in one line: for log lines and for ``nsqclient doctor``.

Pure: an error in, a sentence out. Imports nothing but the errors.
"""

from __future__ import annotations

from nsqclient.errors import (
    ConnectError,
    DiscoveryError,
    NegotiationError,
    NotNSQError,
    NSQError,
    NSQHTTPError,
    NSQHTTPTransportError,
    ServerError,
    TLSError,
)

_RUNS = "see that nsqd runs, and that this is its --tcp-address (port 4150 by default)"
_BLOCKED = (
    "a firewall, or an address that only another network can reach: check the route, or nsqd's"
    " --broadcast-address"
)

#: ``socket.EAI_AGAIN`` of Linux and of macOS: this module imports no socket.
_EAI_AGAIN = (-3, 2)
#: What OpenSSL says of an authority that VERIFY_X509_STRICT refuses.
_STRICT = (
    "key usage extension", "missing authority key identifier", "missing subject key identifier",
    "basic constraints of ca cert not marked critical",
)

_UNREGISTERED = (
    "the topic takes registered channels only: register the channel with POST"
    " /channel/create?topic=...&channel=... at the leading nsqlookupd"
)


def hint_for(error: NSQError) -> str:
    """Say in one line what to do about an error; empty when there is nothing sensible to say."""
    for kind, advise in _ADVISERS:
        if isinstance(error, kind):
            return advise(error)
    return ""


def known_failure(error: BaseException) -> str:
    """Say in one line an error whose cause is known, and what to do; empty for any other.

    The cause may be the error that led to it. A traceback would say no more.
    """
    cause: BaseException | None = error
    while isinstance(cause, NSQError):
        if isinstance(cause, NSQHTTPError):  # of which server is not known here
            return str(error) if isinstance(cause, NSQHTTPTransportError) else ""
        hint = hint_for(cause)
        if hint:
            return str(error) if hint in str(error) else f"{error}; {hint}"
        cause = cause.__cause__
    return ""


def with_hint(error: NSQError, address: str = "") -> str:
    """Say an error and what to do about it in one line; ``address`` is not repeated."""
    text = str(error).removeprefix(f"{address}: ") if address else str(error)
    hint = hint_for(error)
    return f"{text}; {hint}" if hint else text


def _connect(error: NSQError) -> str:
    text = str(error).lower()
    if "too many open files" in text:
        return "raise the limit of open files of this process (ulimit -n), or open fewer"
    if "not registered" in text:
        return _UNREGISTERED
    if "http 403" in text and "tls_required" not in text:
        return "nsqd's HTTP API refuses to set start_at: create the channel first"
    if "local_addr" in text:
        return "set local_addr to an address of this machine that reaches nsqd, or leave it empty"
    if "refused" in text:
        return _RUNS
    cause = error.__cause__
    if (isinstance(cause, OSError) and type(cause).__name__ == "gaierror"
            and cause.errno in _EAI_AGAIN):
        return "the name server did not answer: it is asked again"
    if any(word in text for word in ("not known", "name resolution", "no address", "host unknown")):
        return (
            "the name does not resolve here: correct the address, or start nsqd with a"
            " --broadcast-address that this machine can resolve"
        )
    if "but no answer" in text or "handshake" in text:
        return "something else than nsqd's TCP port listens there, or nsqd hangs"
    blocked = ("no answer", "no connection", "no time", "unreachable", "no route", "timed out")
    return _BLOCKED if any(word in text for word in blocked) else ""


def _not_nsq(error: NSQError) -> str:
    if "4160" in str(error):
        return (
            "4160 is nsqlookupd's TCP port, 4150 nsqd's: give nsqd's --tcp-address, or"
            " nsqlookupd's --http-address (4161) as the address of an nsqlookupd"
        )
    return "give nsqd's --tcp-address (port 4150 by default), not its HTTP port (4151)"


def _tls(error: NSQError) -> str:
    text = str(error).lower()
    if "mismatch" in text or "not valid for" in text:
        return "set tls_server_name to a name in nsqd's certificate, or dial it by that name"
    if "expired" in text or "not yet valid" in text:
        return "renew nsqd's certificate, and see that the clocks are right"
    if any(word in text for word in _STRICT):
        return (
            "Python 3.13 checks certificates strictly: make the authority anew with these"
            " extensions (openssl req -x509 -addext keyUsage=critical,keyCertSign), or clear"
            " ssl.VERIFY_X509_STRICT in verify_flags of your SSLContext")
    if "verify failed" in text:
        return "set tls_root_ca_file to the PEM file of the authority behind nsqd's certificate"
    if "certificate required" in text or "bad certificate" in text or "handshake failure" in text:
        return "nsqd asks for a client certificate: set tls_cert and tls_key"
    if "version" in text:
        return "no TLS version that both allow: see tls_min_version here and at nsqd"
    return "see the tls_* options, and nsqd's --tls-cert and --tls-key"


def _negotiation(error: NSQError) -> str:
    text = str(error)
    if "auth_secret" in text:
        return "set auth_secret to a secret that nsqd's auth server knows"
    if "tls_v1" in text:
        return "start nsqd with --tls-cert and --tls-key, or do without tls_v1"
    for name in ("deflate", "snappy"):
        if name in text:
            return f"start nsqd with --{name}, or do without {name}"
    return ""


def _server(error: NSQError) -> str:
    assert isinstance(error, ServerError)
    for words, hint in _OF_TEXT.get(error.code, ()):
        if words in error.text:
            return hint
    return _OF_CODE.get(error.code, "")


_CONSUMERS = "another consumer has to leave, or nsqd needs a higher --max-channel-consumers"
#: code -> words of nsqd's text, and the hint.
_OF_TEXT = {
    "E_INVALID": [("TLS", "nsqd demands TLS: set tls_v1 (and tls_root_ca_file)")],
    "E_SUB_FAILED": [("exiting", "the channel is being deleted: the consumer tries again")],
    "E_BAD_BODY": [
        (f"IDENTIFY {words}",
         f"{option}, in {unit} here, is out of the range of nsqd's {flag}: change one of them")
        for words, option, unit, flag in (
            ("msg timeout", "msg_timeout", "seconds", "--max-msg-timeout (15m by default)"),
            ("heartbeat interval", "heartbeat_interval", "seconds",
             "--max-heartbeat-interval (60s by default)"),
            ("output buffer size", "output_buffer_size", "bytes",
             "--max-output-buffer-size (64 KiB by default)"),
            ("output buffer timeout", "output_buffer_timeout", "seconds",
             "--min- and --max-output-buffer-timeout (25ms to 30s by default)"),
        )
    ],
}
_AUTH = "see that auth_secret is right, and that nsqd reaches its --auth-http-address"
_OF_CODE = {
    "E_BAD_PROTOCOL": "this looks like nsqlookupd's TCP port: give nsqd's (4150 by default)",
    "E_UNAUTHORIZED": "ask the auth server's operator for permission on this topic and channel",
    "E_AUTH_DISABLED": "nsqd has no --auth-http-address: do without auth_secret",
    **dict.fromkeys(("E_AUTH_FAILED", "E_AUTH_FIRST", "E_AUTH_ERROR"), _AUTH),
    "E_SUB_FAILED": _CONSUMERS,
    "E_TOO_MANY_CHANNEL_CONSUMERS": _CONSUMERS,
    "E_SUB_CHANNEL_NOT_REGISTERED": _UNREGISTERED,
}


def _discovery(error: NSQError) -> str:
    text = str(error)
    if "Topic has no channel" in text:
        return "subscribe a consumer, or create a channel, before you publish"
    if "Key not found" in text:
        return "create the topic with nsqlookupd's POST /topic/create: a publish does not"
    if "TCP port" in text:
        return "give nsqlookupd's --http-address (port 4161 by default), not its TCP address (4160)"
    if "refused" in text:
        return "see that nsqlookupd runs, and that this is its --http-address (4161 by default)"
    if "unknown" in text:
        return "the name does not resolve here: correct the address of nsqlookupd"
    if "TLS" in text:
        return "see the tls_* options, and whether the URL should begin with http://"
    return "see that this is the HTTP address of an nsqlookupd (port 4161 by default)"


_ADVISERS = (
    (NotNSQError, _not_nsq),
    (TLSError, _tls),
    (NegotiationError, _negotiation),
    (ServerError, _server),
    (ConnectError, _connect),
    (DiscoveryError, _discovery),
    (NSQHTTPError, _discovery),
)
