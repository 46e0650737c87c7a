"""``MetricsRegistry``: the counters of consumers and producers as named families of samples.

:mod:`~nsqclient.contrib.prometheus` and :mod:`~nsqclient.contrib.statsd` export them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple, Union

from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.consumer import Consumer
from nsqclient.consumer.processor import Handler
from nsqclient.message import Message, Requeue, raise_decision
from nsqclient.producer.producer import Producer
from nsqclient.runtime.histogram import Histogram, HistogramSnapshot
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.user_functions import check_function

Value = Union[float, HistogramSnapshot]


class Family(NamedTuple):
    """One metric with its samples."""

    name: str  #: without the "_total" of counters
    kind: str  #: "counter", "gauge" or "histogram"
    help: str
    labels: tuple[str, ...]
    samples: list[tuple[tuple[str, ...], Value]]  #: (values of the labels, value)


#: Metric -> (counter of :class:`~nsqclient.consumer.stats.ConnectionCounters`, help).
CONSUMER_COUNTERS = {
    "nsq_consumer_received": ("received", "messages received"),
    "nsq_consumer_finished": ("finished", "messages finished (FIN)"),
    "nsq_consumer_requeued": ("requeued", "messages requeued (REQ)"),
    "nsq_consumer_given_up": ("given_up", "messages given up and finished"),
    "nsq_consumer_touched": ("touched", "timeout extensions sent (TOUCH)"),
    "nsq_consumer_requeued_unstarted": (
        "requeued_unstarted", "messages requeued by a stop before their handler started"),
    "nsq_consumer_expired": ("expired", "messages that timed out before their handler started"),
    "nsq_consumer_late_answers": ("late_answers", "responses sent after the message timed out"),
    "nsq_consumer_lost_answers": ("lost_answers", "responses lost with their connection"),
    "nsq_consumer_orphaned": ("orphaned", "messages in flight on a connection when it was lost"),
}
_CHANNEL = ("topic", "channel")
_NSQD = (*_CHANNEL, "nsqd")


class _Timing:
    """The measurements of ``timed`` for one channel."""

    def __init__(self) -> None:
        self.handling = Histogram()
        self.age = Histogram()
        self.lock = Lock()
        self.failures = 0  # guarded by lock


class MetricsRegistry:
    """Consumers and producers whose counters are exported.

    Life: usable at once; consumers and producers stay until ``remove``. Threads: any.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._consumers: list[Consumer] = []  # guarded by _lock, as below
        self._producers: dict[str, Producer] = {}
        self._timings: dict[tuple[str, str], _Timing] = {}

    def add_consumer(self, consumer: Consumer) -> None:
        """Export a consumer's counters. Consumers of the same channel are summed."""
        with self._lock:
            if consumer not in self._consumers:
                self._consumers.append(consumer)

    def add_producer(self, producer: Producer, name: str = "default") -> None:
        """Export a producer's counters under a name, which replaces a former one of that name."""
        with self._lock:
            self._producers[name] = producer

    def remove(self, what: Consumer | Producer) -> None:
        """Remove a consumer or producer, if it is here."""
        with self._lock:
            self._consumers = list(other for other in self._consumers if other is not what)
            self._producers = dict(
                (name, other) for name, other in self._producers.items() if other is not what
            )

    def timed(self, handler: Handler, topic: str, channel: str) -> Handler:
        """Return a handler that measures ``handler``: its time, its failures, the messages' age.

        It costs about two microseconds a message. For a BatchHandler it returns a copy that
        measures the time of each batch.
        """
        with self._lock:
            timing = self._timings.setdefault((topic, channel), _Timing())

        def wrap(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @wraps(function, updated=())
            def run(argument: Any) -> Any:
                _note_ages(timing, argument if isinstance(argument, list) else [argument])
                began = time.perf_counter()
                try:
                    result = function(argument)
                    raise_decision(result)
                    return result
                except BaseException as exc:
                    if not isinstance(exc, Requeue):
                        with timing.lock:
                            timing.failures += 1
                    raise
                finally:
                    timing.handling.observe(time.perf_counter() - began)

            return run

        if isinstance(handler, BatchHandler):
            return handler.wrapped(wrap)
        check_function(handler, "handler", "message")  # the wrapper would hide an async function
        return wrap(handler)

    def families(self) -> list[Family]:
        """Return a snapshot of everything. No network."""
        with self._lock:
            consumers, producers = list(self._consumers), dict(self._producers)
            timings = dict(self._timings)
        return [*_of_consumers(consumers), *_of_timings(timings), *_of_producers(producers)]


def _note_ages(timing: _Timing, messages: Iterable[Message]) -> None:
    now = time.time_ns()
    for message in messages:
        # The clocks of two machines may differ: never below zero.
        timing.age.observe(max(0.0, (now - message.timestamp) / 1e9))


def _of_consumers(consumers: list[Consumer]) -> list[Family]:
    sums: dict[str, dict[tuple[str, ...], float]] = {}

    def add(name: str, labels: tuple[str, ...], value: float) -> None:
        values = sums.setdefault(name, {})
        values[labels] = values.get(labels, 0.0) + value

    for consumer in consumers:
        stats, labels = consumer.stats(), (consumer.topic, consumer.channel)
        for name, (field, _) in CONSUMER_COUNTERS.items():
            add(name, labels, getattr(stats.total, field))
        timed_out = stats.total.expired + stats.total.late_answers
        add("nsq_consumer_timed_out", labels, timed_out)
        add("nsq_consumer_repairs", labels, stats.repairs)
        add("nsq_consumer_connections", labels, len(stats.connections))
        add("nsq_consumer_queued", labels, stats.queued)
        add("nsq_consumer_queued_bytes", labels, stats.queued_bytes)
        add("nsq_consumer_held", labels, stats.is_held)
        add("nsq_consumer_running", labels, stats.running)
        add("nsq_consumer_max_in_flight", labels, stats.max_in_flight)
        add("nsq_consumer_paused", labels, stats.is_paused)
        add("nsq_consumer_healthy", labels, bool(consumer.healthy()))
        for phase in Phase:
            add("nsq_consumer_backoff", (*labels, phase.value), stats.backoff == phase.value)
        for conn in stats.connections:
            add("nsq_consumer_in_flight", (*labels, conn.address), conn.in_flight)
            add("nsq_consumer_rdy", (*labels, conn.address), conn.rdy)

    return [
        Family(name, kind, text, labels, list(sums.get(name, {}).items()))
        for name, kind, text, labels in _consumer_table()
    ]


def _consumer_table() -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [
        *((name, "counter", text, _CHANNEL) for name, (_, text) in CONSUMER_COUNTERS.items()),
        ("nsq_consumer_timed_out", "counter", "messages that timed out: nsq_consumer_expired plus"
         " nsq_consumer_late_answers",
         _CHANNEL),
        ("nsq_consumer_repairs", "counter",
         "RDY corrections by the watchdog; a value above 0 indicates a bug", _CHANNEL),
        ("nsq_consumer_connections", "gauge", "connected nsqds", _CHANNEL),
        ("nsq_consumer_queued", "gauge", "messages waiting for a worker", _CHANNEL),
        ("nsq_consumer_queued_bytes", "gauge", "size in bytes of the messages waiting for a worker",
         _CHANNEL),
        ("nsq_consumer_held", "gauge", "1 while max_queued_bytes holds RDY at 0", _CHANNEL),
        ("nsq_consumer_running", "gauge", "running handlers", _CHANNEL),
        ("nsq_consumer_max_in_flight", "gauge", "maximum number of messages in flight", _CHANNEL),
        ("nsq_consumer_paused", "gauge", "1 while the consumer is paused", _CHANNEL),
        ("nsq_consumer_healthy", "gauge", "1 while healthy() is true", _CHANNEL),
        ("nsq_consumer_backoff", "gauge", "1 for the current backoff state", (*_CHANNEL, "state")),
        ("nsq_consumer_in_flight", "gauge", "messages in flight on a connection", _NSQD),
        ("nsq_consumer_rdy", "gauge", "RDY of a connection", _NSQD),
    ]


def _of_timings(timings: dict[tuple[str, str], _Timing]) -> list[Family]:
    def family(name: str, kind: str, text: str, value: Callable[[_Timing], Value]) -> Family:
        samples = [(labels, value(timing)) for labels, timing in timings.items()]
        return Family(name, kind, text, _CHANNEL, samples)  # type: ignore[arg-type]  # pair: tuple

    return [
        family("nsq_consumer_handler_failures", "counter",
               "exceptions raised by handlers, except Requeue", lambda timing: timing.failures),
        family("nsq_consumer_handler_seconds", "histogram",
               "duration of a handler call, in seconds",
               lambda timing: timing.handling.snapshot()),
        family("nsq_consumer_message_age_seconds", "histogram",
               "age of a message when its handler starts, in seconds",
               lambda timing: timing.age.snapshot()),
    ]


def _of_producers(producers: dict[str, Producer]) -> list[Family]:
    seen = [((name,), producer.stats()) for name, producer in producers.items()]

    def family(name: str, kind: str, text: str, value: Callable[[Any], Value]) -> Family:
        return Family(name, kind, text, ("producer",),
                      [(labels, value(stats)) for labels, stats in seen])

    return [
        Family("nsq_producer_messages", "counter", "messages by outcome of their publish",
               ("producer", "outcome"),
               [((*labels, outcome), getattr(stats, field)) for labels, stats in seen
                for outcome, field in (("stored", "published"), ("rejected", "rejected"),
                                       ("unknown", "unknown"))]),
        family("nsq_producer_retried", "counter", "retried publishes",
               lambda stats: stats.retried),
        family("nsq_producer_bytes", "counter", "bytes stored by synchronous publishes",
               lambda stats: stats.bytes),
        family("nsq_producer_pending", "gauge", "publishes in progress",
               lambda stats: stats.pending),
        family("nsq_producer_connections", "gauge", "connected nsqds",
               lambda stats: len(stats.connected)),
        family("nsq_producer_nsqds", "gauge", "known nsqds",
               lambda stats: len(stats.known)),
        family("nsq_producer_publish_seconds", "histogram",
               "duration of a successful synchronous publish, in seconds",
               lambda stats: stats.latency),
    ]
