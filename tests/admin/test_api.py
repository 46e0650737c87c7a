"""Both APIs of the admin page, on an embedded cluster."""

import json

import pytest
import requests

from tests.support.browser.admin import running_admin
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until


def names(answer):
    return answer["topics"]


@pytest.mark.parametrize("direct", [False, True])
def test_topics_and_channels_are_created_in_both_modes(cluster, direct):
    admin = cluster.admin(direct=direct)
    assert admin.post("/api/topics", {"topic": "made", "channel": "c"}).json() == {"message": ""}
    assert names(admin.json("/api/topics")) == ["made"]
    if direct:
        for nsqd in cluster.nsqds:
            assert nsqd.stats("made", "c")["channel_name"] == "c"
    else:
        assert names(admin.json("/api/topics?inactive=true")) == {"made": ["c"]}


def test_a_topic_is_created_on_one_nsqd_or_on_all(cluster, admin):
    first, second = cluster.nsqds
    admin.post("/api/topics", {"topic": "one", "node": first.http_address})
    admin.post("/api/topics", {"topic": "all", "node": "*"})
    assert first.stats("one") and not second.stats("one")
    assert first.stats("all") and second.stats("all")


def test_one_nsqd_can_be_acted_on_alone(cluster, admin, events):
    first, second = cluster.nsqds
    for action, field, values in (("pause", "paused", (True, False)), ("empty", "depth", (0, 3))):
        body = {"action": action, "node": first.http_address}
        assert admin.post("/api/topics/events/archive", body).status_code == 200
        found = tuple(nsqd.stats("events", "archive")[field] for nsqd in (first, second))
        assert found == values
    admin.delete("/api/topics/events/archive", {"node": first.http_address})
    assert not first.stats("events", "archive") and second.stats("events", "archive")


@pytest.mark.parametrize("path, values, status, code", [
    ("/api/topics", {"topic": "b$d"}, 400, "INVALID_TOPIC"),
    ("/api/topics", {"topic": "ok", "channel": "b$d"}, 400, "INVALID_CHANNEL"),
    ("/api/topics", {"topic": 7}, 400, "INVALID_BODY"),
    ("/api/topics", [], 400, "INVALID_BODY"),
    ("/api/topics", b'{"topic":', 400, "INVALID_BODY"),
    ("/api/topics/events", {"action": "explode"}, 400, "INVALID_ACTION"),
    ("/api/topics/nope", {"action": "pause"}, 404, "TOPIC_NOT_FOUND"),
    ("/api/topics/events", {"action": "pause", "node": "127.0.0.1:1"}, 404, "NODE_NOT_FOUND"),
    ("/api/live/publish", {"topic": "events", "body": ""}, 400, "INVALID_BODY"),
    ("/api/live/publish", {"topic": "events", "body": "!", "encoding": "base64"}, 400,
     "INVALID_BODY"),
    ("/api/live/publish", {"topic": "events", "body": "x", "defer": "soon"}, 400,
     "INVALID_DEFER"),
    ("/api/live/publish", {"topic": "events", "body": "x", "defer": 1e9}, 400, "INVALID_BODY"),
])
def test_a_bad_request_is_answered_with_nsqadmins_code(cluster, events, path, values, status, code):
    body = values if isinstance(values, bytes) else json.dumps(values)
    answer = cluster.admin().raw(
        "POST", path, data=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["message"]) == (status, code)


def test_a_failed_server_is_named_and_the_others_are_shown(cluster, events):
    admin = cluster.admin(direct=True)
    down = cluster.nsqds[1]
    down.stop()
    answer = admin.json("/api/topics/events")
    assert answer["message"].startswith("WARNING: ") and down.http_address in answer["message"]
    assert answer["channels"][0]["depth"] == 3
    answer = admin.post("/api/topics/events", {"action": "pause"})
    assert answer.status_code == 200 and down.http_address in answer.json()["message"]
    cluster.nsqds[0].stop()
    answer = admin.get("/api/topics")
    assert answer.status_code == 502
    assert {each["address"] for each in answer.json()["problems"]} == set(cluster.addresses)


def test_the_page_of_topics_has_a_row_for_each(cluster):
    cluster.fill("quiet", "c")
    cluster.fill("busy", "c")
    found = cluster.admin().json("/api/live/topics")
    assert [row[found["fields"].index("name")] for row in found["rows"]] == ["busy", "quiet"]


def test_pages_share_an_answer_until_an_action(cluster, events):
    admin = cluster.admin(refresh_interval=500.0)
    first = admin.get("/api/live/topics/events")
    cluster.nsqds[0].post("/topic/pause", topic="events")
    assert admin.get("/api/live/topics/events").content == first.content
    admin.post("/api/topics/events", {"action": "pause"})
    assert admin.get("/api/live/topics/events").content != first.content


def test_rates_are_shown_with_their_history(cluster, admin, events):
    serial = admin.json("/api/live/topics")["serial"]
    cluster.nsqds[0].post("/mpub", b"a\nb\nc", topic="events")
    wait_until(lambda: admin.json("/api/live/topics")["serial"] > serial + 1)
    topic, channel = (admin.json(f"/api/live/topics/{path}")
                      for path in ("events", "events/archive"))
    assert any(topic["rates"]) and any(channel["rates"])
    assert channel["depths"][-1] == 9


def test_a_message_is_published_from_the_form(cluster, admin):
    cluster.fill("events", "archive", 0)
    second = cluster.nsqds[1]
    for values in ({"body": "grüße"}, {"body": "AAE=", "encoding": "base64"},
                   {"body": "x", "defer": 3600}):
        body = {"topic": "events", "node": second.http_address, **values}
        assert admin.post("/api/live/publish", body).json()["node"] == second.http_address
    channel = wait_until(lambda: second.stats("events", "archive"))
    assert (channel["depth"], channel["deferred_count"]) == (2, 1)


def test_metrics_are_prometheus_text(cluster, admin, events):
    node = cluster.addresses[0]
    found = admin.scrape()
    assert found["nsq_channel_depth", "archive", node, "events"] == 3
    assert found["nsq_topic_messages_total", node, "events"] == 3
    assert found["nsq_channel_paused", "archive", node, "events"] == 0
    assert found["nsq_nsqd_up", node] == found["nsq_cluster_up",] == 1
    cluster.nsqds[0].stop()
    assert admin.scrape()["nsq_nsqd_up", node] == 0
    cluster.nsqds[1].stop()
    cluster.lookupds[0].stop()
    assert admin.scrape()["nsq_cluster_up",] == 0


def test_addresses_can_be_rewritten(cluster, events):
    first, second = cluster.nsqds
    admin = cluster.admin(rewrite_addresses=[(first.http_address, second.http_address)])
    listed = {each["address"]: each for each in admin.json("/api/live/nodes")["list"]}
    assert listed[first.http_address]["reached_at"] == second.http_address
    first.post("/pub", b"x", topic="events")
    assert admin.json("/api/topics/events")["message_count"] == 6, "the second is asked twice"


def test_an_action_is_notified(cluster):
    with recording() as endpoint:
        admin = cluster.admin(notification_http_endpoint=f"{endpoint.url}/hook")
        admin.post("/api/topics", {"topic": "made", "channel": "c"}, **{"X-Forwarded-User": "ada"})
        wait_until(lambda: len(endpoint.requests) == 2)
        sent = [json.loads(body) for body in endpoint.bodies()]
    assert [each["action"] for each in sent] == ["create_topic", "create_channel"]
    assert sent[1]["topic"] == "made" and sent[1]["channel"] == "c" and sent[1]["user"] == "ada"
    assert sent[0]["url"] == f"{admin.url}/api/topics" and "channel" not in sent[0]


def test_options_can_be_read_and_set(cluster, admin):
    path = "/config/nsqlookupd_http_addresses"
    assert admin.json(path) == [cluster.lookupds[0].http_address]
    answer = admin.raw("PUT", path, json=["127.0.0.1:1"])
    assert answer.json() == ["127.0.0.1:1"]
    assert admin.get("/api/topics").status_code == 502
    assert admin.raw("PUT", path, json=7).json()["message"] == "INVALID_VALUE"
    assert admin.get("/config/secret").json()["message"] == "INVALID_OPTION"


def test_config_answers_only_its_network(cluster):
    admin = cluster.admin(allow_config_from_cidr="10.0.0.0/8")
    assert admin.get("/config/log_level").status_code == 403


def test_everything_lies_under_the_base_path(cluster):
    admin = cluster.admin(base_path="/nsq")
    assert admin.url.endswith("/nsq")
    for path in ("/", "/nodes", "/ping", "/api/topics", "/static/base.css", "/metrics"):
        assert admin.get(path).status_code == 200, path
    assert requests.get(admin.url.removesuffix("/nsq") + "/ping", timeout=10).status_code == 404
    assert 'href="/nsq/nodes"' in admin.get("/").text


def test_it_starts_while_the_cluster_is_down():
    with running_admin(lookupd_http_addresses=["127.0.0.1:1"]) as admin:
        answer = admin.get("/api/live/topics")
        assert answer.status_code == 200
        assert answer.json()["problems"][0]["address"] == "127.0.0.1:1"
        assert admin.get("/").status_code == 200
