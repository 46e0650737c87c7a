"""Pages, answers, metrics and the log show no secrets of addresses."""

import logging

import pytest

from nsqclient.cluster.cluster import Cluster
from tests.support.browser.admin import running_admin
from tests.support.servers.http_recorder import recording
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

PATHS = [
    "/", "/nodes", "/lookup", "/topics/events", "/metrics", "/api/topics", "/api/topics/events",
    "/api/topics/events/archive", "/api/nodes", "/api/counter", "/api/topics/nothing",
    "/api/live/topics", "/api/live/topics/events", "/api/live/topics/events/archive",
    "/api/live/nodes", "/api/live/lookup", "/api/live/producers", "/api/topics?inactive=true",
    "/config/nsqlookupd_http_addresses",
]


def with_password(*addresses):
    return [f"http://user:s3cret@{address}" for address in addresses]


def check(admin, names):
    for path in [*PATHS, *(f"/api{part}/nodes/{name}" for name in names for part in ("", "/live"))]:
        answer = admin.get(path)
        assert "s3cret" not in answer.text, path
        assert answer.status_code in (200, 404), (path, answer.text)


def test_passwords_of_nsqlookupds_are_not_shown(cluster, caplog):
    caplog.set_level(logging.DEBUG, "nsqclient")
    cluster.fill("events", "archive")
    addresses = with_password(cluster.lookupds[0].http_address, f"127.0.0.1:{free_port()}")
    with running_admin(lookupd_http_addresses=addresses) as admin:
        check(admin, cluster.addresses)
        shown = [each["address"] for each in admin.json("/api/live/lookup")["lookupds"]]
        assert shown == [each.replace("s3cret", "***") for each in addresses]
        assert admin.json("/config/nsqlookupd_http_addresses") == shown
    assert "s3cret" not in caplog.text


def test_passwords_of_nsqds_are_not_shown(cluster, caplog):
    caplog.set_level(logging.DEBUG, "nsqclient")
    cluster.fill("events", "archive")
    addresses = with_password(*cluster.addresses, f"127.0.0.1:{free_port()}")
    with running_admin(nsqd_http_addresses=addresses) as admin:
        check(admin, cluster.addresses)
        assert admin.post("/api/topics/events", {"action": "pause"}).status_code == 200
        reached = {each["reached_at"] for each in admin.json("/api/live/nodes")["list"][:2]}
        assert reached == {each.replace("s3cret", "***") for each in addresses[:2]}
    assert cluster.nsqds[0].stats("events")["paused"] is True
    assert "s3cret" not in caplog.text


def test_an_address_may_be_set_as_it_is_shown(leak_guard):
    given = with_password("lookup:4161")
    asked = Cluster(given)
    asked.set_lookupds(["http://user:***@lookup:4161", "other:4161"])
    assert [client.address for client in asked.lookupds().values()] == [*given, "other:4161"]
    asked.close()


@pytest.mark.parametrize("status, why", [(500, "HTTP 500"), (0, "ConnectionError")])
def test_a_token_in_the_url_of_notifications_is_not_logged(cluster, caplog, status, why):
    caplog.set_level(logging.DEBUG, "nsqclient")
    with recording() as server:
        server.status = status
        address = server.address if status else f"127.0.0.1:{free_port()}"
        endpoint = f"http://bot:s3cret@{address}/services/T0/s3cret?key=s3cret#s3cret"
        admin = cluster.admin(notification_http_endpoint=endpoint)
        assert admin.post("/api/topics", {"topic": "made"}).status_code == 200
        wait_until(lambda: f"create_topic made to http://{address} failed: {why}" in caplog.text)
    assert "s3cret" not in caplog.text
