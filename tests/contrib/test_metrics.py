"""Prometheus and statsd export the counters of consumers and producers."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections import Counter

import pytest
import yaml

pytest.importorskip("prometheus_client", reason="prometheus-client comes with the test extra")

from prometheus_client import CollectorRegistry, generate_latest  # noqa: E402 - after the check

from nsqclient import (  # noqa: E402
    BatchHandler, Config, ConfigError, Consumer, Producer, PublishRejectedError, Requeue,
)
from nsqclient.contrib.metrics_registry import MetricsRegistry  # noqa: E402
from nsqclient.contrib.prometheus import NSQCollector, metric_of  # noqa: E402
from nsqclient.contrib.statsd import StatsdSink  # noqa: E402
from tests.support import django_settings  # noqa: E402
from tests.support.docs.pages import named  # noqa: E402
from tests.support.processes import CHECKOUT, in_child  # noqa: E402
from tests.support.servers import prometheus  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

QUICK = Config(default_requeue_delay=0, max_backoff_duration=0, max_in_flight=5)


@pytest.fixture
def registry():
    """A separate registry."""
    return CollectorRegistry()


def handler(message):
    """Finish, requeue or fail, as the body says, the first time."""
    if message.attempts == 1 and message.body == b"requeue":
        raise Requeue(delay=0, backoff=False)
    if message.attempts == 1 and message.body == b"fail":
        raise ValueError("the first time")


@pytest.fixture
def work(nsqd):
    """Publish and consume with a registry; the consumer is still connected at the end."""
    with Producer([nsqd.tcp_address]) as producer:
        opened = []

        def run(metrics: MetricsRegistry):
            metrics.add_producer(producer)
            for body in (b"fine", b"requeue", b"fail"):
                producer.publish("orders", body)
            nsqd.faults.fail_next("PUB", "E_BAD_MESSAGE")
            with pytest.raises(PublishRejectedError):
                producer.publish("orders", b"refused")
            consumer = Consumer(
                "orders", "mail", metrics.timed(handler, "orders", "mail"), config=QUICK,
                nsqd_tcp_addresses=[nsqd.tcp_address])
            opened.append(consumer)
            metrics.add_consumer(consumer)
            consumer.start()
            nsqd.wait_until_empty("orders", "mail")
            wait_until(lambda: consumer.stats().total.finished == 3)

        yield run
        for consumer in opened:
            consumer.stop(5)


def test_prometheus_shows_the_numbers_of_the_work(registry, work, nsqd):
    """Counters, states, outcomes and histograms have the numbers of the work."""
    collector = NSQCollector(registry)
    work(collector)

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    channel = {"topic": "orders", "channel": "mail"}
    assert value("nsq_consumer_received_total", **channel) == 5
    assert value("nsq_consumer_finished_total", **channel) == 3
    assert value("nsq_consumer_requeued_total", **channel) == 2
    assert value("nsq_consumer_timed_out_total", **channel) == 0
    assert value("nsq_consumer_handler_failures_total", **channel) == 1
    assert value("nsq_consumer_handler_seconds_count", **channel) == 5
    assert value("nsq_consumer_message_age_seconds_bucket", le="+Inf", **channel) == 5
    assert value("nsq_consumer_connections", **channel) == 1
    assert value("nsq_consumer_healthy", **channel) == 1
    assert value("nsq_consumer_backoff", state="flowing", **channel) == 1
    assert value("nsq_consumer_backoff", state="waiting", **channel) == 0
    assert value("nsq_consumer_rdy", nsqd=nsqd.tcp_address, **channel) == 5
    assert value("nsq_consumer_in_flight", nsqd=nsqd.tcp_address, **channel) == 0
    outcomes = {name: value("nsq_producer_messages_total", producer="default", outcome=name)
                for name in ("stored", "rejected", "unknown")}
    assert outcomes == {"stored": 3, "rejected": 1, "unknown": 0}
    assert value("nsq_producer_publish_seconds_count", producer="default") == 3
    assert value("nsq_producer_connections", producer="default") in (0, 1)  # the refusal closed it


def test_the_text_for_prometheus_can_be_read(registry, work):
    """The exposition format has each family once, with help and type."""
    work(NSQCollector(registry))
    text = generate_latest(registry).decode()
    types = Counter(re.findall(r"^# TYPE (\S+) \w+", text, re.MULTILINE))
    assert types["nsq_consumer_finished_total"] == 1 and set(types.values()) == {1}
    assert 'nsq_consumer_handler_seconds_bucket{channel="mail",le="0.001",topic="orders"}' in text


def test_a_second_collector_needs_a_registry_of_its_own(registry):
    """Duplicate names are an error at once, not at the first scrape."""
    NSQCollector(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        NSQCollector(registry)
    assert NSQCollector(None).families()


def test_removed_consumers_and_producers_are_not_exported(registry, work):
    """Their samples disappear; the measurements of ``timed`` stay."""
    collector = NSQCollector(registry)
    work(collector)
    for what in (*collector._consumers, *collector._producers.values()):
        collector.remove(what)
    shown = {family.name for family in collector.families() if family.samples}
    assert shown == {"nsq_consumer_handler_failures", "nsq_consumer_handler_seconds",
                     "nsq_consumer_message_age_seconds"}


def test_measuring_does_not_hide_an_asynchronous_handler():
    """It is rejected as it is without ``timed``."""
    async def handler(message):
        """Runs only where it is awaited."""

    with pytest.raises(ConfigError, match="async"):
        MetricsRegistry().timed(handler, "t", "c")


def test_batches_are_timed_as_a_whole(nsqd):
    """One time for a batch, an age for each message."""
    metrics = MetricsRegistry()
    timed = metrics.timed(BatchHandler(lambda batch: None, size=3, max_wait=10), "t", "c")
    nsqd.publish_many("t", [b"x"] * 3)
    with Consumer("t", "c", timed, nsqd_tcp_addresses=[nsqd.tcp_address], config=QUICK):
        nsqd.wait_until_empty("t", "c")
    counts = {f.name: f.samples[0][1] for f in metrics.families() if f.samples}
    assert counts["nsq_consumer_handler_seconds"].count == 1
    assert counts["nsq_consumer_message_age_seconds"].count == 3


def test_the_dashboard_asks_for_metrics_that_exist():
    """Every name in the example dashboard is one of the collector's metrics."""
    path = CHECKOUT / "examples" / "grafana" / "nsqclient.json"
    dashboard = json.loads(path.read_text())
    known = set()
    for metric in NSQCollector(None).describe():
        known |= {metric.name, f"{metric.name}_total"}
        known |= {f"{metric.name}_{end}" for end in ("bucket", "sum", "count")}
    asked = [target["expr"] for panel in dashboard["panels"]
             for target in panel.get("targets", [])]
    names = set(re.findall(r"\bnsq_\w+", " ".join(asked)))
    assert len(asked) >= 10 and names <= known
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def exported_names():
    """The names of all metrics of consumers and producers, and of an outbox."""
    pytest.importorskip("django", reason="Django comes with the test extra")
    django_settings.configure()
    from nsqclient.contrib.django.outbox.metrics import OutboxCounters

    return {f"{metric.name}_total" if metric.type == "counter" else metric.name
            for metric in [*NSQCollector(None).describe(),
                           *map(metric_of, OutboxCounters().families())]}


def test_the_page_lists_every_metric():
    """The tables in the docs have exactly the collector's metrics, and those of an outbox."""
    page = (CHECKOUT / "docs" / "topics" / "metrics.rst").read_text()
    assert set(re.findall(r"^``(nsq_\w+)``", page, re.MULTILINE)) == exported_names()


def test_the_alerts_of_the_page_use_metrics_that_there_are():
    """Names of metrics, of labels, and a summary for each rule."""
    [block] = named("alert rules")
    [group] = yaml.safe_load(block.text)["groups"]
    used = set(re.findall(r"\bnsq_\w+", "".join(rule["expr"] for rule in group["rules"])))
    assert len(used) == 6 and used <= exported_names()
    labels = set(re.findall(r"\$labels\.(\w+)", block.text))
    assert labels == {"topic", "channel", "producer"}
    assert all(rule["annotations"]["summary"] for rule in group["rules"])


@pytest.mark.external
def test_promtool_accepts_the_alerts_of_the_page(tmp_path):
    """Their syntax, and that of their expressions."""
    rules = tmp_path / "rules.yml"
    rules.write_text(named("alert rules")[0].text)
    done = subprocess.run([prometheus.program("promtool"), "check", "rules", str(rules)],
                          text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def statsd():
    """A statsd server: returns received lines, and has its address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)

        def lines() -> list[str]:
            datagram = sock.recv(65536)
            assert len(datagram) <= 508
            return datagram.decode().splitlines()

        lines.address = "127.0.0.1:{}".format(sock.getsockname()[1])
        yield lines


def read_until(statsd, wanted: str) -> dict[str, str]:
    """Read lines until one of a name arrives."""
    seen: dict[str, str] = {}
    while wanted not in seen:
        seen.update(line.split(":", 1) for line in statsd())
    return seen


def test_statsd_gets_differences_and_states(work, statsd):
    """Counters once, gauges each time; labels are parts of the name."""
    sink = StatsdSink(statsd.address, "web.")
    work(sink)
    assert sink.send() > 20
    seen = read_until(statsd, "web.nsq.producer.publish_seconds.default.p99")
    assert seen["web.nsq.consumer.finished.orders.mail"] == "3|c"
    assert seen["web.nsq.consumer.backoff.orders.mail.flowing"] == "1|g"
    assert seen["web.nsq.consumer.handler_seconds.orders.mail.count"] == "5|c"
    assert seen["web.nsq.producer.messages.default.rejected"] == "1|c"
    sink.send()
    again = read_until(statsd, "web.nsq.producer.nsqds.default")
    assert again["web.nsq.producer.nsqds.default"] == "1|g"
    assert not [line for line in again.values() if line.endswith("|c")]


def test_statsd_is_sent_in_the_background_and_at_the_end(work, statsd):
    """``with`` sends every interval, and a last time at its end."""
    with StatsdSink(statsd.address, interval=0.05) as sink:
        work(sink)
        read_until(statsd, "nsq.consumer.finished.orders.mail")
    sink.close()
    sink.close()


def test_an_unreachable_statsd_is_logged_once(caplog):
    """A name that does not resolve is a single warning, and no error."""
    with StatsdSink("statsd.invalid:8125", interval=100) as sink:
        assert (sink.send(), sink.send()) == (0, 0)
    assert caplog.text.count("not sent") == 1


@pytest.mark.parametrize("arguments", [("nowhere",), ("127.0.0.1:8125", "", 0)])
def test_invalid_arguments_of_a_sink_are_rejected(arguments):
    """The address and the interval are checked."""
    with pytest.raises(ConfigError):
        StatsdSink(*arguments)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_starts_its_own_sink(statsd):
    """The child has no thread, and may start one."""
    def child():
        assert sink._thread is None
        sink.start().close()
        assert sink.send() > 0

    with StatsdSink(statsd.address, interval=100) as sink:
        with Producer(["127.0.0.1:1"]) as producer:
            sink.add_producer(producer)
            with sink._sending:
                assert in_child(child) == 0
