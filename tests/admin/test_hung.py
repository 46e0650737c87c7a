"""A hung nsqd or nsqlookupd delays no page, and changes no number of the others."""

import time

import pytest

from tests.support.browser.admin import running_admin
from tests.support.faults.hostile import HostileNsqd, HostileNsqlookupd
from tests.support.waiting import wait_until

#: Seconds that a request to a server may take; a page must take far less.
LONG = 120.0


@pytest.fixture
def hung(cluster):
    cluster.fill("events", "archive")
    with HostileNsqd("events", "archive") as server:
        server.answers.clear()
        yield server


@pytest.fixture
def lookupd(hung):
    with HostileNsqlookupd("events", [hung]) as server:
        yield server


@pytest.fixture
def admin(cluster, lookupd):
    addresses = [cluster.lookupds[0].http_address, lookupd.http_address]
    with running_admin(lookupd_http_addresses=addresses, request_timeout=LONG) as found:
        yield found


def test_every_page_shows_the_others_at_once(cluster, admin, hung):
    good = set(cluster.addresses)
    begun = time.monotonic()
    assert {row["address"] for row in admin.json("/api/live/nodes")["list"] if row["is_up"]} == good
    assert admin.json("/api/live/topics")["rows"][0][1] == 6
    for path in ("/api/live/topics/events", "/api/live/topics/events/archive"):
        wait_until(lambda: {each["node"] for each in admin.json(path)["nodes"]} == good)
    for address in good:
        assert admin.json(f"/api/live/nodes/{address}")["topics"][0]["topic_name"] == "events"
    admin.json("/api/live/producers")
    admin.json("/api/live/lookup")
    assert time.monotonic() - begun < LONG / 4


def test_the_row_of_a_hung_nsqd_is_marked_as_waiting(admin, hung):
    name = f"127.0.0.1:{hung.http.port}"

    def row():
        return next(each for each in admin.json("/api/live/nodes")["list"]
                    if each["address"] == name)

    assert (row()["is_up"], row()["state"]) == (False, "waiting")
    assert row()["reason"] == "waiting for its answer"
    waiting = [each["address"] for each in admin.json("/api/live/nodes")["problems"]
               if each["state"] == "waiting"]
    assert waiting == [name]
    hung.answers.set()
    wait_until(lambda: row()["is_up"])


def test_a_nsqlookupd_that_hangs_hides_no_nsqd(cluster, admin, lookupd, hung):
    hung.answers.set()
    lookupd.answers.clear()
    wait_until(lambda: {each["address"] for each in admin.json("/api/live/nodes")["list"]}
               >= set(cluster.addresses))
    rows = admin.json("/api/live/lookup")["lookupds"]
    assert [row["is_up"] for row in rows] == [True, False]
    assert rows[1]["state"] == "waiting"
