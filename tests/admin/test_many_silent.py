"""A nsqlookupd that lists many silent nsqds takes nothing from those that answer."""

from __future__ import annotations

import json

import pytest

from tests.support.admin import running_admin
from tests.support.http_recorder import recording
from tests.support.silent import silent_addresses
from tests.support.waiting import wait_until


def producer(address, number):
    """A silent nsqd as a nsqlookupd lists it."""
    host, _, port = address.rpartition(":")
    return {"remote_address": "h:1", "hostname": f"h{number}", "broadcast_address": host,
            "tcp_port": 1, "http_port": int(port), "version": "1.3.0", "topics": ["events"],
            "tombstones": [False]}


@pytest.mark.parametrize("count", [20, 200])
def test_silent_nsqds_do_not_hide_those_that_answer(cluster, count):
    """The good nsqds are up in every poll, their topic has its depth, and its page is there."""
    cluster.fill("events", "archive")
    good = set(cluster.addresses)
    with silent_addresses(count, accepts=True) as addresses, recording() as hostile:
        hostile.body = json.dumps({
            "version": "1.3.0", "topics": ["events"], "channels": [],
            "producers": [producer(each, n) for n, each in enumerate(addresses)]}).encode()
        lookupds = [hostile.address, cluster.lookupds[0].http_address]
        with running_admin(lookupd_http_addresses=lookupds, connect_timeout=2,
                           request_timeout=5) as admin:
            serials = set()
            while len(serials) < 12:
                nodes = admin.json("/api/live/nodes")
                if not serials:
                    # On a busy machine even a good server may miss the first round.
                    nodes = wait_until(lambda: newest(admin, good), 30)
                serials.add(nodes["serial"])
                assert {each["address"] for each in nodes["list"] if each["is_up"]} == good
                assert admin.json("/api/live/topics")["rows"][0][1] == 6
                page = admin.json("/api/live/topics/events")
                assert {each["node"] for each in page["nodes"]} == good
                rows = admin.json("/api/live/lookup")["lookupds"]
                assert [row["is_up"] for row in rows] == [True, True]
            assert len(nodes["problems"]) == count


def newest(admin, good):
    """The nsqds, once the good ones are up."""
    nodes = admin.json("/api/live/nodes")
    return nodes if {each["address"] for each in nodes["list"] if each["is_up"]} == good else None
