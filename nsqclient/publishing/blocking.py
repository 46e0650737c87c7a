"""``BlockingPublish``: one publish in the calling thread, tried again until its deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from nsqclient.errors import (
    ClosedError,
    ConnectError,
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
from nsqclient.protocol import commands
from nsqclient.publishing.attempts import Attempt, Companion
from nsqclient.publishing.company import Company
from nsqclient.publishing.link import JustEnded, patience
from nsqclient.publishing.links import Links
from nsqclient.publishing.verdicts import Verdict, rejection
from nsqclient.runtime.deadline import Deadline


class BlockingPublish:
    """Publishes for the calling thread, one command at a time. Thread-safe."""

    def __init__(
        self,
        links: Links,
        max_body_size: int,
        retry_unknown: bool,
        on_retry: Callable[[], None],
    ) -> None:
        self._links = links
        self.company = Company(links, max_body_size, self._publish_after_company)
        self._retry_unknown = retry_unknown
        self._on_retry = on_retry

    def publish(self, command: bytes, deadline: Deadline, alone: bool = True) -> None:
        """Send a command until it has a verdict that counts.

        Args:
            alone: no other thread publishes now, so that this one may receive its own answer.

        Blocks: until the deadline.

        Raises:
            PublishRejected, PublishUnknown, ClosedError: as ``Producer.publish``.
        """
        self._publish(command, deadline, alone, None)

    def _publish_after_company(
        self, topic: str, body: bytes, deadline: Deadline, attempt: Companion | None
    ) -> None:
        """Go on with a message that was to travel with those of other threads."""
        self._publish(commands.pub_unchecked(topic, body), deadline, False, attempt)

    def _publish(
        self, command: bytes, deadline: Deadline, alone: bool, attempt: Attempt | None
    ) -> None:
        """Go on until there is a verdict that counts; with ``attempt`` where one is under way."""
        patient = patience(deadline.timeout)
        maybe_stored = False
        reason: NSQError | None = None
        while True:
            try:
                if attempt is None:
                    link = self._links.take(deadline)
                    attempt = Attempt()
                    attempt.link = link
                    step = Deadline(deadline.at_most(patient))
                    if alone:
                        link.send_and_receive(command, attempt, attempt.is_settled, step)
                    else:
                        link.send(command, attempt, step)
            except JustEnded:
                attempt = None
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
            verdict, reason = self._await(attempt, deadline, patient, maybe_stored)
            if verdict is Verdict.STORED:
                return
            address = "nsqd" if attempt.link is None else attempt.link.address
            attempt = None  # what failed in company is tried again alone
            if isinstance(reason, JustEnded):
                continue
            if verdict is Verdict.NOT_READ:  # nsqd's error is about somebody else's message
                reason = ConnectionLostError(address, f"ended by another publish: {reason}")
            if verdict is Verdict.UNKNOWN:
                maybe_stored = True
                if not self._retry_unknown:
                    raise PublishUnknown(f"{address}: no verdict: {reason}{_hint(command)}")
            if deadline.expired():
                raise _out_of_time(deadline, reason, maybe_stored, _hint(command))
            self._on_retry()

    def _wait(self, attempt: Attempt, timeout: float) -> bool:
        if isinstance(attempt, Companion):
            return self.company.wait(attempt, timeout, time.monotonic() + timeout)
        return attempt.wait(timeout)

    def _await(
        self, attempt: Attempt, deadline: Deadline, patient: float, maybe_stored: bool
    ) -> tuple[Verdict, NSQError | None]:
        """Wait for the verdict of one try; raise where no retry can help."""
        seen = None
        while not self._wait(attempt, deadline.at_most(patient)):
            link = attempt.link
            if deadline.expired():
                if isinstance(attempt, Companion) and attempt.withdraw():
                    reason = ConnectError("nsqd", "publishes before it were not answered")
                    raise _out_of_time(deadline, reason, maybe_stored)
                raise PublishUnknown(
                    f"{attempt.link.address if attempt.link else 'nsqd'}: no answer to the"
                    f" publish within {deadline.timeout:g} s"
                )
            if link is None:
                self.company.send_waiting()
                continue
            progress = link.progress()
            if progress == seen and self._links.pass_over(link) and self._retry_unknown:
                return Verdict.UNKNOWN, ConnectError(link.address, "connected, but no answer")
            seen = progress
        error = attempt.error
        if attempt.verdict is Verdict.REJECTED and isinstance(error, ServerError):
            address = "nsqd" if attempt.link is None else attempt.link.address
            refused = rejection(address, error)
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
