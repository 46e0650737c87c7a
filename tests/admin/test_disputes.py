"""Claims of one nsqlookupd or nsqd about another server do not change how it is shown."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager

import pytest

from nsqclient.admin import cluster as admin_cluster
from nsqclient.admin.cluster import Node, _mark_old
from nsqclient.devserver import Nsqd
from tests.support.browser.admin import running_admin
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until


def info_of(address, hostname="true", tcp_port=4150, version="1.3.0"):
    """The ``/info`` of an nsqd at an HTTP address."""
    host, port = address.split(":")
    return {"version": version, "broadcast_address": host, "hostname": hostname,
            "http_port": int(port), "tcp_port": tcp_port}


@contextmanager
def fake_nsqd(count=5, **info):
    """An nsqd with a topic; ``info`` replaces fields of its ``/info``."""
    with recording() as server:
        said = {**info_of(server.address), **info}
        stats = {"version": "1.3.0", "health": "OK", "topics": [
            {"topic_name": "events", "depth": 1, "message_count": count, "channels": []}]}
        server.reply = lambda request: json.dumps(
            said if request.path == "/info" else stats).encode()
        yield server


@contextmanager
def fake_lookupd(*producers, topics=("events",)):
    """An nsqlookupd that lists nsqds."""
    with recording() as server:
        server.body = json.dumps({
            "version": "1.3.0", "topics": list(topics), "channels": [],
            "producers": list(producers)}).encode()
        yield server


def listed(address, topics=("events",), tombstones=None, **values):
    """An nsqd as an nsqlookupd lists it."""
    return {**info_of(address), "remote_address": "r:1", "topics": list(topics),
            "tombstones": tombstones or [False] * len(topics), **values}


@pytest.fixture
def stack(leak_guard):
    """Servers that end with the test."""
    with ExitStack() as found:
        yield found


def page_of(stack, lookupds=(), nsqds=()):
    """A page, once everything has answered."""
    where = ({"lookupd_http_addresses": [each.address for each in lookupds]} if lookupds else
             {"nsqd_http_addresses": [each.address for each in nsqds]})
    admin = stack.enter_context(running_admin(**where))
    wait_until(lambda: nodes_of(admin))
    return admin


def nodes_of(admin):
    """The rows of responsive nsqds, by their names."""
    found = admin.json("/api/live/nodes")
    return {each["address"]: each for each in found["list"] if each["is_up"]}


# -- names


def test_an_nsqd_cannot_take_the_name_of_another_one(stack):
    """A given address is the name; the announced address is shown as such."""
    good = stack.enter_context(fake_nsqd(count=4))
    other = stack.enter_context(fake_nsqd(count=4))
    bad = stack.enter_context(fake_nsqd(count=1000, **info_of(good.address)))
    admin = page_of(stack, nsqds=[good, other, bad])
    nodes = wait_until(lambda: len(nodes_of(admin)) == 3 and nodes_of(admin))
    assert set(nodes) == {good.address, other.address, bad.address}
    assert [nodes[each.address]["reason"] for each in (good, other)] == ["", ""]
    assert good.address in nodes[bad.address]["reason"]
    assert nodes[bad.address]["announced"] == good.address
    counts = admin.json("/api/live/topics/events")["nodes"]
    assert {each["node"]: each["message_count"] for each in counts} == {
        good.address: 4, other.address: 4, bad.address: 1000}
    assert admin.scrape()["nsq_nsqd_up", bad.address] == 1
    assert [each["address"] for each in admin.json("/api/live/topics")["problems"]] == [
        bad.address]


def test_an_nsqd_is_found_by_its_announced_address_if_that_is_unique(stack):
    """The name of the original works, from the fields of /api/nodes."""
    nsqd = stack.enter_context(fake_nsqd(broadcast_address="container", http_port=4151))
    admin = page_of(stack, nsqds=[nsqd])
    assert list(nodes_of(admin)) == [nsqd.address]
    assert admin.json("/api/nodes/container:4151")["topics"][0]["topic_name"] == "events"
    assert admin.get("/api/nodes/other:4151").status_code == 404


# -- votes


def test_a_nsqlookupd_that_repeats_itself_has_one_vote(stack):
    """The nsqd is silent; two nsqlookupds agree, and a third lists other data five times."""
    gone = "127.0.0.1:1"
    good = [stack.enter_context(fake_lookupd(listed(gone))) for _ in range(2)]
    bad = stack.enter_context(fake_lookupd(*[
        listed(gone, hostname="FAKE-HOST", tcp_port=7, version="0.1.0")] * 5))
    admin = stack.enter_context(running_admin(
        lookupd_http_addresses=[each.address for each in (bad, *good)]))
    [row] = wait_until(lambda: admin.json("/api/live/nodes")["list"])
    wait_until(lambda: len(admin.json("/api/live/nodes")["list"][0]["lookupds"]) == 3)
    [row] = admin.json("/api/live/nodes")["list"]
    assert (row["hostname"], row["tcp_port"], row["version"]) == ("true", 4150, "1.3.0")


def test_the_data_of_an_nsqd_itself_overrides_nsqlookupds(stack):
    """Two nsqlookupds disagree: the nsqd is queried, and the wrong nsqlookupd is named."""
    nsqd = stack.enter_context(fake_nsqd())
    bad = stack.enter_context(fake_lookupd(
        listed(nsqd.address, hostname="FAKE-HOST", tcp_port=7, version="0.1.0")))
    good = stack.enter_context(fake_lookupd(listed(nsqd.address)))
    admin = page_of(stack, [bad, good])
    row = wait_until(lambda: next(
        (each for each in nodes_of(admin).values() if len(each["lookupds"]) == 2), None))
    assert (row["hostname"], row["tcp_port"], row["version"]) == ("true", 4150, "1.3.0")
    assert row["reason"] == ""
    [problem] = admin.json("/api/live/nodes")["problems"]
    assert (problem["kind"], problem["address"]) == ("nsqlookupd", bad.address)
    assert admin.scrape()["nsq_nsqlookupd_up", bad.address] == 1


def test_a_tie_is_shown_as_a_problem_of_the_nsqd(stack):
    """The nsqd does not answer, and two nsqlookupds disagree."""
    gone = "127.0.0.1:1"
    lookupds = [stack.enter_context(fake_lookupd(listed(gone, tcp_port=port))) for port in (5, 6)]
    admin = stack.enter_context(running_admin(
        lookupd_http_addresses=[each.address for each in lookupds]))
    reasons = wait_until(lambda: [
        each["reason"] for each in admin.json("/api/live/nodes")["problems"]
        if "differ" in each["reason"]])
    assert "tcp_port 5" in reasons[0] and "tcp_port 6" in reasons[0]


# -- versions


def aged(*versions, lookupds=None):
    """Return the nsqds that are out of date."""
    return [each.out_of_date for each in _mark_old([
        Node(f"n{n}:1", "a:1", "a:2", "n", "h", 2, 1, version,
             lookupds=("l",) if lookupds is None else lookupds[n])
        for n, version in enumerate(versions)])]


@pytest.mark.parametrize("versions, old", [
    (["1.3.0", "1.3.0"], [False, False]),
    (["1.3.0", "1.2.1"], [False, True]),
    (["1.3.0", "1.3.0", "1.2.1"], [False, False, True]),
    (["1.3.0", "1.3.0", "9999.9999.9999"], [False, False, False]),
    (["1.3.0", "1.2.1", "1.2.1"], [False, False, False]),
    (["1.3.0", "1.3.0", "1.2.1", "1.2.1"], [False, False, True, True]),
    (["1.3.0", "", "x"], [False, False, False]),
    (["1.10.0", "1.9.0"], [False, True]),
])
def test_an_nsqd_is_old_when_half_of_all_are_newer(versions, old):
    """A single nsqd with an invented newer version makes no other old."""
    assert aged(*versions) == old


def test_invented_nsqds_of_one_nsqlookupd_make_no_other_nsqd_old():
    """All nsqlookupds that list an nsqd must agree that it is old."""
    invented = ["9999.9999.9999"] * 200
    assert aged("1.3.0", "1.3.0", *invented, lookupds=[
        ("good", "bad"), ("good", "bad"), *[("bad",)] * 200])[:2] == [False, False]


# -- tombstones


def test_a_tombstone_of_one_nsqlookupd_alone_is_not_shown(stack):
    """The other nsqlookupd still returns the nsqd. A tombstone of all that list it is shown."""
    nsqd = stack.enter_context(fake_nsqd())
    bad = stack.enter_context(fake_lookupd(listed(nsqd.address, tombstones=[True])))
    good = stack.enter_context(fake_lookupd(listed(nsqd.address)))
    admin = page_of(stack, [bad, good])
    row = wait_until(lambda: next(
        (each for each in nodes_of(admin).values() if len(each["lookupds"]) == 2), None))
    assert row["tombstoned"] == []
    assert not admin.json("/api/live/topics/events")["nodes"][0]["tombstoned"]
    good.body = bad.body
    wait_until(lambda: nodes_of(admin)[nsqd.address]["tombstoned"] == ["events"], timeout=30)


# -- very many topics


def test_a_nsqlookupd_with_too_many_topics_is_cut_and_named(stack, monkeypatch):
    """Topics beyond the limit are left out; the topics of the others are complete."""
    monkeypatch.setattr(admin_cluster, "_MOST_TOPICS", 50)
    monkeypatch.setattr(admin_cluster, "_MOST_NODES", 3)
    nsqd = stack.enter_context(Nsqd())
    nsqd.publish("events", b"x")
    many = [f"invented-{n}" for n in range(1000)]
    bad = stack.enter_context(fake_lookupd(
        *[listed(f"127.0.0.1:{n}", topics=many) for n in range(1, 10)], topics=many))
    good = stack.enter_context(fake_lookupd(listed(nsqd.http_address)))
    admin = page_of(stack, [bad, good])
    found = wait_until(lambda: (page := admin.json("/api/live/nodes"))["node_count"] == 4 and page)
    reasons = [each["reason"] for each in found["problems"] if each["address"] == bad.address]
    assert reasons == ["it lists 9 nsqds: all after the first 3 are left out",
                       "it lists 1000 topics: all after the first 50 are left out"]
    rows = wait_until(lambda: (rows := admin.json("/api/live/topics")["rows"]) and len(rows) > 50
                      and rows)
    assert len(rows) == 51 and "events" in [row[0] for row in rows]
    # What is left out may be somewhere: actions ask every nsqd.
    assert admin.post("/api/topics/events", {"action": "pause"}).status_code == 200
