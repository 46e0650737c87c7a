"""Actions on several topics or channels at once, replays of dead letters, the doctor's findings."""

import json
import threading

import pytest
import requests

from nsqclient import Config, Consumer, DeadLetter
from nsqclient.admin import AdminSettings
from nsqclient.admin.access_control import RequestError
from nsqclient.admin.context import DoctorRunner, make_cluster
from nsqclient.cluster.doctor.diagnosis import Diagnosis
from tests.support.waiting import wait_until


def bulk(admin, action, **targets):
    return admin.post("/api/live/bulk", {"action": action, **targets})


def test_several_topics_are_paused_emptied_and_deleted(cluster, admin):
    for topic in ("one", "two", "three"):
        cluster.fill(topic, "c")
    answer = bulk(admin, "pause", topics=["one", "two"]).json()
    assert answer == {"message": "", "done": ["one", "two"], "failed": []}
    assert [nsqd.stats("two")["paused"] for nsqd in cluster.nsqds] == [True, True]
    bulk(admin, "unpause", topics=["one", "two"])
    answer = bulk(admin, "delete", topics=["one", "gone", "two"]).json()
    assert answer["done"] == ["one", "two"]
    assert [each["name"] for each in answer["failed"]] == ["gone"]
    assert all(not nsqd.stats("one") and nsqd.stats("three") for nsqd in cluster.nsqds)


def test_several_channels_of_a_topic_are_emptied(cluster):
    for channel in ("a", "b", "c"):
        cluster.fill("events", channel, 0)
    for nsqd in cluster.nsqds:
        nsqd.post("/pub", b"x", topic="events")
        wait_until(lambda: all(nsqd.stats("events", name)["depth"] for name in "abc"))
    assert bulk(cluster.admin(), "empty", topic="events", channels=["a", "b"]).json()["done"] == [
        "a", "b"]
    depths = [cluster.nsqds[0].stats("events", name)["depth"] for name in "abc"]
    assert depths == [0, 0, 1]


@pytest.mark.parametrize("values", [
    {"action": "explode", "topics": ["t"]}, {"action": "pause"}, {"action": "pause", "topics": []},
    {"action": "pause", "topics": "t"}, {"action": "pause", "topics": [1]},
    {"action": "delete", "topics": ["good", "b$d"]}, {"action": "delete", "topic": "t"},
    {"action": "delete", "topics": [f"t{number}" for number in range(201)]},
])
def test_an_invalid_request_changes_nothing(cluster, values):
    cluster.fill("good", "c")
    assert cluster.admin().post("/api/live/bulk", values).status_code == 400
    assert cluster.nsqds[0].stats("good")


def test_only_users_with_permission_act(cluster):
    cluster.fill("orders.dead", "keep")
    admin = cluster.admin(allow_actions=False)
    assert bulk(admin, "delete", topics=["orders.dead"]).status_code == 403
    body = {"topic": "orders.dead", "channel": "keep"}
    assert admin.post("/api/live/replay", body).status_code == 403


def steps(admin, **values):
    answer = admin.post("/api/live/replay", values)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.split("\n") if line]


def bodies(cluster, topic, count):
    with Consumer(topic, "work", nsqd_tcp_addresses=[each.tcp_address for each in cluster.nsqds],
                  config=Config(max_in_flight=10)) as consumer:
        messages = consumer.messages(timeout=20)
        return sorted(next(messages).body for _ in range(count))


def test_all_dead_letters_go_to_the_topic_that_is_named(cluster):
    """Whatever they say: anybody may have written it."""
    cluster.fill("failed.dead", "keep", 0)
    cluster.fill("failed", "work", 0)
    letters = [DeadLetter(b"%d" % number, "orders", "work").to_envelope() for number in range(3)]
    for number, letter in enumerate([*letters, b"plain"]):
        cluster.nsqds[number % 2].post("/pub", letter, topic="failed.dead")
    wait_until(lambda: sum(nsqd.stats("failed.dead", "keep")["depth"]
                           for nsqd in cluster.nsqds) == 4)
    found = steps(cluster.admin(), topic="failed.dead", channel="keep", target="failed", rate=1000)
    assert found[0] == {"wanted": 4} and found[-1] == {"done": 4}
    assert bodies(cluster, "failed", 4) == [b"0", b"1", b"2", b"plain"]
    assert [nsqd.stats("failed.dead", "keep")["depth"] for nsqd in cluster.nsqds] == [0, 0]


def keep_letter(cluster, body):
    """Make the channel ``keep`` of the topic ``letters``, with one message."""
    cluster.fill("letters", "keep", 0)
    cluster.nsqds[0].post("/pub", body, topic="letters")
    wait_until(lambda: cluster.nsqds[0].stats("letters", "keep")["depth"])


def test_a_letter_that_cannot_be_published_stays(cluster, admin):
    keep_letter(cluster, DeadLetter(b"", "orders", "work").to_envelope())
    found = steps(admin, topic="letters", channel="keep", target="orders")
    assert "not replayed to orders" in found[-1]["error"]
    wait_until(lambda: cluster.nsqds[0].stats("letters", "keep")["depth"] == 1)


def test_letters_that_wait_and_do_not_come_end_a_replay_with_an_error(cluster):
    """After ``drain_patience``; a silence alone is not the end."""
    keep_letter(cluster, b"x")
    admin = cluster.admin(
        consumer_config=Config(drain_patience=1.0),
        rewrite_addresses=[(cluster.nsqds[0].tcp_address, "127.0.0.1:1")])
    found = steps(admin, topic="letters", channel="keep", target="orders")
    assert "is empty for 1 s (drain_patience)" in found[-1]["error"]
    assert "1 wait and do not arrive" in found[-1]["error"]


def test_an_empty_channel_is_replayed_at_once(cluster, admin):
    cluster.fill("orders.dead", "keep", 0)
    assert steps(admin, topic="orders.dead", channel="keep", target="t") == [{"wanted": 0}]
    body = {"topic": "orders.dead", "channel": "keep"}
    assert admin.post("/api/live/replay", body).status_code == 400
    body = {"topic": "orders.dead", "channel": "gone", "target": "t"}
    assert admin.post("/api/live/replay", body).status_code == 404
    for rate in (0, -1, True, "x", 1e9):
        body = {"topic": "orders.dead", "channel": "keep", "target": "t", "rate": rate}
        assert admin.post("/api/live/replay", body).status_code == 400


def test_one_replay_runs_at_a_time(cluster, admin):
    cluster.fill("orders.dead", "keep", 2)
    body = {"topic": "orders.dead", "channel": "keep", "target": "orders", "rate": 0.01}
    with requests.post(f"{admin.url}/api/live/replay", json=body, stream=True, timeout=30) as first:
        assert first.status_code == 200
        assert admin.post("/api/live/replay", body).status_code == 429
    cluster.fill("other.dead", "keep", 0)
    wait_until(lambda: admin.post("/api/live/replay", {
        "topic": "other.dead", "channel": "keep", "target": "t"}).status_code == 200)


def test_the_doctor_reports_what_is_wrong(cluster, events):
    cluster.nsqds[0].post("/topic/pause", topic="events")
    for admin in (cluster.admin(), cluster.admin(direct=True)):
        found = admin.json("/api/live/doctor")
        first = found["findings"][0]
        assert first["severity"] == "error" and "paused" in first["text"]
        assert "topic/unpause" in first["command"]
        assert "1 error" in found["summary"]
        checked = [each for each in found["findings"] if each["check"] == "nsqd"]
        assert len(checked) == 2 and all(each["severity"] == "ok" for each in checked)


def test_the_doctor_uses_rewritten_addresses(cluster):
    host, port = cluster.addresses[0].split(":")
    admin = cluster.admin(rewrite_addresses=[(f"{host}:{port}", "127.0.0.1:1")])
    found = admin.json("/api/live/doctor")["findings"]
    assert any(each["where"] == "127.0.0.1:1" and each["severity"] != "ok" for each in found)


def test_no_request_waits_for_the_run_of_another_one(cluster, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    run = Diagnosis.run

    def slow_run(self):
        begun.set()
        assert may_end.wait(60)
        run(self)

    monkeypatch.setattr(Diagnosis, "run", slow_run)
    settings = AdminSettings(nsqd_http_addresses=tuple(cluster.addresses))
    queried = make_cluster(settings)
    runner = DoctorRunner(queried, settings)
    thread = threading.Thread(target=runner.findings)
    thread.start()
    try:
        assert begun.wait(60)
        with pytest.raises(RequestError, match="DOCTOR_RUNNING"):
            runner.findings()
    finally:
        may_end.set()
        thread.join()
    assert runner.findings()
    queried.close()
