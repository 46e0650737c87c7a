"""``Producer``: publishes from plain blocking code, from any thread, with an honest outcome.

A publish returns when nsqd has stored the message. It raises ``PublishRejected`` when the
message is surely not stored, and ``PublishUnknown`` when nobody can say.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType

from nsqclient.addresses import check_addresses
from nsqclient.config import Config
from nsqclient.errors import (
    ClosedError,
    ConfigError,
    InvalidMessageError,
    NegotiationError,
    NSQError,
    PublishError,
    PublishNotSent,
    PublishRejected,
    PublishUnknown,
    RemoteProtocolError,
    ServerError,
)
from nsqclient.protocol import commands
from nsqclient.protocol.names import check_topic
from nsqclient.publishing.links import JustEnded, Link, Links
from nsqclient.publishing.verdicts import Attempt, Verdict, rejection
from nsqclient.runtime.deadline import Deadline, Duration, to_seconds

logger = logging.getLogger("nsqclient.producer")

#: Most messages in one MPUB; nsqd's own limit follows from its body size.
_MAX_PER_MPUB = 10_000
#: Longest pause in seconds before a publish dials an nsqd that failed, where no other is left.
_MAX_PAUSE = 0.5
#: Seconds that must be left for another dial to be worth while.
_MIN_DIAL = 0.001


class Producer:
    """Publishes to one or more nsqds.

    Args:
        nsqd_tcp_addresses: ``host:port`` of nsqds; used in turn, a failing one is left alone for
            a while.
        config: options; ``publish_timeout`` is the default time of a publish.
        retry_unknown: whether a publish whose connection was lost before the verdict is sent
            again. NSQ delivers at least once anyway, so the default is True; with False such a
            publish raises PublishUnknown at once and never makes a duplicate.

    Raises:
        ConfigError: an argument cannot be right.

    Life: created (no socket yet), connects with the first publish, ``close()``. Threads: every
    method, from any thread; publishes of several threads share the connections.
    """

    def __init__(
        self,
        nsqd_tcp_addresses: Iterable[str],
        *,
        config: Config | None = None,
        retry_unknown: bool = True,
    ) -> None:
        addresses, _ = check_addresses(nsqd_tcp_addresses, ())
        self.config = Config() if config is None else config
        self._retry_unknown = retry_unknown
        self._links = Links(addresses, self.config)
        self._idle = threading.Condition()
        self._running = 0  # publishes under way; guarded by _idle
        self._closed = False  # written under _idle

    def publish(
        self,
        topic: str,
        body: bytes,
        defer: Duration | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Store one message; it returns when nsqd has it.

        Args:
            topic: valid topic name; nsqd creates the topic.
            body: bytes, bytearray or memoryview, not empty.
            defer: seconds until it is delivered, up to ``nsqd_max_req_timeout``.
            timeout: total seconds, connecting and retries included; default ``publish_timeout``.

        Blocks: until the verdict is known, at most ``timeout``.

        Raises:
            InvalidTopicError, InvalidMessageError: nsqd would refuse it; nothing was sent.
            PublishRejected: surely not stored (PublishNotSent: no nsqd could be reached).
            PublishUnknown: no verdict in time; it may be stored.
            ClosedError: the producer was closed.
        """
        limit = self.config.nsqd_max_msg_size
        if defer is None:
            command = commands.pub(topic, body, limit)
        else:
            command = commands.dpub(
                topic, self._milliseconds(defer), body, limit,
                round(self.config.nsqd_max_req_timeout * 1000),
            )
        self._publish(command, self._deadline(timeout))

    def publish_many(
        self, topic: str, bodies: Iterable[bytes], timeout: Duration | None = None
    ) -> int:
        """Store several messages, in as few MPUBs as nsqd's limits allow.

        Every body is checked before the first is sent. When a later MPUB fails, the exception's
        ``stored`` says how many messages of the earlier ones are stored. nsqd refuses an MPUB as
        a whole, but when its disk fails in the middle of one (E_MPUB_FAILED) a first part of it
        may be stored: that is an unknown outcome.

        Returns: how many messages were stored (0 for no bodies).

        Blocks and raises like :meth:`publish`; ``timeout`` is for all of them together.
        """
        check_topic(topic)
        if isinstance(bodies, (bytes, bytearray, memoryview, str)):
            raise InvalidMessageError("publish_many needs a list of bodies, not one body")
        config = self.config
        checked = [commands.check_body(body, config.nsqd_max_msg_size) for body in bodies]
        parts = [
            (len(part), commands.mpub(
                topic, part, config.nsqd_max_msg_size, config.nsqd_max_body_size))
            for part in _split(checked, config.nsqd_max_body_size)
        ]
        deadline = self._deadline(timeout)
        stored = 0
        for count, command in parts:
            try:
                self._publish(command, deadline)
            except PublishError as exc:
                exc.stored = stored
                raise
            stored += count
        return stored

    def ping(self, timeout: Duration | None = None) -> None:
        """Connect to every nsqd that is not connected, and send each a NOP.

        Raises:
            NSQError: the first nsqd that cannot be reached.
        """
        deadline = self._deadline(timeout)
        for link in self._links:
            link.ping(deadline)

    def close(self, timeout: Duration = 10.0) -> bool:
        """Let the publishes under way end, then close the connections.

        Those that have no verdict after ``timeout`` seconds end with PublishUnknown. Idempotent.

        Returns: whether all publishes had their verdict and all threads have ended.
        """
        deadline = Deadline(to_seconds(timeout, "timeout"))
        with self._idle:
            self._closed = True
            while self._running and not deadline.expired():
                self._idle.wait(deadline.remaining())
            clean = self._running == 0
        conns = [conn for link in self._links for conn in link.close()]
        rest = Deadline((deadline.remaining() or 0.0) + 0.5)
        for conn in conns:
            if not conn.join(rest):
                logger.warning("close: thread nsq-reader-%s did not end in time", conn.address)
                clean = False
        return clean

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Producer {', '.join(link.address for link in self._links)}>"

    # -- one publish

    def _deadline(self, timeout: Duration | None) -> Deadline:
        if timeout is None:
            return Deadline(self.config.publish_timeout)
        return Deadline(to_seconds(timeout, "timeout"))

    @staticmethod
    def _milliseconds(defer: Duration) -> int:
        try:
            return round(to_seconds(defer, "defer") * 1000)
        except (ConfigError, OverflowError) as exc:
            raise InvalidMessageError(str(exc)) from exc

    def _publish(self, command: bytes, deadline: Deadline) -> None:
        with self._idle:
            if self._closed:
                raise ClosedError("the producer is closed")
            self._running += 1
        try:
            self._try_until_settled(command, deadline)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _try_until_settled(self, command: bytes, deadline: Deadline) -> None:
        maybe_stored = False
        while True:
            link, rest = self._links.choose()
            reason: NSQError | None = link.last_error
            # Every nsqd failed lately. Leave it alone for a moment, but dial within this
            # publish's time: it may be back.
            if rest and (
                not self._pause(min(rest, _MAX_PAUSE, deadline.at_most(rest * 2) / 2))
                or deadline.at_most(1.0) < _MIN_DIAL
            ):
                raise self._out_of_time(deadline, reason, maybe_stored)
            try:
                attempt = link.submit(command, deadline)
            except ClosedError:
                if maybe_stored:
                    raise PublishUnknown("the producer was closed before the verdict") from None
                raise
            except JustEnded:
                pass  # what is known of the reason is better than this
            except (NegotiationError, RemoteProtocolError, ServerError) as exc:
                if len(self._links) == 1 and not maybe_stored:
                    # Trying again cannot help, and there is nobody else to ask.
                    code = exc.code if isinstance(exc, ServerError) else None
                    raise PublishNotSent(str(exc), code, retryable=False) from exc
                reason = exc
            except NSQError as exc:
                reason = exc
            else:
                verdict, reason = self._await(link, attempt, deadline)
                if verdict is Verdict.STORED:
                    return
                maybe_stored = maybe_stored or verdict is Verdict.UNKNOWN
                if verdict is Verdict.UNKNOWN and not self._retry_unknown:
                    raise PublishUnknown(f"{link.address}: no verdict: {reason}")
            if deadline.expired():
                raise self._out_of_time(deadline, reason, maybe_stored)

    def _await(
        self, link: Link, attempt: Attempt, deadline: Deadline
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
                raise refused from error
        return attempt.verdict, error

    def _pause(self, seconds: float) -> bool:
        """Wait before the next dial; False when ``close()`` came meanwhile."""
        with self._idle:
            return not self._idle.wait_for(lambda: self._closed, seconds)

    def _out_of_time(
        self, deadline: Deadline, reason: NSQError | None, maybe_stored: bool
    ) -> PublishError:
        if self._closed and not deadline.expired():
            text = f"the producer was closed; last error: {reason}"
        else:
            text = f"no nsqd stored the message within {deadline.timeout:g} s: {reason}"
        if maybe_stored:
            return PublishUnknown(text)
        code = reason.code if isinstance(reason, ServerError) else None
        return PublishNotSent(text, code) if code is None else PublishRejected(text, code, True)


def _split(bodies: list[bytes], max_body_size: int) -> Iterator[list[bytes]]:
    """Cut a list of bodies into parts that each fit into one MPUB."""
    part: list[bytes] = []
    size = 4
    for body in bodies:
        if part and (size + 4 + len(body) > max_body_size or len(part) >= _MAX_PER_MPUB):
            yield part
            part, size = [], 4
        part.append(body)
        size += 4 + len(body)
    if part:
        yield part
