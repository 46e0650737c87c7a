"""The alert rules and the dashboard in docs/contrib, and the metrics that they use."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from nsqclient.admin.metrics import to_text
from nsqclient.cluster.cluster import Node
from tests.support.servers import prometheus
from tests.support.waiting import wait_until

CONTRIB = Path(__file__).resolve().parent.parent.parent / "docs" / "contrib"
RULES = yaml.safe_load((CONTRIB / "nsq-alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((CONTRIB / "nsq-dashboard.json").read_text())
ALERTS = {rule["alert"]: rule["expr"] for rule in RULES}
#: What Grafana puts in.
VARIABLES = {"$topic": ".*", "$channel": ".*", "$__rate_interval": "2m"}

NODE = Node("n:1", "n:1", "n:2", "n", "n", 2, 1, "1.3.0")
LATENCY = {"count": 9, "percentiles": [{"quantile": 0.99, "value": 12_500_000}]}
STATS = {
    "version": "1.3.0", "health": "OK", "start_time": 1_700_000_000,
    "topics": [{"topic_name": "t", "depth": 1, "message_count": 2,
                "e2e_processing_latency": LATENCY, "channels": [
                    {"channel_name": "c", "depth": 3, "e2e_processing_latency": LATENCY}]}],
}


def panel_queries() -> list[str]:
    found = []
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            found.append(text)
    return found


def test_nsqds_and_latencies_have_metrics():
    text = to_text({NODE: STATS}, {"n:1": True}, {})
    for line in (
        'nsq_nsqd_info{node="n:1",version="1.3.0"} 1.0', 'nsq_nsqd_healthy{node="n:1"} 1.0',
        'nsq_nsqd_start_time_seconds{node="n:1"} 1.7e+09',
        'nsq_topic_e2e_latency_seconds{node="n:1",quantile="0.99",topic="t"} 0.0125',
        'nsq_channel_e2e_latency_seconds{channel="c",node="n:1",quantile="0.99",topic="t"} 0.0125',
    ):
        assert line in text


def test_rules_and_dashboard_use_metrics_that_there_are():
    known = set(re.findall(r"^# TYPE (\S+)", to_text(
        {NODE: STATS}, {"n:1": True}, {"l:1": True}), re.MULTILINE))
    used = set(re.findall(r"\bnsq_\w+", json.dumps([*ALERTS.values(), *panel_queries()])))
    assert used <= known and len(used) > 12


@pytest.mark.external
@pytest.mark.parametrize("words", [
    ("check", "rules", "nsq-alerts.yml"), ("test", "rules", "nsq-alerts-test.yml"),
    ("check", "config", "prometheus.yml"),
])
def test_promtool_accepts_the_files(words):
    done = subprocess.run([prometheus.program("promtool"), *words], cwd=CONTRIB, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.external
def test_a_real_prometheus_scrapes_the_page_and_evaluates_everything(cluster, admin, tmp_path):
    prometheus.program("prometheus")
    cluster.fill("events", "archive")
    target = admin.url.removeprefix("http://")
    with prometheus.running(tmp_path, target, CONTRIB / "nsq-alerts.yml") as found:
        depth = 'sum(nsq_channel_depth{topic="events"})'
        wait_until(lambda: [each["value"][1] for each in found.query(depth)] == ["6"], timeout=60)
        for expression in [*ALERTS.values(), *panel_queries()]:
            found.query(expression)
        alert = "NsqChannelWithoutConsumers"
        assert found.query(ALERTS[alert])[0]["metric"] == {"topic": "events", "channel": "archive"}

        def loaded() -> bool:
            rules = [rule for group in found.get("rules")["groups"] for rule in group["rules"]]
            assert not any(rule.get("lastError") for rule in rules)
            return {rule["name"] for rule in rules if rule["health"] == "ok"} == set(ALERTS)

        wait_until(loaded, timeout=60)
