"""Test a handler without a server, and see what an embedded nsqd has stored."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.retry import Decision, RetryPolicy, decide
from nsqclient.errors import AlreadyRespondedError, ConfigError
from nsqclient.message import Failure, Message, Requeue, raise_decision
from nsqclient.protocol.commands import NO_JSON, check_body, chosen_body
from nsqclient.runtime.arguments import check_result
from nsqclient.runtime.deadline import Duration, to_seconds

if TYPE_CHECKING:
    from nsqclient.devserver.nsqd import Nsqd

_numbers = itertools.count(1)


class RecordedMessage(Message):
    """A message that records the responses to it, made by :func:`make_message`. Nothing is sent.

    Like any message, it accepts one response: a second one raises AlreadyRespondedError.
    """

    __slots__ = ("finished", "requeued", "given_up", "touched", "error", "_headers")

    #: Whether it was finished; also true if it was given up.
    finished: bool
    #: The delay (None for the automatic one) and the backoff of its requeue; None if it was not
    #: requeued.
    requeued: Requeue | None
    #: Why :func:`handle` gave it up; None if it did not.
    given_up: Failure | None
    #: How many times it was touched; ``keep_alive()`` counts as one.
    touched: int
    #: The exception of the handler in :func:`handle`, except ``Requeue``.
    error: BaseException | None
    _headers: dict[str, Any]

    @property
    def headers(self) -> dict[str, Any]:
        return self._headers


def make_message(
    body: bytes | None = None,
    attempts: int = 1,
    *,
    json: Any = NO_JSON,
    message_id: bytes | None = None,
    timestamp: int | None = None,
    time_left: Duration = 60.0,
    nsqd_address: str = "127.0.0.1:4150",
    headers: Mapping[str, Any] | None = None,
) -> RecordedMessage:
    """Return a message to call a handler with.

    Args:
        body: bytes, not empty.
        json: instead of ``body``: a value whose JSON is the body.
        attempts: number of deliveries, including this one.
        message_id: 16 hex digits in ASCII; None: a new id for each message.
        timestamp: when nsqd received it, in nanoseconds since the epoch; None: now.
        time_left: seconds until it expires.
        headers: JSON headers, as with partitioned NSQ.

    Raises:
        InvalidMessageError: the body is not bytes, or empty, or the value cannot be JSON.
        ConfigError: another argument is invalid.
    """
    if not isinstance(attempts, int) or isinstance(attempts, bool) or not 0 <= attempts <= 65535:
        raise ConfigError(f"attempts must be a whole number up to 65535, not {attempts!r}")
    if message_id is None:
        message_id = b"%016x" % next(_numbers)
    if not isinstance(message_id, bytes) or len(message_id) != 16:
        raise ConfigError(f"message_id must be 16 hex digits as bytes, not {message_id!r:.80}")
    if timestamp is not None:
        check_count("timestamp", timestamp)
    if headers is not None and not isinstance(headers, Mapping):
        raise ConfigError(f"headers must be a dict, not {headers!r:.80}")
    now = time.monotonic()
    message = RecordedMessage(
        check_body(chosen_body(body, json)), message_id, attempts,
        time.time_ns() if timestamp is None else timestamp,
        now, now + to_seconds(time_left, "time_left"), _Recorder(nsqd_address),
    )
    message.finished, message.touched = False, 0
    message.requeued = message.given_up = message.error = None
    message._headers = dict(headers or {})
    return message


def handle(
    handler: Callable[[Message], Any] | BatchHandler,
    *messages: RecordedMessage,
    retry: RetryPolicy | None = None,
    max_attempts: int = 5,
) -> None:
    """Call a handler with each message, and respond to the message as a consumer does.

    If the handler returns, the message is finished; a returned ``Requeue`` or ``GiveUp`` does what
    a raised one does. If it raises, the message is requeued. After ``GiveUp``, or at the last
    attempt, the message is given up and finished (``message.given_up``). After ``enable_async()``
    no response is sent. ``message.error`` is the exception, except for ``Requeue``. A
    :class:`~nsqclient.BatchHandler` gets all messages as one batch.

    Args:
        retry: the consumer's retry policy.
        max_attempts: the consumer's option; 0: no limit.

    ``on_giving_up``, middleware and backoff are not part of this. Exceptions of ``retry`` are
    raised.
    """
    check_count("max_attempts", max_attempts)

    def decide_failure(message: Message, error: BaseException) -> Decision | None:
        assert isinstance(message, RecordedMessage)
        if not isinstance(error, Requeue):
            message.error = error
        if message.has_responded:
            return None
        return decide(retry, message, error, message.attempts, max_attempts)

    if isinstance(handler, BatchHandler):
        once = BatchHandler(handler.function, size=max(1, len(messages)))
        once.bind(_OneBatch(decide_failure))
        for message in messages:
            once(message)
        return
    for message in messages:
        try:
            result = handler(message)
            check_result(result, may_be_future=message.is_async or message.has_responded)
            raise_decision(result)
        except Exception as exc:
            decision = decide_failure(message, exc)
            if decision is not None:
                _answer(message, decision)
        else:
            if not (message.has_responded or message.is_async):
                message.finish()


def check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{name} must be a whole number of at least 0, not {value!r:.80}")


class _OneBatch:
    """The BatchDelegate of a handler that gets one full batch."""

    topic, channel = "topic", "channel"

    def __init__(
        self, decide_failure: Callable[[Message, BaseException], Decision | None]
    ) -> None:
        self.decide_failure = decide_failure

    def on_failure(self, message: Message, decision: Decision) -> None:
        _answer(message, decision)

    def is_starved(self) -> bool:
        """False: a batch is full, or more messages follow."""
        return False

    def run_later(self, delay: float, task: Callable[[], None]) -> None:
        pass  # no time passes

    def run_on_worker(self, task: Callable[[], None]) -> None:
        pass  # only timers call it

    def note_late(self, messages: list[Message], seconds: float, has_failed: bool) -> None:
        pass  # no nsqd waits


class _Recorder:
    """The Responder of one message: records its responses."""

    def __init__(self, address: str) -> None:
        self.address = address

    def finish(self, message: Message) -> None:
        _recorded(message, "finished").finished = True
        message.has_responded = True

    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None:
        _recorded(message, "requeued").requeued = Requeue(delay, backoff)
        message.has_responded = True

    def touch(self, message: Message) -> None:
        _recorded(message, "touched").touched += 1

    def keep_alive(self, message: Message) -> None:
        self.touch(message)

    def give_up(self, message: Message, reason: str) -> None:
        _recorded(message, "given up").given_up = Failure(reason)
        self.finish(message)

    def drop_expired(self, message: Message) -> None:
        """Do nothing: the message stays unanswered."""


def _answer(message: Message, decision: Decision) -> None:
    assert isinstance(message, RecordedMessage)
    message.given_up = decision.failure
    if decision.requeue is not None:
        message.requeue(decision.requeue.delay, decision.requeue.backoff)
    else:
        message.finish()


def _recorded(message: Message, what: str) -> RecordedMessage:
    assert isinstance(message, RecordedMessage)
    if message.has_responded:
        raise AlreadyRespondedError(f"{message!r} was answered; it cannot be {what}")
    return message


class Published:
    """The bodies that were published to an embedded nsqd from now on, by topic.

    Each body that nsqd stored is listed once, in the order of storing, whether it was consumed or
    not. An nsqd has one such record: a second one replaces the first.

    Threads: any.
    """

    def __init__(self, nsqd: Nsqd) -> None:
        self._changed = threading.Condition()
        self._bodies: defaultdict[str, list[bytes]] = defaultdict(list)  # guarded by _changed
        nsqd.observe_publishes(self._on_published)

    def __call__(self, topic: str) -> list[bytes]:
        """Return the bodies of a topic; an empty list if nothing was published."""
        with self._changed:
            return list(self._bodies.get(topic, ()))

    def json(self, topic: str) -> list[Any]:
        """Return the bodies of a topic, decoded as JSON. Raises ValueError."""
        return [json.loads(body) for body in self(topic)]

    def wait_for(self, topic: str, count: int = 1, timeout: float = 10.0) -> list[bytes]:
        """Wait until another thread or process has published ``count`` bodies; return them.

        Blocks: at most ``timeout`` seconds.

        Raises:
            TimeoutError: there are fewer; the text has their number.
            ConfigError: ``count`` or ``timeout`` is negative, or no number.
        """
        check_count("count", count)
        timeout = to_seconds(timeout, "timeout")
        with self._changed:
            if self._changed.wait_for(
                    lambda: len(self._bodies.get(topic, ())) >= count, timeout):
                return list(self._bodies.get(topic, ()))
            found = len(self._bodies.get(topic, ()))
        raise TimeoutError(
            f"{found} of {count} messages were published to {topic} in {timeout:g} s")

    def _on_published(self, topic: str, bodies: Sequence[bytes]) -> None:
        with self._changed:
            self._bodies[topic].extend(bodies)
            self._changed.notify_all()
