"""An nsqlookupd that lists many silent nsqds does not affect responsive nsqds."""

from __future__ import annotations

import json

import pytest

from tests.support.browser.admin import running_admin
from tests.support.faults.silent_addresses import silent_addresses
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until


def producer(address, number):
    """A silent nsqd as an nsqlookupd lists it."""
    host, _, port = address.rpartition(":")
    return {"remote_address": "h:1", "hostname": f"h{number}", "broadcast_address": host,
            "tcp_port": 1, "http_port": int(port), "version": "1.3.0", "topics": ["events"],
            "tombstones": [False]}


@pytest.mark.parametrize("count", [pytest.param(20, marks=pytest.mark.long), 200])
def test_silent_nsqds_do_not_hide_those_that_answer(cluster, count):
    """The responsive nsqds are up in the polls, with the depth and the page of their topic."""
    cluster.fill("events", "archive")
    good = set(cluster.addresses)
    with silent_addresses(count, accepts=True) as addresses, recording() as hostile:
        hostile.body = json.dumps({
            "version": "1.3.0", "topics": ["events"], "channels": [],
            "producers": [producer(each, n) for n, each in enumerate(addresses)]}).encode()
        lookupds = [hostile.address, cluster.lookupds[0].http_address]
        with running_admin(lookupd_http_addresses=lookupds, connect_timeout=2,
                           request_timeout=5) as admin:
            wait_until(lambda: newest(admin, good), 30)
            serials, missed = set(), set()
            while len(serials) < 12:
                nodes = admin.json("/api/live/nodes")
                serials.add(nodes["serial"])
                up = {each["address"] for each in nodes["list"] if each["is_up"]}
                depth = admin.json("/api/live/topics")["rows"][0][1]
                page = {each["node"] for each in admin.json("/api/live/topics/events")["nodes"]}
                rows = admin.json("/api/live/lookup")["lookupds"]
                lookups = [row["is_up"] for row in rows]
                assert up <= good and page <= good
                seen = (up, depth, page, lookups, len(nodes["problems"]))
                if seen != (good, 6, good, [True, True], count):
                    missed.add(nodes["serial"])
            # On a busy machine a good server may answer later than a poll waits for it.
            assert len(missed) <= 2


def newest(admin, good):
    """The nsqds, once the good ones are up."""
    nodes = admin.json("/api/live/nodes")
    return nodes if {each["address"] for each in nodes["list"] if each["is_up"]} == good else None
