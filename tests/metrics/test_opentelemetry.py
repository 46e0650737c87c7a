"""OpenTelemetry: spans of publishes and handlings, and the links between them."""

import json
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from nsqclient import BatchHandler, Config, ConfigError, Consumer, Producer, Requeue
from nsqclient.metrics.opentelemetry import Tracing, carrier_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    yield Tracing(provider)
    provider.shutdown()


def consume(nsqd, tracing, handler, **options):
    with Consumer("orders", "c", handler, nsqd_tcp_addresses=[nsqd.tcp_address],
                  middleware=[tracing.middleware], **options):
        nsqd.wait_until_empty("orders", "c")


def spans_named(spans, name):
    return [span for span in spans.get_finished_spans() if span.name == name]


def test_a_handling_links_to_the_publish(nsqd, spans, tracing):
    bodies = []
    with Producer([nsqd.tcp_address]) as producer:
        tracing.publish(producer, "orders", {"id": 17})
    consume(nsqd, tracing, lambda message: bodies.append(json.loads(message.body)))
    [publish] = spans_named(spans, "publish orders")
    [process] = spans_named(spans, "process orders")
    assert (publish.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    [link] = process.links
    assert link.context.span_id == publish.context.span_id and process.parent is None
    assert bodies[0]["id"] == 17 and bodies[0]["traceparent"].startswith("00-")
    assert process.attributes["messaging.destination.subscription.name"] == "c"
    assert process.attributes["messaging.system"] == "nsq"


@pytest.mark.parametrize("body", [b"plain", b'{"traceparent": "00-nonsense"}'])
def test_bytes_are_published_as_they_are(nsqd, spans, tracing, body):
    with Producer([nsqd.tcp_address]) as producer:
        tracing.publish(producer, "orders", body)
    assert [message.body for message in nsqd.messages("orders")] == [body]
    consume(nsqd, tracing, lambda message: None)
    assert not spans_named(spans, "process orders")[0].links


def test_what_a_handler_raises_is_an_error_of_its_span(nsqd, spans, tracing):
    """``Requeue`` is an event and no error."""
    errors = [ValueError("bad"), Requeue(delay=0, backoff=False)]

    def handle(message):
        if errors:
            raise errors.pop(0)

    nsqd.publish("orders", b"x")
    consume(nsqd, tracing, handle,
            config=Config(default_requeue_delay=0, max_backoff_duration=0))
    first, second, third = spans_named(spans, "process orders")
    assert first.status.status_code is StatusCode.ERROR and first.events[0].name == "exception"
    assert second.status.status_code is StatusCode.UNSET and second.events[0].name == "requeue"
    assert not third.events


def test_a_batch_is_one_span_with_all_links(nsqd, spans, tracing):
    bodies = [json.dumps({"traceparent": PARENT, "n": n}).encode() for n in range(3)]
    nsqd.publish_many("orders", bodies)
    consume(nsqd, tracing, BatchHandler(lambda batch: None, size=3, max_wait=5), max_in_flight=3)
    [span] = spans_named(spans, "process orders")
    assert len(span.links) == 3 and span.attributes["messaging.batch.message_count"] == 3


def test_headers_carry_the_context_where_there_are_headers(tracing):
    """On a partitioned NSQ the body stays as it is."""
    published = []
    producer = SimpleNamespace(
        publish=lambda topic, body, **arguments: published.append((topic, body, arguments)))
    tracing.publish(producer, "orders", {"id": 1}, headers={"a": "b"})
    [(topic, body, arguments)] = published
    assert topic == "orders" and json.loads(body) == {"id": 1}
    assert arguments["headers"]["a"] == "b" and "traceparent" in arguments["headers"]


@pytest.mark.parametrize(("headers", "body", "found"), [
    ({"traceparent": PARENT}, b"x", {"traceparent": PARENT}),
    ({}, json.dumps({"traceparent": PARENT, "tracestate": "a=1"}).encode(),
     {"traceparent": PARENT, "tracestate": "a=1"}),
    ({}, b'{"traceparent": 1}', {}), ({}, b'["traceparent"]', {}), ({}, b'{"traceparent"', {}),
    ({}, b"\xff", {}), ({}, b'{"traceparent": "' + b"x" * 2**20 + b'"}', {}),
    ({}, b'"traceparent"' + b"[" * 200_000, {}),
])
def test_the_context_is_read_from_headers_or_body(headers, body, found):
    assert carrier_of(SimpleNamespace(headers=headers, body=body)) == found


def test_a_mapping_that_is_no_json_is_refused(tracing):
    with pytest.raises(ConfigError, match="encoded as JSON"):
        tracing.publish(None, "orders", {"id": object()})
