"""Prometheus gets the counters of consumers and producers."""

import json
import re
import subprocess
import sys

import pytest
import yaml
from prometheus_client import CollectorRegistry

from nsqclient import (
    BatchHandler, Config, ConfigError, Consumer, Producer, PublishRejectedError, Requeue,
)
from nsqclient.metrics import check_prometheus
from nsqclient.metrics.prometheus import NSQCollector, WorkerMetrics
from tests.support import django_settings
from tests.support.docs.pages import named
from tests.support.processes import CHECKOUT
from tests.support.servers import prometheus
from tests.support.waiting import wait_until

QUICK = Config(default_requeue_delay=0, max_backoff_duration=0, max_in_flight=5)


@pytest.fixture
def registry():
    return CollectorRegistry()


def handler(message):
    if message.attempts == 1 and message.body == b"requeue":
        raise Requeue(delay=0, backoff=False)
    if message.attempts == 1 and message.body == b"fail":
        raise ValueError("the first time")


@pytest.fixture
def work(nsqd):
    """Publish and consume with a registry; the consumer is still connected at the end."""
    with Producer([nsqd.tcp_address]) as producer:
        opened = []

        def run(metrics: NSQCollector):
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
    assert 1 <= value("nsq_consumer_rdy", nsqd=nsqd.tcp_address, **channel) <= 5
    assert 1 <= value("nsq_consumer_level", **channel) <= 5
    assert value("nsq_consumer_slowest_handler_seconds", **channel) > 0
    reasons = [value("nsq_consumer_level_reason", reason=reason, **channel)
               for reason in ("start", "handler_time", "max_in_flight", "held", "off")]
    assert (sum(reasons[:3]), reasons[3:]) == (1, [0, 0])
    assert value("nsq_consumer_in_flight", nsqd=nsqd.tcp_address, **channel) == 0
    outcomes = {name: value("nsq_producer_messages_total", producer="default", outcome=name)
                for name in ("stored", "rejected", "unknown")}
    assert outcomes == {"stored": 3, "rejected": 1, "unknown": 0}
    assert value("nsq_producer_publish_seconds_count", producer="default") == 3
    assert value("nsq_producer_connections", producer="default") in (0, 1)  # the refusal closed it


def test_removed_consumers_and_producers_are_not_exported(registry, work):
    collector = NSQCollector(registry)
    work(collector)
    for what in (*collector._consumers, *collector._producers.values()):
        collector.remove(what)
    shown = {metric.name for metric in collector.collect() if metric.samples}
    assert shown == {"nsq_consumer_handler_failures", "nsq_consumer_handler_seconds",
                     "nsq_consumer_message_age_seconds"}


def test_measuring_does_not_hide_an_asynchronous_handler():
    async def handler(message):
        """Does nothing unless awaited."""

    with pytest.raises(ConfigError, match="async"):
        NSQCollector(None).timed(handler, "t", "c")


def test_batches_are_timed_as_a_whole(nsqd):
    metrics = NSQCollector(None)
    timed = metrics.timed(BatchHandler(lambda batch: None, size=3, max_wait=10), "t", "c")
    nsqd.publish_many("t", [b"x"] * 3)
    with Consumer("t", "c", timed, nsqd_tcp_addresses=[nsqd.tcp_address], config=QUICK):
        nsqd.wait_until_empty("t", "c")
    counts = {sample.name: sample.value for metric in metrics.collect()
              for sample in metric.samples}
    assert counts["nsq_consumer_handler_seconds_count"] == 1
    assert counts["nsq_consumer_message_age_seconds_count"] == 3


def test_the_dashboard_asks_for_metrics_that_exist():
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
    django_settings.configure()
    from nsqclient.contrib.django.outbox.relay import OutboxCounters

    return {f"{metric.name}_total" if metric.type == "counter" else metric.name
            for metric in [*NSQCollector(None).describe(), *OutboxCounters().collect()]}


def test_the_page_lists_every_metric():
    page = (CHECKOUT / "docs" / "topics" / "metrics.rst").read_text()
    assert set(re.findall(r"^``(nsq_\w+)``", page, re.MULTILINE)) == exported_names()


def test_the_alerts_of_the_page_use_metrics_that_there_are():
    [block] = named("alert rules")
    [group] = yaml.safe_load(block.text)["groups"]
    used = set(re.findall(r"\bnsq_\w+", "".join(rule["expr"] for rule in group["rules"])))
    assert len(used) == 6 and used <= exported_names()
    labels = set(re.findall(r"\$labels\.(\w+)", block.text))
    assert labels == {"topic", "channel", "producer"}
    assert all(rule["annotations"]["summary"] for rule in group["rules"])


@pytest.mark.external
def test_promtool_accepts_the_alerts_of_the_page(tmp_path):
    rules = tmp_path / "rules.yml"
    rules.write_text(named("alert rules")[0].text)
    done = subprocess.run([prometheus.program("promtool"), "check", "rules", str(rules)],
                          text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def snapshot_of_a_worker() -> object:
    """What one process of a worker sends, as it arrives."""
    metrics = WorkerMetrics()
    consumer = Consumer("orders", "c", metrics.timed(print, "orders", "c"),
                        nsqd_tcp_addresses=["127.0.0.1:1"])
    metrics.add_consumer(consumer)
    return json.loads(json.dumps(metrics.snapshot()))


def test_each_sample_of_a_worker_has_the_number_of_its_process():
    """Histograms too; without a process there is nothing."""
    kind, text = WorkerMetrics().render(
        {"1": snapshot_of_a_worker(), "2": snapshot_of_a_worker()})
    assert kind.startswith("text/plain")
    for process in (b"1", b"2"):
        labels = b'{channel="c",process="%b",topic="orders"} 0.0' % process
        assert b"nsq_consumer_received_total" + labels in text
        assert b"nsq_consumer_handler_seconds_count" + labels in text
    types = re.findall(rb"^# TYPE (\S+) ", text, re.MULTILINE)
    assert b"nsq_consumer_received_total" in types and len(types) == len(set(types))
    assert b"nsq_consumer_handler_seconds_bucket" in text
    assert WorkerMetrics().render({})[1] == b""


def test_a_missing_package_is_named(monkeypatch):
    check_prometheus("--metrics-address")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'nsqclient\[prometheus\]'"):
        check_prometheus("--metrics-address")
