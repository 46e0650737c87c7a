"""How one try of a publish ended, and what follows from it."""

from __future__ import annotations

from enum import Enum

from nsqclient.errors import PublishRejected, ServerError


class Verdict(Enum):
    """What is known about one try."""

    STORED = "stored"  #: nsqd answered OK
    REJECTED = "rejected"  #: nsqd answered with an error: surely not stored
    NOT_READ = "not read"  #: the connection ended before nsqd read it: surely not stored
    UNKNOWN = "unknown"  #: the connection ended after the bytes had left


#: Errors after which the same publish may succeed later, or on another nsqd.
_RETRYABLE = frozenset({"E_PUB_FAILED", "E_DPUB_FAILED"})
#: Errors that say that nsqd is unable to store now, whatever the message.
UNABLE = _RETRYABLE | {"E_MPUB_FAILED"}


def verdict_of(error: ServerError | None) -> Verdict:
    """Classify nsqd's answer to a publish."""
    if error is None:
        return Verdict.STORED
    if error.code == "E_MPUB_FAILED":
        # nsqd puts the messages one by one; those before the failure are stored.
        return Verdict.UNKNOWN
    return Verdict.REJECTED


def is_about_one_message(error: ServerError) -> bool:
    """Tell whether an MPUB was refused for one of its messages, so that the others may pass."""
    return error.code in ("E_BAD_MESSAGE", "E_BAD_BODY")


def rejection(address: str, error: ServerError) -> PublishRejected:
    """Build the exception for a publish that nsqd refused."""
    return PublishRejected(
        f"{address} refused the message: {error}", error.code, error.code in _RETRYABLE
    )
