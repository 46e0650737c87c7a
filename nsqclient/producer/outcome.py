"""How long an attempt of a publish waits, and what follows from its end. Pure.

``Patience`` decides whether to wait on for nsqd's answer. ``Attempts`` records the failed attempts:
after each, the message is rejected, unknown, or sent again.
"""

from __future__ import annotations

from enum import Enum

from nsqclient.errors import (
    ClosedError,
    ConnectError,
    DiscoveryError,
    NSQConnectionError,
    NSQError,
    PublishError,
    PublishNotSentError,
    PublishRejectedError,
    PublishUnknownError,
    ServerError,
    as_cause,
    with_hint,
)


#: Seconds between two checks by a publish for progress, and the part of its timeout if shorter.
INTERVAL, INTERVAL_PART = 1.0, 0.25
#: Seconds between two checks while the same nsqd is dialed for comparison.
_PROBE_INTERVAL = 0.1
#: A connection idle for this many seconds may have ended without notice, as behind a load balancer.
_IDLE = 1.0


class StaleConnection(ConnectError):
    """The connection ended before anything was sent: try again at once."""


#: Errors after which the same publish may succeed later, or on another nsqd.
_RETRYABLE = frozenset({"E_PUB_FAILED", "E_DPUB_FAILED"})
#: Errors that say that nsqd is unable to store now, whatever the message.
SERVER_UNAVAILABLE = _RETRYABLE | {"E_MPUB_FAILED"}


def may_be_stored(error: NSQError) -> bool:
    """True if the attempt that failed with this error may have stored the message."""
    if isinstance(error, ServerError):
        # nsqd puts the messages of an MPUB one by one; those before the failure are stored.
        return error.code == "E_MPUB_FAILED"
    return not isinstance(error, StaleConnection)


class Step(Enum):
    """The next step of a publish without an answer; the values are texts for errors."""

    WAIT = "wait on"
    PROBE = "wait on, and dial the same nsqd"
    LATE = "connected, but no answer in time"
    SILENT = "connected, but silent"
    STALLED = "connected, but no answer"
    DEAD = "no answer, but a new connection works"
    REPLACED = "no answer, and other publishes use a new connection"


class Patience:
    """Decides for one publish on one connection. All times are on one clock.

    Args:
        interval: seconds between two checks.
        used_at: when nsqd last answered a publish on this connection.
        silence: a connection without a byte for this many seconds is lost.
        progress: a value that changes while nsqd takes bytes or answers publishes.
    """

    def __init__(
        self, began: float, until: float, interval: float, used_at: float, silence: float,
        progress: object,
    ) -> None:
        self.began = began
        self.until = until
        self._interval = interval
        self._was_idle = began - used_at >= _IDLE
        self._silence = silence
        self._progress = progress
        self._has_probed = False

    def decide(
        self, now: float, progress: object, heard_at: float, has_others: bool, dialed_at: float
    ) -> Step:
        """Return what to do when an interval is over.

        Args:
            heard_at: when the last byte arrived.
            has_others: another nsqd can take the message.
            dialed_at: when the same nsqd was last dialed.
        """
        if now >= self.until:
            return Step.LATE
        if now - max(self.began, heard_at) >= self._silence:
            return Step.SILENT
        if progress != self._progress:
            self._progress = progress
            return Step.WAIT
        if has_others:
            return Step.STALLED
        if self._was_idle and dialed_at > self.began:
            return Step.DEAD
        if self._was_idle and not self._has_probed:
            self._has_probed, self._interval = True, min(self._interval, _PROBE_INTERVAL)
            return Step.PROBE
        return Step.WAIT

    def next_look(self, now: float) -> float:
        return min(self.until, now + self._interval)


class Attempts:
    """The failed attempts of one publish.

    Args:
        seconds: the timeout of the publish.
        size: bytes of its command, which has ``messages`` messages.
        maybe_stored: an attempt in an earlier command may have stored it.
    """

    def __init__(
        self, seconds: float, size: int, retry_unknown: bool, messages: int = 1,
        maybe_stored: bool = False,
    ) -> None:
        self.seconds = seconds
        self.messages = messages
        self.maybe_stored: bool = maybe_stored
        self.reason: NSQError | None = None  # the last failure
        self.is_one_at_fault: bool = False  # send each message again alone
        self._size = size
        self.retry_unknown = retry_unknown

    def on_failure(self, error: NSQError, address: str) -> None:
        """Note an attempt that was not stored; raise the outcome if another one cannot help."""
        self.reason = error
        self.is_one_at_fault = is_one_at_fault(error, self.messages)
        failure: PublishError | None = None
        if may_be_stored(error):
            self.maybe_stored = True
            if not self.retry_unknown:
                failure = PublishUnknownError(
                    f"{address}: the outcome is unknown: {error}{large_body_hint(self._size)}")
        elif isinstance(error, ServerError) and error.code not in _RETRYABLE:
            failure = rejection(address, error)
        if failure is not None:
            raise self.last(failure) from as_cause(error)

    def last(self, error: NSQError) -> NSQError:
        """Return what ends the publish: an earlier attempt may have stored it nevertheless."""
        if not self.maybe_stored or isinstance(error, PublishUnknownError):
            return error
        unknown = PublishUnknownError(str(error))
        unknown.__cause__ = error
        return unknown

    def timed_out(self, error: NSQError | None = None) -> PublishError:
        """Build the exception for a publish whose time is over; ``error``: if no attempt failed."""
        reason = self.reason or error
        why = "" if reason is None else f": {with_hint(reason)}"
        if self.reason is not None:
            why += large_body_hint(self._size)
        outcome = ("the outcome is unknown: no nsqd confirmed" if self.maybe_stored
                   else "no nsqd stored")
        return final_error(f"{outcome} the message within {self.seconds:g} s{why}", reason,
                           self.maybe_stored)

    def without_nsqd(self, error: NSQError) -> NSQError:
        """Build the exception for a publish that found no nsqd because of ``error``."""
        if isinstance(error, ClosedError):
            if not self.maybe_stored:
                return error
            return PublishUnknownError("the producer was closed before the outcome was known")
        if isinstance(error, NSQConnectionError):
            return self.timed_out(error)
        # Trying again cannot help.
        if self.maybe_stored:
            return self.last(error)
        code = error.code if isinstance(error, ServerError) else None
        # nsqlookupd may answer the next time; nsqd refuses the same message again.
        return PublishNotSentError(with_hint(error), code, isinstance(error, DiscoveryError))


def is_one_at_fault(error: NSQError, messages: int) -> bool:
    """True if several messages were rejected because of one of them: send each alone."""
    return (messages > 1 and isinstance(error, ServerError)
            and error.code in ("E_BAD_MESSAGE", "E_BAD_BODY"))


def rejection(address: str, error: ServerError) -> PublishRejectedError:
    """Build the exception for a publish that nsqd refused."""
    return PublishRejectedError(
        f"{address} refused the message: {with_hint(error)}", error.code, error.code in _RETRYABLE
    )


def final_error(text: str, reason: NSQError | None, maybe_stored: bool) -> PublishError:
    """Build the exception for a publish that is not attempted again."""
    if maybe_stored:
        return PublishUnknownError(text)
    if isinstance(reason, ServerError):
        return PublishRejectedError(text, reason.code, retryable=True)
    return PublishNotSentError(text)


def large_body_hint(size: int) -> str:
    """Return another possible reason for a connection lost after a large body, or ""."""
    if size < 65_536:
        return ""
    return (
        " (the body is large: nsqd may have refused it, its error can be lost when it closes;"
        " compare nsqd's --max-msg-size with our nsqd_max_msg_size)"
    )
