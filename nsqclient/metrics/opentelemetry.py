"""``Tracing``: OpenTelemetry spans for publishes and handler calls, linked to each other.

::

    tracing = Tracing()
    Consumer("orders", "billing", bill, middleware=[tracing.middleware], ...)
    tracing.publish(producer, "orders", {"id": 17})

Needs the extra ``otel``. The manual is ``docs/topics/middleware.rst``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nsqclient.consumer.middleware import Handling
from nsqclient.errors import ConfigError
from nsqclient.message import Message, Requeue
from nsqclient.partitioned.producer import Producer as PartitionedProducer
from nsqclient.producer.producer import Producer
from nsqclient.version import __version__

_PROPAGATOR = TraceContextTextMapPropagator()
#: Keys of the W3C's trace context, in a JSON object or in the headers of a partitioned NSQ.
_KEYS = ("traceparent", "tracestate")
#: A longer body is not parsed for a traceparent.
_LONGEST_BODY = 2**20


def carrier_of(message: Message) -> Mapping[str, str]:
    """Return the trace context of a message's publisher; empty if there is none.

    It is read from the headers (partitioned NSQ), or else from a body that is a JSON object.
    """
    found = _texts(message.headers)
    body = message.body
    if found or b'"traceparent"' not in body or len(body) > _LONGEST_BODY:
        return found
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return _texts(value) if isinstance(value, dict) else {}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: values[key] for key in _KEYS if isinstance(values.get(key), str)}


class _Reader(Getter[Mapping[str, str]]):
    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        return [carrier[key]] if key in carrier else None

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


class Tracing:
    """Makes spans with one tracer. Threads: any.

    Args:
        carrier: returns the trace context of a message; None: :func:`carrier_of`.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        carrier: Callable[[Message], Mapping[str, str]] | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("nsqclient", __version__, tracer_provider)
        self._carrier = carrier or carrier_of

    @contextmanager
    def middleware(self, handling: Handling) -> Iterator[None]:
        """A middleware: a span ``process TOPIC`` around each call of the handler.

        It links to the spans that published the messages. Exceptions of the handler are recorded,
        but ``Requeue`` does not count as an error.
        """
        first = handling.messages[0]
        attributes: dict[str, Any] = {
            "messaging.system": "nsq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": handling.topic,
            "messaging.destination.subscription.name": handling.channel,
            "server.address": first.nsqd_address,
        }
        if handling.is_batch:
            attributes["messaging.batch.message_count"] = len(handling.messages)
        else:
            attributes["messaging.message.id"] = str(first.id)
            attributes["messaging.message.body.size"] = len(first.body)
            attributes["nsq.message.attempts"] = first.attempts
        with self._tracer.start_as_current_span(
            f"process {handling.topic}", kind=SpanKind.CONSUMER, attributes=attributes,
            links=[link for message in handling.messages for link in self._link(message)],
            record_exception=False, set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Requeue as exc:
                span.add_event("requeue", {"nsq.requeue.backoff": exc.backoff})
                raise
            except BaseException as exc:
                span.record_exception(exc)
                span.set_status(Status(StatusCode.ERROR, f"{type(exc).__name__}: {exc}"))
                raise

    def _link(self, message: Message) -> Iterator[Link]:
        carrier = self._carrier(message)
        if carrier:
            context = trace.get_current_span(
                _PROPAGATOR.extract(carrier, getter=_Reader())).get_span_context()
            if context.is_valid:
                yield Link(context)

    def publish(
        self, producer: Producer | PartitionedProducer, topic: str,
        body: bytes | Mapping[str, Any], **arguments: Any,
    ) -> Any:
        """Publish a message in a span ``publish TOPIC``.

        Args:
            body: bytes are published as they are; a mapping as JSON, with the trace context in
                its keys ``traceparent`` and ``tracestate``.
            arguments: for :meth:`Producer.publish`; ``headers`` (partitioned NSQ) get the context.

        Returns, blocks and raises as :meth:`Producer.publish`. Also raises ConfigError if the
        mapping cannot be encoded as JSON.
        """
        with self._tracer.start_as_current_span(
            f"publish {topic}", kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "nsq",
                "messaging.operation.name": "publish",
                "messaging.operation.type": "send",
                "messaging.destination.name": topic,
            },
        ) as span:
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier)
            if arguments.get("headers") is not None:
                arguments["headers"] = {**arguments["headers"], **carrier}
                carrier = {}
            if isinstance(body, Mapping):
                try:
                    body = json.dumps({**body, **carrier}).encode()
                except (TypeError, ValueError) as exc:
                    raise ConfigError(f"body cannot be encoded as JSON: {exc}") from exc
            span.set_attribute("messaging.message.body.size", len(body))
            return producer.publish(topic, body, **arguments)
