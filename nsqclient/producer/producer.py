"""``Producer``: publishes from plain blocking code, from any thread, and reports the outcome.

A publish returns when nsqd has stored the message. It raises ``PublishRejectedError`` when the
message is not stored, and ``PublishUnknownError`` when that is unknown. ``BaseProducer`` is the
common base of this Producer and of that for other dialects of NSQ.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from nsqclient.config import Config, checked_config
from nsqclient.discovery import Addresses, check_addresses
from nsqclient.errors import ClosedError, ConfigError, InvalidMessageError, PublishError
from nsqclient.producer.async_publisher import Window
from nsqclient.producer.core import ProducerCore, ProducerSettings
from nsqclient.producer.futures import PublishFuture
from nsqclient.producer.stats import ProducerStats
from nsqclient.protocol import commands
from nsqclient.protocol.commands import Body
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.arguments import check_unknown, checks_names
from nsqclient.runtime.deadline import Deadline, Duration, to_seconds
from nsqclient.runtime.forking import check_process, register_for_fork
from nsqclient.runtime.stats import Health
from nsqclient.runtime.threads import run_in_thread

#: The core of a producer; stock or not.
C = TypeVar("C", bound=ProducerCore)
P = TypeVar("P", bound="BaseProducer[Any]")

#: Names of topics that a producer remembers as valid.
_MAX_TOPICS = 1000


class BaseProducer(ABC, Generic[C]):
    """The lifecycle of a producer, and the steps of publishing; see :class:`nsqclient.Producer`."""

    def __init__(
        self,
        nsqd_tcp_addresses: Addresses = (),
        *,
        lookupd_http_addresses: Addresses = (),
        config: Config | None = None,
        retry_unknown: bool = True,
        sticky: bool = False,
        max_pending: int = 10_000,
        max_pending_bytes: int = 64 * 1024 * 1024,
        on_full: str = "block",
        linger: Duration = 0.0,
    ) -> None:
        nsqds, lookupds = check_addresses(nsqd_tcp_addresses, lookupd_http_addresses)
        if on_full not in ("block", "raise"):
            raise ConfigError(f"on_full {on_full!r}: use 'block' or 'raise'")
        for value, name in ((max_pending, "max_pending"), (max_pending_bytes, "max_pending_bytes")):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number from 1, not {value!r}")
        self.config: Config = checked_config(config)
        self._topics: set[str] = set()  # valid ones: few, and used again and again
        window = Window(
            max_pending, max_pending_bytes, on_full == "block", to_seconds(linger, "linger"))
        self._settings = ProducerSettings(
            nsqds, lookupds, self.config, retry_unknown, sticky, window)
        self._core: C = self._make_core()
        register_for_fork(self)

    @abstractmethod
    def _make_core(self) -> C:
        """Create the parts that a forked child must create again. Overridden."""

    # -- steps of publishing

    def _seconds(self, timeout: Duration | None) -> float:
        return self.config.publish_timeout if timeout is None else to_seconds(timeout, "timeout")

    def _check_topic(self, topic: str) -> None:
        """Raise InvalidTopicError, or remember that the topic is valid."""
        check_topic(topic)
        if len(self._topics) < _MAX_TOPICS:
            self._topics.add(topic)

    def _delay_ms(self, defer: Duration) -> int:
        """Return a delay as nsqd takes it. Raises InvalidMessageError."""
        try:
            delay_ms = round(to_seconds(defer, "defer") * 1000)
        except (ConfigError, OverflowError) as exc:
            raise InvalidMessageError(str(exc)) from exc
        commands.check_delay(delay_ms, round(self.config.nsqd_max_req_timeout * 1000))
        return delay_ms

    def _store(
        self, topic: str, body: Body, defer: Duration | None, timeout: Duration | None
    ) -> None:
        """Store one message on any nsqd."""
        config = self.config
        seconds = config.publish_timeout if timeout is None else to_seconds(timeout, "timeout")
        until = time.monotonic() + seconds
        if type(topic) is not str or topic not in self._topics:
            self._check_topic(topic)
        data = commands.check_body(body, config.nsqd_max_msg_size)
        if defer is None:
            command = commands.pub(topic, data)
        else:
            command = commands.dpub(topic, self._delay_ms(defer), data)
        publisher = self._core.publisher
        publisher.run(publisher.publish, (command, until, seconds), 1, len(data))

    def _check_bodies(self, topic: str, bodies: Iterable[Any]) -> list[Any]:
        """Check the arguments of ``publish_many``, but not each body."""
        self._check_topic(topic)
        if isinstance(bodies, (bytes, bytearray, memoryview, str)):
            raise InvalidMessageError("publish_many needs a list of bodies, not one body")
        return list(bodies)

    def _store_many(
        self, bodies: list[Any], publish_part: Callable[[list[bytes]], None]
    ) -> int:
        """Store bodies in as few MPUBs as nsqd's limits allow; return how many.

        Args:
            publish_part: called with the bodies of one MPUB.
        """
        stored = 0
        checked = commands.check_bodies(bodies, self.config.nsqd_max_msg_size)
        for part in commands.chunk_bodies(checked, self.config.nsqd_max_body_size):
            try:
                self._core.publisher.run(publish_part, (part,), len(part), sum(map(len, part)))
            except PublishError as exc:
                exc.stored = stored
                raise
            stored += len(part)
        return stored

    def _store_part(self, topic: str, deadline: Deadline) -> Callable[[list[bytes]], None]:
        """Return what stores the bodies of one MPUB on any nsqd."""
        publish, until = self._core.publisher.publish, deadline.until
        seconds = deadline.timeout or 0.0
        return lambda part: publish(commands.mpub(topic, part), until, seconds)

    def _queue(
        self, topic: str, body: Body, defer: Duration | None, seconds: float,
        options: Any = None,
    ) -> PublishFuture:
        """Queue one message; ``options``: of its call, for the queue that takes it over."""
        if self._core.is_closed:  # also while close() waits
            raise ClosedError("the producer is closed")
        delay_ms = None if defer is None else self._delay_ms(defer)
        if type(topic) is not str or topic not in self._topics:
            self._check_topic(topic)
        future = PublishFuture(
            topic, commands.check_body(body, self.config.nsqd_max_msg_size), delay_ms,
            time.monotonic() + seconds, seconds)
        if options is not None:
            future.options, future.alone = options, True
        self._core.queues.put(future)
        return future

    # -- calls

    def flush(self, timeout: Duration | None = None) -> bool:
        """Wait until every asynchronous publish has its outcome; False on a timeout.

        Blocks: at most ``timeout`` seconds, default ``publish_timeout``.
        """
        check_process()
        return self._core.queues.flush(Deadline(self._seconds(timeout)))

    def ping(self, timeout: Duration | None = None) -> None:
        """Wait until at least one nsqd is connected.

        Raises:
            ConnectError: none was connected in time.
            NSQError: the reason why none can be used.
            ClosedError: the producer was closed.
        """
        check_process()
        self._core.publisher.ping(Deadline(self._seconds(timeout)))

    def stats(self) -> ProducerStats:
        """Take a snapshot of the counters."""
        check_process()
        return self._core.stats()

    def healthy(self) -> Health:
        """True if messages can be published; for readiness probes.

        True if an nsqd is connected, and before the first publish, which connects. The ``reason``
        names the nsqds that are not connected, or the threads that have ended.
        """
        check_process()
        return self._core.healthy()

    def close(self, timeout: Duration = 10.0) -> bool:
        """Wait for publishes in progress and pending messages, then close the connections.

        Messages without a response after ``timeout`` seconds fail with PublishUnknownError if they
        were sent, otherwise with PublishNotSentError. Idempotent. Threads: any, and signal
        handlers. In a signal handler that interrupted a call of this producer it may take the whole
        timeout.

        Returns: whether all publishes have an outcome and all threads have ended.
        """
        check_process()
        core, deadline = self._core, Deadline(to_seconds(timeout, "timeout"))
        try:
            return run_in_thread(lambda: core.close(deadline), deadline, "nsq-closer") or False
        except RuntimeError:  # no thread can be started
            return core.close_in_place() if sys.is_finalizing() else core.close(deadline)

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise TypeError("a Producer is for threads: write with, not async with")

        def __aexit__(self, *exc_info: object) -> NoReturn:
            raise TypeError("a Producer is for threads: write with, not async with")

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None:
            core.drop()

    def __reduce__(self) -> NoReturn:
        """A producer has threads and sockets, so it cannot be pickled or copied."""
        raise TypeError("a Producer cannot be pickled or copied: make one in each process")

    def _reset_after_fork(self) -> None:
        """For the library: start afresh in a forked child."""
        former, self._core = self._core, self._make_core()
        self._core.publisher.is_closed = former.is_closed
        former.abandon()

    def __repr__(self) -> str:
        return f"<Producer {', '.join(self._core.nodes.addresses)}>"


@checks_names("an argument of Producer")
class Producer(BaseProducer[ProducerCore]):
    """Publishes to one or more nsqds.

    Args:
        nsqd_tcp_addresses: ``host:port`` of nsqds; the connected ones are used in turn.
        lookupd_http_addresses: ``host:port`` or URL of nsqlookupds, which list all nsqds of the
            cluster.
        config: the options; ``publish_timeout`` is the default timeout of a publish.
        retry_unknown: whether a publish is sent again if its connection was lost before the
            response. This may store the message twice. If False, such a publish raises
            PublishUnknownError.
        sticky: use one nsqd until it fails, instead of all in turn.
        max_pending, max_pending_bytes: limits for messages of ``publish_async`` without an outcome.
        on_full: what ``publish_async`` does at these limits: "block" or "raise".
        linger: seconds that an asynchronous publish waits for further messages.

    Raises:
        ConfigError: an argument is invalid.

    Lifecycle: created (no socket yet), connects with the first publish, ``close()``. A producer
    that is dropped without ``close()`` sends its pending messages, then ends its threads. At the
    end of the process pending messages are flushed for at most 5 s. In a forked child the producer
    has nothing pending and opens its own connections.

    Threads: every method, any thread. Each synchronous publish takes a connection from a pool.
    """

    def _make_core(self) -> ProducerCore:
        return ProducerCore(self._settings)

    def publish(
        self, topic: str, body: Body, defer: Duration | None = None,
        timeout: Duration | None = None, **unknown: NoReturn,
    ) -> None:
        """Publish one message; returns when nsqd has stored it.

        Args:
            topic: valid topic name; nsqd creates the topic.
            body: bytes, bytearray or memoryview, not empty.
            defer: seconds until it is delivered, up to ``nsqd_max_req_timeout``.
            timeout: total seconds, including the time to connect and retries; default
                ``publish_timeout``.

        Blocks: until the outcome is known, at most ``timeout``.

        Raises:
            InvalidTopicError, InvalidMessageError: nsqd would reject it; nothing was sent.
            PublishRejectedError: not stored (PublishNotSentError: no nsqd could be reached).
            PublishUnknownError: no response in time; it may be stored.
            ClosedError: the producer was closed.
            ReentrantCallError: called in a signal handler or finalizer, and it would wait for the
                interrupted call of its own thread.
        """
        if unknown:
            check_unknown("publish", unknown, ("defer", "timeout"))
        check_process()
        self._store(topic, body, defer, timeout)

    def publish_json(
        self, topic: str, value: Any, defer: Duration | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Publish one message whose body is ``value`` as JSON; ``Message.json()`` decodes it.

        Args:
            value: a value that :func:`json.dumps` supports, except for NaN and infinities.

        The other arguments, blocking and exceptions are as in :meth:`publish`.

        Raises:
            InvalidMessageError: also if the value cannot be encoded.
        """
        self.publish(topic, commands.json_body(value), defer, timeout)

    def publish_many(
        self, topic: str, bodies: Iterable[Body], timeout: Duration | None = None
    ) -> int:
        """Publish several messages, in as few MPUBs as nsqd's limits allow.

        Every body is checked before the first one is sent. If an MPUB fails, ``stored`` of the
        exception is the number of messages in the MPUBs before it. nsqd rejects an MPUB as a whole;
        but if its disk fails (E_MPUB_FAILED), it may have stored a part: an unknown outcome.

        Returns: the number of messages that were stored; 0 without bodies.

        Blocks and raises like :meth:`publish`; ``timeout`` is the total time.
        """
        check_process()
        checked = self._check_bodies(topic, bodies)
        deadline = Deadline(self._seconds(timeout))
        return self._store_many(checked, self._store_part(topic, deadline))

    def publish_async(
        self, topic: str, body: Body, defer: Duration | None = None,
        timeout: Duration | None = None, **unknown: NoReturn,
    ) -> Future[None]:
        """Queue one message; the Future has the outcome that :meth:`publish` would have.

        Queued messages of one topic are sent as one MPUB, in the order of the calls. A Future can
        be cancelled until its message is sent. Its callbacks run on a thread of the library and
        must not block.

        Blocks: at the limit ``max_pending``, if ``on_full`` is "block"; at most ``timeout``.

        Raises:
            InvalidTopicError, InvalidMessageError: nsqd would reject it; nothing was queued.
            PublishNotSentError: the limit is reached.
            ClosedError: the producer was closed.
            RuntimeError: no thread can be started.
        """
        if unknown:
            check_unknown("publish_async", unknown, ("defer", "timeout"))
        check_process()
        return self._queue(topic, body, defer, self._seconds(timeout))
