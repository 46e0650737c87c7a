"""Metrics of a worker: the snapshots of several processes become one scrape."""

from __future__ import annotations

import json
import sys

import pytest

from nsqclient import ConfigError, Consumer
from nsqclient.contrib.worker_metrics import make_worker_metrics


def snapshot() -> object:
    """What one process sends, as it arrives."""
    metrics = make_worker_metrics()
    consumer = Consumer("orders", "c", metrics.timed(print, "orders", "c"),
                        nsqd_tcp_addresses=["127.0.0.1:1"])
    metrics.add_consumer(consumer)
    return json.loads(json.dumps(metrics.snapshot()))


def test_each_sample_has_the_number_of_its_process():
    """Histograms too; without a process there is nothing."""
    pytest.importorskip("prometheus_client", reason="comes with the test extra")
    kind, text = make_worker_metrics().render({"1": snapshot(), "2": snapshot()})
    assert kind.startswith("text/plain")
    for process in (b"1", b"2"):
        labels = b'{channel="c",process="%b",topic="orders"} 0.0' % process
        assert b"nsq_consumer_received_total" + labels in text
        assert b"nsq_consumer_handler_seconds_count" + labels in text
    assert text.count(b"# TYPE nsq_consumer_received_total counter") == 1
    assert b"nsq_consumer_handler_seconds_bucket" in text
    assert make_worker_metrics().render({})[1] == b""


def test_a_missing_package_is_named(monkeypatch):
    """The error has the command that installs it."""
    monkeypatch.delitem(sys.modules, "nsqclient.contrib.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'nsqclient\[prometheus\]'"):
        make_worker_metrics()
