"""``LifecycleLogger``: the log lines of one consumer, each of which begins with ``topic/channel:``.

The methods are the events in a consumer's life, one line each, made to be grepped for; a line about
something that does not work ends with what to do. Everything else that concerns a consumer is
logged with ``warning()`` and the like. The tables in ``docs/topics/logging.rst`` have those that an
operator needs, and a test compares them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from nsqclient.consumer.retry import show_exception
from nsqclient.display import counted
from nsqclient.errors import NSQError
from nsqclient.hints import known_failure, with_hint
from nsqclient.log_fields import log_fields
from nsqclient.runtime.log_lines import LineLimit, PrefixedLogger
from nsqclient.sanitize import without_password


def show_partitions(partitions: Sequence[int]) -> str:
    """Return the numbers of partitions as text."""
    word = "partition" if len(partitions) == 1 else "partitions"
    return f"{word} {', '.join(map(str, partitions))}"


def log_failure(
    log: PrefixedLogger, error: BaseException, text: str, *args: object,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Log, at ERROR, what user code raised.

    Where the cause is known, such as an nsqd that a handler publishes to and that is down, it is
    one line with what to do, and the traceback comes at DEBUG.
    """
    known = known_failure(error)
    if known:
        log.error(f"{text}: %s", *args, known, extra=extra)
        log.debug(text, *args, exc_info=error, extra=extra)
    else:
        log.error(text, *args, exc_info=error, extra=extra)


def log_retry(
    log: PrefixedLogger, error: BaseException, text: str, *args: object,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Log, in one line at WARNING, a failure that the retry policy planned for.

    The traceback comes at DEBUG: it would be repeated at each attempt.
    """
    known = known_failure(error)
    reason = f"{type(error).__name__}: {known}" if known else show_exception(error)
    log.warning(f"{text}: %s", *args, reason, extra=extra)
    log.debug(text, *args, exc_info=error, extra=extra)


class LifecycleLogger(PrefixedLogger):
    """Logs what happens to one consumer. Threads: any."""

    def __init__(self, topic: str, channel: str = "") -> None:
        name = f"{topic}/{channel}" if channel else topic
        super().__init__(logging.getLogger("nsqclient.consumer"), f"{name}: ",
                         log_fields(topic=topic, channel=channel))
        self._topic = topic
        self._has_long_delay = False
        # An nsqlookupd decides how many addresses there are.
        self._discoveries, self._failed_dials = LineLimit(self), LineLimit(self)

    def started(self, max_in_flight: int) -> None:
        """The consumer begins to connect."""
        self.info("started, max_in_flight %d", max_in_flight)

    def one_for_each_partition(self, count: int) -> None:
        """The topic has partitions, and max_in_flight was not given."""
        self.info("max_in_flight %d, one for each partition, because none was given", count)

    def must_order(self) -> None:
        """No nsqlookupd said that the topic is ordered, and an nsqd did."""
        self.info("the topic is ordered, as nsqd says: it is consumed in order")

    def too_few_in_flight(self, max_in_flight: int, partitions: int) -> None:
        """The topic has more partitions than messages may be in flight."""
        self.warning(
            "max_in_flight %d is less than the number of partitions: they take turns, and each"
            " waits for seconds; set max_in_flight to at least %d", max_in_flight, partitions,
        )

    def partitions_unread(self, partitions: Sequence[int], seconds: float) -> None:
        """Partitions have no connection, for some seconds; said again at growing intervals."""
        self.warning(
            "no reader for %s for %.0f s: no nsqlookupd lists a leader, or the leader refuses; see"
            " the cluster", show_partitions(partitions), seconds)

    def partitions_read(self) -> None:
        """After such a line each partition has a connection again."""
        self.info("every partition has a reader again")

    def delay_over_limit(self, seconds: float, limit: float) -> None:
        """A message is requeued for longer than nsqd waits. Said once."""
        if not self._has_long_delay:
            self._has_long_delay = True
            self.warning(
                "a requeue delay of %.10g s is over nsqd's limit of %g s, which nsqd takes instead:"
                " if its --max-req-timeout is higher, set nsqd_max_req_timeout", seconds, limit)

    def connected(self, address: str) -> None:
        """It is subscribed on an nsqd."""
        self.info("consuming from %s", address, extra=log_fields(nsqd=address))

    def lost(self, address: str, error: NSQError) -> None:
        """A connection ended that nobody closed."""
        self.warning("lost %s, connecting again: %s", address, with_hint(error, address),
                     extra=log_fields(nsqd=address))

    def cannot_connect(self, address: str, error: NSQError, *, is_repeated: bool) -> None:
        """A dial failed, or nsqd refused us; ``is_repeated``: it is certain to be tried again."""
        self.log(
            self._failed_dials.level(logging.WARNING),
            "cannot consume from %s%s: %s", address, ", trying again" if is_repeated else "",
            with_hint(error, address), extra=log_fields(nsqd=address))

    def discovered(self, address: str, lookupd: str) -> None:
        """An nsqlookupd lists an nsqd that is new to us."""
        self.log(
            self._discoveries.level(logging.INFO), "nsqlookupd %s lists %s",
            without_password(lookupd), address, extra=log_fields(nsqd=address),
        )

    def forgotten(self, address: str) -> None:
        """No nsqlookupd lists a lost nsqd any more."""
        self.info("removed %s: no nsqlookupd lists it any more", address,
                  extra=log_fields(nsqd=address))

    def lookup_failed(self, error: NSQError) -> None:
        """An nsqlookupd gave no usable answer."""
        self.warning("no answer from %s", with_hint(error))

    def topic_unknown(self, interval: float) -> None:
        """All nsqlookupds answered, and none lists the topic. Said once."""
        self.warning(
            "no nsqlookupd lists the topic %s yet: check its spelling, or publish to it or create"
            " it; retrying after 1, 2, 4 ... s, at most %g s", self._topic, interval,
        )

    def backing_off(self, wait: float, failures: int) -> None:
        """Failures slow the consumer down."""
        self.warning(
            "backing off for %.3g s after %s: handlers raised or requeued; raise"
            " Requeue(backoff=False) for failures that should not delay other messages",
            wait, counted(failures, "failure"),
        )

    def backoff_ends(self) -> None:
        """The failures are made good."""
        self.info("backoff ended, receiving at full rate")

    def signal_came(self) -> None:
        """SIGINT or SIGTERM came, in a command that runs several consumers."""
        self.info("stopping: received a signal")

    def held(self, size: int, limit: int) -> None:
        """Too many bytes wait for workers. Logged once a minute at most."""
        self.warning(
            "RDY 0 until workers catch up: %.1f MiB wait in the queue, max_queued_bytes is %.1f"
            " MiB; add workers, make the handler faster, or lower max_in_flight",
            size / 2**20, limit / 2**20,
        )

    def hold_ends(self) -> None:
        """Half of max_queued_bytes is left."""
        self.info("half of max_queued_bytes is free again, RDY restored")

    def level_lowered(self, level: int, max_in_flight: int, handler_time: float) -> None:
        """Handlers are too slow for max_in_flight. Logged once a minute at most."""
        self.info(
            "%d in flight at most instead of max_in_flight %d: handlers take up to %.3g s, and"
            " messages would expire in the queue", level, max_in_flight, handler_time,
        )

    def level_restored(self, level: int) -> None:
        """Handlers are fast enough again, or collect messages on purpose."""
        self.info("max_in_flight applies again: %d in flight at most", level)

    def drained(self, finished: int, requeued: int) -> None:
        """A drain has taken what was there."""
        self.info("drained: %d finished, %d requeued", finished, requeued)

    def ended_by_silence(self, finished: int, requeued: int, silence: float, why: str) -> None:
        """A drain has ended where the depth is unknown, as its caller allowed."""
        self.warning(
            "ended after %g s without a message: %d finished, %d requeued; it is unknown whether"
            " messages are left: %s", silence, finished, requeued, why)

    def drain_waits_for_answer(self, address: str, why: str) -> None:
        """An nsqd or an nsqlookupd did not answer. Said once for each in a drain."""
        self.info("drain: waiting until %s says how many messages are left: %s", address, why)

    def drain_waits_for_others(self, in_flight: int) -> None:
        """Only messages in flight are left, and not ours. Said once in a drain."""
        self.info(
            "drain: waiting for %s in flight at other consumers or at a process that was killed:"
            " nsqd requeues them after msg_timeout", counted(in_flight, "message"))

    def drain_waits_for_deferred(self, deferred: int) -> None:
        """Only deferred messages are left, and they are waited for. Said once in a drain."""
        self.info("drain: waiting for %s", counted(deferred, "deferred message"))

    def drain_left_deferred(self, deferred: int) -> None:
        """A drain has ended, and deferred messages are left."""
        self.warning(
            "drained, except for %s, requeued or published with a delay: to wait for them, set"
            " wait_deferred=True", counted(deferred, "deferred message"))

    def drain_left_paused(self, paused: int, addresses: str) -> None:
        """A drain has ended, and messages are left in a paused channel or topic."""
        self.warning(
            "drained, except for %s at %s: the channel or the topic is paused there",
            counted(paused, "message"), addresses)

    def drain_left_unanswered(self, count: int) -> None:
        """A loop over drain() has ended while its own messages are not answered."""
        self.info("drained, except for %s that your code has not responded to",
                  counted(count, "message"))

    def stopped(self, finished: int, requeued_unstarted: int, abandoned: int) -> None:
        """It has stopped; the numbers of its report."""
        self.log(
            logging.WARNING if abandoned else logging.INFO,
            "stopped: while stopping %d finished, %d requeued unstarted, %d abandoned%s",
            finished, requeued_unstarted, abandoned,
            "; nsqd delivers these again; a longer stop timeout avoids this" if abandoned else "",
        )
