"""``BlockingPublish``: one publish in the calling thread, tried again until its deadline."""

from __future__ import annotations

from collections.abc import Callable

from nsqclient.errors import (
    ClosedError,
    ConnectionLostError,
    DiscoveryError,
    NSQConnectionError,
    NSQError,
    PublishError,
    PublishNotSent,
    PublishRejected,
    PublishUnknown,
    ServerError,
)
from nsqclient.publishing.link import JustEnded, Link
from nsqclient.publishing.links import Links
from nsqclient.publishing.verdicts import Attempt, Verdict, rejection
from nsqclient.runtime.deadline import Deadline


class BlockingPublish:
    """Publishes commands one at a time for each calling thread. Thread-safe."""

    def __init__(
        self, links: Links, retry_unknown: bool, on_retry: Callable[[], None]
    ) -> None:
        self._links = links
        self._retry_unknown = retry_unknown
        self._on_retry = on_retry

    def publish(self, command: bytes, deadline: Deadline) -> None:
        """Send a command until it has a verdict that counts.

        Blocks: until the deadline.

        Raises:
            PublishRejected, PublishUnknown, ClosedError: as ``Producer.publish``.
        """
        maybe_stored = False
        reason: NSQError | None = None
        while True:
            attempt = Attempt()
            try:
                link = self._links.take(deadline)
                link.send(command, attempt, deadline)
            except JustEnded:
                continue
            except ClosedError:
                if maybe_stored:
                    raise PublishUnknown("the producer was closed before the verdict") from None
                raise
            except NSQConnectionError as exc:
                raise _out_of_time(deadline, reason or exc, maybe_stored) from exc
            except NSQError as exc:
                # Trying again cannot help.
                if maybe_stored:
                    raise PublishUnknown(str(exc)) from exc
                code = exc.code if isinstance(exc, ServerError) else None
                # nsqlookupd may answer the next time; what nsqd refuses it refuses again.
                raise PublishNotSent(str(exc), code, isinstance(exc, DiscoveryError)) from exc
            verdict, reason = self._await(link, attempt, deadline, len(command), maybe_stored)
            if verdict is Verdict.STORED:
                return
            if verdict is Verdict.NOT_READ:  # nsqd's error is about somebody else's message
                reason = ConnectionLostError(link.address, f"ended by another publish: {reason}")
            if verdict is Verdict.UNKNOWN:
                maybe_stored = True
                if not self._retry_unknown:
                    raise PublishUnknown(f"{link.address}: no verdict: {reason}{_hint(command)}")
            if deadline.expired():
                raise _out_of_time(deadline, reason, maybe_stored, _hint(command))
            self._on_retry()

    def _await(
        self, link: Link, attempt: Attempt, deadline: Deadline, size: int, maybe_stored: bool
    ) -> tuple[Verdict, NSQError | None]:
        """Wait for the verdict of one try; raise where no retry can help."""
        if not attempt.wait(deadline.remaining()):
            raise PublishUnknown(
                f"{link.address}: no answer to the publish within {deadline.timeout:g} s"
            )
        error = attempt.error
        if attempt.verdict is Verdict.REJECTED and isinstance(error, ServerError):
            refused = rejection(link.address, error)
            if not refused.retryable:
                if maybe_stored:
                    raise PublishUnknown(str(refused)) from error
                raise refused from error
        return attempt.verdict, error


def _hint(command: bytes) -> str:
    """What else a lost connection may mean after a large body."""
    if len(command) < 65_536:
        return ""
    return (
        " (the body is large: nsqd may have refused it, its error can be lost when it closes;"
        " compare nsqd's --max-msg-size with our nsqd_max_msg_size)"
    )


def _out_of_time(
    deadline: Deadline, reason: NSQError | None, maybe_stored: bool, hint: str = ""
) -> PublishError:
    text = f"no nsqd stored the message within {deadline.timeout:g} s: {reason}{hint}"
    if maybe_stored:
        return PublishUnknown(text)
    if isinstance(reason, ServerError):
        return PublishRejected(text, reason.code, retryable=True)
    return PublishNotSent(text)
