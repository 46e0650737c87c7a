"""The exceptions of nsqclient, and the table of nsqd's error codes.

``Requeue`` and ``GiveUp``, which a handler raises on purpose, are in :mod:`nsqclient.message`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from nsqclient import hints
from nsqclient.display import LONGEST_TEXT, printable, without_password

E = TypeVar("E", bound=BaseException)


class NSQError(Exception):
    """The root of all exceptions of nsqclient. Its text is one line without control characters."""

    #: What to do about the error, in one line. Empty if unknown.
    hint: str = ""
    #: True if a consumer or producer does not retry after this error.
    is_final = False

    def __init__(self, *args: object, hint: str = "") -> None:
        super().__init__(*args)
        if hint:
            self.hint = hint

    def __str__(self) -> str:
        return printable(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        # Does not call the class, because subclasses take other arguments than Exception.
        return _restored, (type(self), self.args, vars(self))


class ConfigError(NSQError, ValueError):
    """An option or argument is unknown, of a wrong type, or out of range."""


def _restored(cls: type[NSQError], args: tuple[Any, ...], values: dict[str, Any]) -> NSQError:
    error = cls.__new__(cls, *args)
    vars(error).update(values)
    return error


def as_cause(error: E) -> E:
    """Return an exception for ``raise ... from`` that is printed in one line.

    Removes the tracebacks of the exception and its causes, so log them at DEBUG before.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        if not isinstance(each, NSQError):
            each.__suppress_context__ = True
        each = each.__cause__
    return error


def with_hint(error: NSQError, address: str = "") -> str:
    """Return an error's text and its hint in one line, without ``address`` at the start."""
    text = str(error).removeprefix(f"{address}: ") if address else str(error)
    return f"{text}; {error.hint}" if error.hint else text


def known_failure(error: BaseException) -> str:
    """Return the text and hint of an error with a known cause; empty for any other error.

    The hint may come from one of its causes.
    """
    cause: BaseException | None = error
    while isinstance(cause, NSQError):
        if cause.hint:
            return str(error) if cause.hint in str(error) else f"{error}; {cause.hint}"
        cause = cause.__cause__
    return ""


# -- invalid calls: nothing was sent


class LocalProtocolError(NSQError):
    """A call breaks the rules of NSQ. Nothing was sent."""


class InvalidTopicError(LocalProtocolError, ValueError):
    """A topic name that nsqd would reject with E_BAD_TOPIC."""


class InvalidChannelError(LocalProtocolError, ValueError):
    """A channel name that nsqd would reject with E_BAD_CHANNEL."""


class InvalidMessageError(LocalProtocolError, ValueError):
    """A body or delay that nsqd would reject: empty, too large, not bytes, or out of range."""


class AlreadyRespondedError(LocalProtocolError):
    """A message was finished, requeued or touched after it had been finished or requeued."""


class ClosedError(NSQError):
    """The object was used after ``close()`` or ``stop()``."""


class ReentrantCallError(NSQError, RuntimeError):
    """A finalizer, weakref callback or signal handler made a call during one that holds a lock."""

    def __init__(self) -> None:
        super().__init__(
            "called in the middle of another call of the same thread, by a finalizer, a weakref"
            " callback or a signal handler: let another thread make this call, for example one"
            " that reads a queue.SimpleQueue")


# -- connections


class NSQConnectionError(NSQError):
    """A connection to an nsqd failed or was lost. ``address`` is its ``host:port``."""

    def __init__(self, address: str, reason: str, hint: str = "") -> None:
        reason = printable(reason)
        super().__init__(f"{address}: {reason}", hint=hint)
        self.address = address
        self.reason = reason


class ConnectError(NSQConnectionError):
    """No connection could be made: refused, unknown host, or no response in time."""

    #: True if the same error was reported before.
    is_repeated = False


class ConnectionLostError(NSQConnectionError):
    """An open connection ended: EOF, reset, no heartbeat, or closed by this process."""


class WriteTimeoutError(NSQConnectionError):
    """The peer did not accept bytes for ``write_timeout``."""


# -- invalid data from the peer


class RemoteProtocolError(NSQError):
    """The peer sent something that the NSQ protocol does not allow."""


class FrameTooLargeError(RemoteProtocolError):
    """The peer announced a frame larger than ``max_msg_size`` allows."""


class NotNSQError(RemoteProtocolError):
    """The server on this port does not speak nsqd's TCP protocol; often it is the HTTP port."""

    hint = hints.HTTP_PORT


class NegotiationError(NSQError):
    """nsqd did not grant a feature that IDENTIFY requested. The connection was not used."""


class TLSError(NegotiationError):
    """The TLS handshake failed. ``reason`` names the certificate, name, version or file."""

    hint = hints.TLS_OPTIONS

    def __init__(self, reason: str, address: str = "", hint: str = "") -> None:
        reason = printable(reason)
        super().__init__(f"{address}: TLS: {reason}" if address else f"TLS: {reason}", hint=hint)
        self.reason = reason
        self.address = address


class DiscoveryError(NSQError):
    """An nsqlookupd gave no usable answer. ``address`` is its URL."""

    def __init__(self, address: str, reason: str, hint: str = "") -> None:
        reason = printable(reason)
        super().__init__(f"nsqlookupd {without_password(address)}: {reason}", hint=hint)
        self.address = address
        self.reason = reason


def other_lookup_error(address: str) -> DiscoveryError:
    """The error of a stock client that has asked an nsqlookupd of a partitioned NSQ."""
    error = DiscoveryError(address, "it belongs to a partitioned NSQ: use nsqclient.partitioned")
    error.is_final = True
    return error


# -- HTTP APIs


class NSQHTTPError(NSQError):
    """A request to an HTTP API of nsqd or nsqlookupd failed; see ``url`` and ``reason``.

    ``is_lasting``: True if a repetition would fail too.
    """

    is_lasting = False

    def __init__(self, url: str, reason: str, hint: str = "") -> None:
        reason = printable(reason)
        super().__init__(f"{without_password(url)}: {reason}", hint=hint)
        self.url = url
        self.reason = reason


class NSQHTTPTransportError(NSQHTTPError):
    """No response arrived. If a connection was made, the request may have been carried out."""


class NSQHTTPStatusError(NSQHTTPError):
    """The server returned an HTTP error ``status`` with the text ``message``."""

    def __init__(self, url: str, status: int, message: str) -> None:
        message = printable(message, LONGEST_TEXT)
        super().__init__(url, f"HTTP {status}: {message}")
        self.status = status
        self.message = message
        self.is_lasting: bool = 400 <= status < 500 and status not in (408, 425, 429)


class NSQHTTPResponseError(NSQHTTPError):
    """The response is invalid: it is not JSON, or a field has a wrong type."""

    is_lasting = True


# -- nsqd's error frames


class ServerError(NSQError):
    """An error frame of nsqd: the word ``E_...`` as ``code``, and the ``text`` after it."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code} {text}".rstrip(), hint=hints.hint_on(code, text))
        self.code = code
        self.text = text

    @property
    def fatal(self) -> bool:
        """True if nsqd closes the connection: always, except after FIN, REQ and TOUCH."""
        return self.code not in ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED")


#: code -> its meaning. All codes of nsqd 1.3.0.
SERVER_ERRORS: dict[str, str] = {
    "E_INVALID": "an unknown command, a wrong state, or parameters that nsqd cannot parse",
    "E_BAD_BODY": "the body of IDENTIFY, AUTH or MPUB is invalid",
    "E_BAD_MESSAGE": "the body of a message is empty, or larger than --max-msg-size",
    "E_BAD_TOPIC": "the name of the topic is invalid",
    "E_BAD_CHANNEL": "the name of the channel is invalid",
    "E_BAD_PROTOCOL": "the first four bytes name an unknown protocol",
    "E_IDENTIFY_FAILED": "an upgrade to TLS or compression failed",
    "E_AUTH_DISABLED": "nsqd has no authentication",
    "E_AUTH_FAILED": "nsqd could not query its auth server",
    "E_AUTH_FIRST": "a command came before AUTH",
    "E_AUTH_ERROR": "authentication failed",
    "E_UNAUTHORIZED": "no permission on this topic or channel",
    "E_SUB_FAILED": "the channel has too many consumers, or it is being deleted",
    "E_PUB_FAILED": "nsqd could not store the message",
    "E_MPUB_FAILED": "nsqd could not store the messages",
    "E_DPUB_FAILED": "nsqd could not store the deferred message",
    "E_FIN_FAILED": "the message is not in flight on this connection any more",
    "E_REQ_FAILED": "the message is not in flight on this connection any more",
    "E_TOUCH_FAILED": "the message is not in flight on this connection any more",
}


def server_error(data: bytes) -> ServerError:
    """Build the exception for the data of an error frame."""
    decoded = data[:LONGEST_TEXT].decode("utf-8", "backslashreplace")
    code, _, text = printable(decoded).partition(" ")
    return ServerError(code, text)


# -- partitioned NSQ


class PartitionError(NSQError):
    """This NSQ, or this topic, does not support the call. The text says what to do instead."""

    is_final = True


def other_nsqd_error(address: str, version: str) -> PartitionError:
    """The error of a stock client that has connected to an nsqd of a partitioned NSQ."""
    return PartitionError(
        f"{address}: nsqd {version} belongs to a partitioned NSQ: use nsqclient.partitioned")


class OrderError(PartitionError):
    """An ordered message arrived after a later message of its connection was finished."""


# -- outcomes of a publish


class PublishError(NSQError):
    """A publish did not end with nsqd's OK."""

    #: The number of messages of ``publish_many`` that are certainly stored.
    stored = 0


class PublishRejectedError(PublishError):
    """The message is not stored.

    ``code`` is nsqd's error code, or None. ``retryable``: the same publish may succeed later or
    elsewhere.
    """

    def __init__(self, reason: str, code: str | None = None, retryable: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.retryable = retryable


class PublishNotSentError(PublishRejectedError):
    """No nsqd accepted the message before the deadline. It is not stored."""

    def __init__(self, reason: str, code: str | None = None, retryable: bool = True) -> None:
        super().__init__(reason, code, retryable)


class PublishUnknownError(PublishError):
    """The message was sent, and no response arrived. It may be stored."""
