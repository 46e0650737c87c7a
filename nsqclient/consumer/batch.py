"""``BatchHandler``: collects messages and calls your function with a list of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Union

from nsqclient.consumer.context import log_failure, log_retry
from nsqclient.consumer.retry import Decision, show_delays
from nsqclient.errors import AlreadyRespondedError, ConfigError, NSQConnectionError
from nsqclient.log_records import log_fields
from nsqclient.message import GiveUp, Message, Requeue, raise_decision
from nsqclient.runtime.arguments import check_function, check_result
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import PrefixedLogger

logger: logging.Logger = logging.getLogger("nsqclient.batch")

#: Handles a batch. Returns None, or the messages to finish.
BatchFunction = Callable[[list[Message]], Union[Iterable[Message], None]]


class BatchDelegate(Protocol):
    """The interface of a consumer that a BatchHandler uses. See MessageProcessor."""

    topic: str
    channel: str

    def is_starved(self) -> bool: ...
    def run_later(self, delay: float, task: Callable[[], None]) -> object: ...
    def run_on_worker(self, task: Callable[[], None]) -> None: ...
    def decide_failure(self, message: Message, exc: BaseException) -> Decision | None: ...
    def on_failure(self, message: Message, decision: Decision) -> None: ...
    def note_late(self, messages: list[Message], seconds: float, has_failed: bool) -> None: ...


class BatchHandler:
    """A handler that collects messages into batches.

    For work that is cheaper in bulk, such as one INSERT for many messages. A batch is handled when
    it has ``size`` messages, when its first message has waited for ``max_wait``, or when the
    consumer is starved. Set ``max_in_flight`` of the consumer to at least ``size``.

    Args:
        handle: called on a worker thread with a list of messages. If it returns None, all messages
            without a response are finished. If it returns messages, these are finished and the
            others requeued. If it raises, or returns ``Requeue`` or ``GiveUp``, all are requeued or
            given up. Any other result counts as a failure.
        size: number of messages in a full batch.
        max_wait: maximum time, in seconds, that the first message of a batch waits.

    Lifecycle: one BatchHandler serves one Consumer. When the consumer stops, the last batch is
    handled, even if it is not full.
    """

    def __init__(
        self,
        handle: BatchFunction,
        size: int = 100,
        max_wait: Duration = 1.0,
    ) -> None:
        check_function(handle, "handle", "messages")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"size must be a whole number from 1, not {size!r}")
        self.function = handle
        self.size: int = size  #: messages in a full batch
        self._max_wait = to_seconds(max_wait, "max_wait")
        self._lock = Lock()
        self._batch: list[Message] = []  # guarded by _lock
        self._began = 0.0  # when its first message arrived; guarded by _lock
        self._is_timer_set = False  # guarded by _lock
        self._consumer: BatchDelegate | None = None
        self._log = PrefixedLogger(logger, "")  # until it is bound

    def wrapped(self, wrap: Callable[[BatchFunction], BatchFunction]) -> BatchHandler:
        """Return a BatchHandler with the same options for ``wrap(handle)``."""
        return BatchHandler(wrap(self.function), self.size, self._max_wait)

    def bind(self, consumer: BatchDelegate) -> None:
        """Called by the consumer that uses this handler.

        Raises:
            ConfigError: another consumer uses it.
        """
        if self._consumer is not None and self._consumer is not consumer:
            raise ConfigError("a BatchHandler serves one consumer: make another one")
        self._consumer = consumer
        self._log = PrefixedLogger(
            logger, f"{consumer.topic}/{consumer.channel}: ",
            log_fields(topic=consumer.topic, channel=consumer.channel))
        self._lock = Lock()
        self._batch = []
        self._is_timer_set = False

    def _unbind(self) -> None:
        self._consumer = None

    def __call__(self, message: Message) -> None:
        message.enable_async()
        consumer = self._consumer
        assert consumer is not None, "bind() comes first"
        full: list[Message] = []
        with self._lock:
            if not self._batch:
                self._began = time.monotonic()
            self._batch.append(message)
            if len(self._batch) >= self.size:
                full, self._batch = self._batch, []
            set_timer = not full and not self._is_timer_set
            self._is_timer_set = self._is_timer_set or set_timer
        if set_timer:
            consumer.run_later(self._max_wait, self._on_timer)
        if full:
            self._handle_batch(full)
        elif consumer.is_starved():
            self.flush()

    def flush(self) -> None:
        """Handle the messages collected so far. Called on a worker thread."""
        with self._lock:
            batch, self._batch = self._batch, []
        self._handle_batch(batch)

    def requeue_pending(self) -> None:
        """Requeue the messages collected so far, at once and without backoff."""
        with self._lock:
            batch, self._batch = self._batch, []
        self._answer(batch, lambda message: message.requeue(delay=0, backoff=False))

    def _on_timer(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        with self._lock:
            left = self._began + self._max_wait - time.monotonic()
            is_old = bool(self._batch) and left <= 0
            again = bool(self._batch) and left > 0
            self._is_timer_set = again
        if again:
            consumer.run_later(left, self._on_timer)
        elif is_old:
            consumer.run_on_worker(self.flush)

    def _handle_batch(self, messages: list[Message]) -> None:
        batch = []
        for message in messages:
            if message.time_left > 0:
                batch.append(message)
            else:  # nsqd delivers it again
                message.responder.drop_expired(message)
        if not batch:
            return
        began = time.monotonic()
        try:
            finished = self._check_finished(batch, self.function(batch))
        except BaseException as exc:
            self._note_late(batch, began, True)
            self._fail(batch, exc)
            return
        self._note_late(batch, began, False)
        self._answer([m for m in batch if m in finished], lambda message: message.finish())
        self._answer([m for m in batch if m not in finished], lambda message: message.requeue())

    def _note_late(self, batch: list[Message], began: float, has_failed: bool) -> None:
        now = time.monotonic()
        late = [message for message in batch if message.deadline < now]
        if late and self._consumer is not None:
            self._consumer.note_late(late, now - began, has_failed)

    def _fail(self, batch: list[Message], exc: BaseException) -> None:
        consumer = self._consumer
        assert consumer is not None
        found = [(message, consumer.decide_failure(message, exc)) for message in batch]
        decided = [(message, decision) for message, decision in found if decision is not None]
        decisions = [decision for _, decision in decided]
        if decisions and all(decision.is_planned for decision in decisions):
            log_retry(self._log, exc, "retrying a batch of %d after %s", len(decisions),
                      show_delays(decisions))
        elif not isinstance(exc, (Requeue, GiveUp)):
            log_failure(self._log, exc, "handler failed for a batch of %d", len(batch))
        for message, decision in decided:
            consumer.on_failure(message, decision)

    @staticmethod
    def _check_finished(batch: list[Message], done: Iterable[Message] | None) -> set[Message]:
        check_result(done, may_be_future=False)
        raise_decision(done)
        finished = set(batch if done is None else done)
        if not finished.issubset(batch):
            raise TypeError(
                f"a batch handler returns None or messages of its batch, not {done!r:.200}"
            )
        return finished

    def _answer(self, messages: list[Message], answer: Callable[[Message], Any]) -> None:
        for message in messages:
            if not message.has_responded:
                try:
                    answer(message)
                except (AlreadyRespondedError, NSQConnectionError) as exc:
                    self._log.info("%s", exc, extra=log_fields(message=message))
