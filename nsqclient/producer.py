"""``Producer``: publishes from plain blocking code, from any thread, with an honest outcome.

A publish returns when nsqd has stored the message. It raises ``PublishRejected`` when the
message is surely not stored, and ``PublishUnknown`` when nobody can say.
"""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from nsqclient.addresses import check_addresses
from nsqclient.config import Config
from nsqclient.errors import (
    ClosedError,
    ConfigError,
    InvalidMessageError,
    PublishError,
    PublishNotSent,
)
from nsqclient.partitions.sharding import Key, Sharding, choose_sharding
from nsqclient.partitions.tracing import TraceSwitch
from nsqclient.protocol import commands
from nsqclient.protocol.extended import Stored
from nsqclient.protocol.names import check_topic
from nsqclient.publishing.account import Account
from nsqclient.publishing.blocking import BlockingPublish
from nsqclient.publishing.discoverer import Discoverer
from nsqclient.publishing.items import Item
from nsqclient.publishing.links import Links
from nsqclient.publishing.partitioned.front import Extras
from nsqclient.publishing.partitioned.gate import make_gate
from nsqclient.publishing.parts import split
from nsqclient.publishing.pipeline import Pipeline
from nsqclient.publishing.statistics import ProducerStats, Statistics
from nsqclient.runtime.apart import run_apart
from nsqclient.runtime.deadline import Deadline, Duration, to_seconds
from nsqclient.runtime.exit_status import fail_exit
from nsqclient.runtime.forking import notify_after_fork
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import can_start_threads
from nsqclient.runtime.plurals import counted

logger = logging.getLogger("nsqclient.producer")

#: Publishes of other threads under way from which on they are sent together: a round trip of its
#: own is the quickest for one thread, and the slowest for many.
_A_CROWD = 2
#: Seconds between two looks of ``close()`` at whether publishes are under way.
_LOOK = 0.5
#: Seconds for which the end of the process waits for publishes without a verdict.
_EXIT_TIMEOUT = 5.0


class Producer(Account):
    """Publishes to one or more nsqds.

    Args:
        nsqd_tcp_addresses: ``host:port`` of nsqds; those that are connected are used in turn.
        lookupd_http_addresses: nsqlookupds that name all nsqds of the cluster.
        config: options; ``publish_timeout`` is the default time of a publish.
        retry_unknown: whether a publish whose connection was lost before the verdict is sent
            again. NSQ delivers at least once anyway, so the default is True; with False such a
            publish raises PublishUnknown at once and never makes a duplicate.
        sticky: use one nsqd until it fails, instead of all in turn.
        max_pending, max_pending_bytes: how much ``publish_async`` may have without a verdict.
        on_full: "block" or "raise", when that is reached.
        linger: seconds that an asynchronous publish waits for company; 0: none.
        sharding: how a ``key`` decides on the partition of a partitioned NSQ: "murmur3" as with
            go-nsq, "java" as the Java client, or a callable of key and number of partitions.

    Raises:
        ConfigError: an argument cannot be right.

    Life: created (no socket yet), connects with the first publish, ``close()``. At the end of
    the process what is pending is flushed, for 5 s at most. A forked child has a producer of the
    same arguments with nothing pending; it opens its own connections.

    Threads: every method, from any thread; publishes of several threads share the connections.
    """

    def __init__(
        self,
        nsqd_tcp_addresses: Iterable[str] = (),
        *,
        lookupd_http_addresses: Iterable[str] = (),
        config: Config | None = None,
        retry_unknown: bool = True,
        sticky: bool = False,
        max_pending: int = 10_000,
        max_pending_bytes: int = 64 * 1024 * 1024,
        on_full: str = "block",
        linger: Duration = 0.0,
        sharding: str | Sharding = "murmur3",
    ) -> None:
        self._sharding = choose_sharding(sharding)
        self._tracing = TraceSwitch()
        nsqds, lookupds = check_addresses(nsqd_tcp_addresses, lookupd_http_addresses)
        if on_full not in ("block", "raise"):
            raise ConfigError(f"on_full {on_full!r}: use 'block' or 'raise'")
        for value, name in ((max_pending, "max_pending"), (max_pending_bytes, "max_pending_bytes")):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number from 1, not {value!r}")
        self.config = Config() if config is None else config
        self._nsqds, self._lookupds = nsqds, lookupds
        self._retry_unknown = retry_unknown
        self._sticky = sticky
        self._window = (max_pending, max_pending_bytes, on_full == "block")
        self._linger = to_seconds(linger, "linger")
        self._begin()
        notify_after_fork(self)
        _live.add(self)

    def _begin(self) -> None:
        """Make everything that a forked child must have of its own."""
        self._links = Links(self._nsqds, self.config, self._sticky, self._lookupds)
        self._statistics = Statistics()
        max_pending, max_pending_bytes, block = self._window
        self._discoverer = Discoverer(self._lookupds, self._nsqds, self.config, self._links)
        self._gate = make_gate(
            self._lookupds, self._links, self._discoverer.start, self.config, self._sharding,
            self._tracing, self._statistics, retry_unknown=self._retry_unknown,
            max_pending=max_pending, block=block,
        )
        self._pipeline = Pipeline(
            self._links, max_pending=max_pending, max_pending_bytes=max_pending_bytes,
            block=block, linger=self._linger, retry_unknown=self._retry_unknown,
            max_body_size=self.config.nsqd_max_body_size, count=self._statistics.count,
            divert=self._gate.hand_over.divert,
        )
        self._blocking = BlockingPublish(
            self._links, self.config.nsqd_max_body_size, self._retry_unknown,
            lambda: self._statistics.count("retried", 1),
        )
        self._idle = Monitor()
        self._running: set[object] = set()  # one for each publish under way
        self._closed = False

    # -- publishing

    def publish(
        self,
        topic: str,
        body: bytes,
        defer: Duration | None = None,
        timeout: Duration | None = None,
        *,
        key: Key | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Stored | None:
        """Store one message; it returns when nsqd has it.

        Args:
            topic: valid topic name; nsqd creates the topic.
            body: bytes, bytearray or memoryview, not empty.
            defer: seconds until it is delivered, up to ``nsqd_max_req_timeout``.
            timeout: total seconds, connecting and retries included; default ``publish_timeout``.
            key, trace_id, headers: for a partitioned NSQ: what decides on the partition, a number
                to follow the message by, JSON headers. See ``docs/topics/partitions.rst``.

        Returns: where it was stored, when it was traced; else None.

        Blocks: until the verdict is known, at most ``timeout``.

        Raises:
            PartitionError: the cluster or the topic does not fit what was asked for.
            InvalidTopicError, InvalidMessageError: nsqd would refuse it; nothing was sent.
            PublishRejected: surely not stored (PublishNotSent: no nsqd could be reached).
            PublishUnknown: no verdict in time; it may be stored.
            ClosedError: the producer was closed.
        """
        limit = self.config.nsqd_max_msg_size
        deadline = self._deadline(timeout)
        if not self._gate.is_stock or not (key is None and trace_id is None and headers is None):
            extras = Extras(key, trace_id, headers)
            front = self._gate.front(deadline, extras)
            if front is not None:
                if defer is not None:
                    front.refuse_deferral()
                return self._publish(front.publish, (topic, body, extras, deadline), 1, len(body))
        others = len(self._running)
        if defer is None and others >= _A_CROWD:
            check_topic(topic)
            data = commands.check_body(body, limit)
            self._publish(
                self._blocking.company.publish, (topic, data, deadline), 1, len(data)
            )
            return None
        check_topic(topic)
        data = commands.check_body(body, limit)
        if defer is None:
            command = commands.pub_unchecked(topic, data)
        else:
            command = commands.dpub(topic, self._delay_ms(defer), data, limit, self._max_delay_ms)
        self._publish(self._blocking.publish, (command, deadline, not others), 1, len(data))
        return None

    def publish_many(
        self, topic: str, bodies: Iterable[bytes], timeout: Duration | None = None,
        *, key: Key | None = None,
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
        checked = commands.check_bodies(bodies, config.nsqd_max_msg_size)
        deadline = self._deadline(timeout)
        front = None
        if not self._gate.is_stock or key is not None:
            front = self._gate.front(deadline, Extras(key))
        stored = 0
        for part in split(checked, config.nsqd_max_body_size):
            try:
                if front is not None:
                    arguments = (topic, part, key, deadline)
                    self._publish(front.publish_part, arguments, len(part), sum(map(len, part)))
                else:
                    self._publish_part(topic, part, deadline)
            except PublishError as exc:
                exc.stored = stored
                raise
            stored += len(part)
        return stored

    def publish_async(
        self,
        topic: str,
        body: bytes,
        defer: Duration | None = None,
        timeout: Duration | None = None,
        *,
        key: Key | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Future[Any]:
        """Queue one message; the Future tells the outcome that ``publish`` would have.

        Messages to one topic that wait together leave as one MPUB, in the order of the calls.
        A Future may be cancelled until its message is sent. Its callbacks run on a thread of the
        library and must not block.

        Blocks: while ``max_pending`` is reached and ``on_full`` is "block", at most ``timeout``.

        Raises:
            InvalidTopicError, InvalidMessageError: nsqd would refuse it; nothing was queued.
            PublishNotSent: there was no room.
            PartitionError: the cluster does not fit what was asked for. Before the first nsqd is
                connected that is the Future's.
            ClosedError: the producer was closed.
        """
        config = self.config
        seconds = config.publish_timeout
        if timeout is not None:
            seconds = to_seconds(timeout, "timeout")
        if self._closed:  # also while close() waits for what is pending
            raise ClosedError("the producer is closed")
        if not self._gate.is_stock or not (key is None and trace_id is None and headers is None):
            extras = Extras(key, trace_id, headers)
            front = self._gate.known_front(extras)
            if front is not None:
                if defer is not None:
                    front.refuse_deferral()
                return self._gate.publish_later(front, topic, body, extras, Deadline(seconds))
            if extras:
                return self._gate.publish_when_known(
                    topic, body, defer is not None, extras, Deadline(seconds)
                )
        delay_ms = None
        if defer is not None:
            delay_ms = self._delay_ms(defer)
            commands.check_delay(delay_ms, self._max_delay_ms)
        future = Item(
            check_topic(topic), commands.check_body(body, config.nsqd_max_msg_size), delay_ms,
            time.monotonic() + seconds, seconds,
        )
        try:
            self._discoverer.start()
        except PublishNotSent:
            self._statistics.count("rejected", 1)
            raise
        self._pipeline.put(future)
        return future

    def flush(self, timeout: Duration | None = None) -> bool:
        """Wait until every asynchronous publish has its outcome; False when time was over.

        Blocks: at most ``timeout`` seconds, default ``publish_timeout``.
        """
        return self._flush(self._deadline(timeout))

    def _flush(self, deadline: Deadline) -> bool:
        if self._pipeline.pending and not self._links.ready and not can_start_threads():
            self._links.serve(lambda: not self._pipeline.pending, deadline)
        clean = self._pipeline.flush(deadline)
        return self._gate.deferred.flush(deadline) and clean

    def set_tracing(self, enabled: bool, topic: str | None = None) -> None:
        """Turn tracing on or off, for a topic or for all; for partitioned NSQ.

        While it is on, publishes without a ``trace_id`` get one, and each is logged
        (``nsqclient.trace``) with where it was stored.
        """
        self._tracing.set(enabled, topic)

    def ping(self, timeout: Duration | None = None) -> None:
        """Make sure that at least one nsqd is connected.

        Raises:
            ConnectError: none was connected in time.
            NSQError: why none can be used.
            ClosedError: the producer was closed.
        """
        self._discoverer.start()
        deadline = self._deadline(timeout)
        while not self._links.take(deadline).is_alive():
            pass  # it ended just now

    # -- the end

    def close(self, timeout: Duration = 10.0) -> bool:
        """Let what is under way and pending end, then close the connections.

        What has no verdict after ``timeout`` seconds ends with PublishUnknown, or PublishNotSent
        where it was not sent. Idempotent; from any thread, also from a signal handler (one that
        interrupted a call of this producer may have to wait for the whole timeout).

        Returns: whether everything had its verdict and all threads have ended.
        """
        deadline = Deadline(to_seconds(timeout, "timeout"))
        return run_apart(lambda: self._close(deadline), deadline, "nsq-closer") or False

    def _close(self, deadline: Deadline) -> bool:
        self._closed = True
        # A publish that an exception from a signal handler ends may do so without a notification.
        while not self._idle.wait_for(lambda: not self._running, deadline.at_most(_LOOK)):
            if deadline.expired():
                break
        clean = not self._running
        clean = self._flush(deadline) and clean
        rest = Deadline((deadline.remaining() or 0.0) + 0.5)
        stuck = self._discoverer.stop(rest) + self._gate.close(rest)
        stuck += self._links.close(rest)
        stuck += self._blocking.company.close(rest, not self._running)
        if not self._pipeline.close(rest):
            stuck.append("nsq-publisher")
        if stuck:
            logger.warning("close: these threads did not end in time: %s", ", ".join(stuck))
        _live.discard(self)
        return clean and not stuck

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def after_fork_in_child(self) -> None:
        """For the library: start afresh in a forked child."""
        links, pipeline, closed, gate = self._links, self._pipeline, self._closed, self._gate
        company = self._blocking.company
        self._begin()
        self._closed = closed
        links.abandon()
        gate.abandon()
        pipeline.abandon()
        company.abandon()

    def stats(self) -> ProducerStats:
        """Take a snapshot of the counters."""
        return self._statistics.snapshot(
            pending=self._pending,
            connected=[link.address for link in self._links.ready] + self._gate.addresses,
            known=self._links.addresses,
        )

    def __repr__(self) -> str:
        return f"<Producer {', '.join(self._links.addresses)}>"


_live: weakref.WeakSet[Producer] = weakref.WeakSet()


@atexit.register
def _flush_at_exit() -> None:
    deadline = Deadline(_EXIT_TIMEOUT)
    lost = 0
    for producer in list(_live):
        before = producer.stats()
        if producer._pending:
            producer.flush(deadline.remaining())
        after = producer.stats()
        pending, topics = after.pending, producer._pipeline.topics()
        if pending:
            logger.error("without a result at exit: %s, to %s",
                         counted(pending, "publish", "publishes"),
                         ", ".join(topics) or "partitions")
        failed = after.rejected + after.unknown - before.rejected - before.unknown
        lost += pending + failed
        producer._pipeline.report_unseen()
    if lost:
        fail_exit(f"{counted(lost, 'publish', 'publishes')} without a good result at exit")
