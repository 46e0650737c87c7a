"""Metrics of a worker: the snapshots of several processes become one scrape."""

from __future__ import annotations

import json

import pytest

from nsqclient import Consumer
from nsqclient.contrib.worker_metrics import WorkerMetrics, make_worker_metrics, merge


def snapshot() -> object:
    """What one process sends, as it arrives."""
    metrics = WorkerMetrics()
    consumer = Consumer("orders", "c", metrics.timed(print, "orders", "c"),
                        nsqd_tcp_addresses=["127.0.0.1:1"])
    metrics.add_consumer(consumer)
    return json.loads(json.dumps(metrics.snapshot()))


def test_each_sample_has_the_number_of_its_process():
    """Names, kinds and values are those of one process."""
    families = {family.name: family for family in merge({"1": snapshot(), "2": snapshot()})}
    received = families["nsq_consumer_received"]
    assert received.labels == ("topic", "channel", "process") and received.kind == "counter"
    assert received.samples == [(("orders", "c", "1"), 0.0), (("orders", "c", "2"), 0.0)]
    assert families["nsq_consumer_handler_seconds"].samples[0][1].count == 0


def test_a_scrape_is_text_for_prometheus():
    """Histograms too; without a process there is nothing."""
    pytest.importorskip("prometheus_client", reason="comes with the test extra")
    kind, text = make_worker_metrics().render({"1": snapshot()})
    assert kind.startswith("text/plain")
    assert b'nsq_consumer_received_total{channel="c",process="1",topic="orders"} 0.0' in text
    assert b"nsq_consumer_handler_seconds_bucket" in text
    assert make_worker_metrics().render({})[1] == b""
