"""An nsqd that disappears stays on the page and in the metrics."""

import pytest

from nsqclient.admin.collector import LostNodes, messages_in
from nsqclient.cluster.ask_all import ServerFailure
from nsqclient.cluster.cluster import Node, Nodes
from tests.support.waiting import wait_until

DAY, MINUTE = 24 * 3600.0, 60.0


def node(name, *lookupds):
    return Node(name, name, name, "h", "h", 2, 1, "1.3.0", lookupds=lookupds or ("l:1",))


A, B = node("a:1"), node("b:1", "l:1", "l:2")


def stats(depth):
    return {"topics": [{"topic_name": "t", "depth": depth, "channels": []}]}


def addresses(lost):
    return [each.node.address for each in lost]


def test_all_messages_of_an_nsqd_are_counted():
    assert messages_in({"topics": [
        {"depth": 1, "channels": [{"depth": 2, "in_flight_count": 4, "deferred_count": 8}]},
        {"depth": 16, "channels": None}]}) == 31


@pytest.mark.parametrize("held, seconds", [(16_000, DAY), (0, 10 * MINUTE)])
def test_an_nsqd_that_is_not_listed_any_more_stays_for_a_while(held, seconds):
    """For a day if messages waited there, else for ten minutes."""
    seen = LostNodes()
    assert seen.add_round(Nodes((A, B), ()), {A: stats(held), B: stats(1)}, 1000.0) == []
    [lost] = seen.add_round(Nodes((B,), ()), {B: stats(1)}, 1002.0)
    assert (lost.node, lost.held, lost.at) == (A, held, 1000.0)
    assert ("it held 16,000 messages" if held else "it held no messages") in lost.failure().reason
    assert addresses(seen.add_round(Nodes((B,), ()), {}, 1000.0 + seconds)) == ["a:1"]
    assert seen.add_round(Nodes((B,), ()), {}, 1001.0 + seconds) == []
    assert seen.held("a:1") == 0


def test_an_nsqd_that_comes_back_is_not_lost_any_more():
    seen = LostNodes()
    seen.add_round(Nodes((A,), ()), {A: stats(7)}, 1000.0)
    assert seen.add_round(Nodes((A,), ()), {}, 1002.0) == [] and seen.held("a:1") == 7
    assert seen.add_round(Nodes((), ()), {}, 1004.0)[0].held == 7
    assert seen.add_round(Nodes((A,), ()), {A: stats(0)}, 1006.0) == [] and seen.held("a:1") == 0


def test_a_nsqlookupd_that_does_not_answer_loses_no_nsqd():
    """One of its nsqlookupds must have answered without it."""
    seen = LostNodes()
    seen.add_round(Nodes((A, B), ()), {}, 1000.0)
    silent = ServerFailure("nsqlookupd", "l:1", "refused")
    assert addresses(seen.add_round(Nodes((), (silent,)), {}, 1002.0)) == ["b:1"]


def test_a_user_forgets_an_nsqd():
    seen = LostNodes()
    seen.add_round(Nodes((A,), ()), {A: stats(7)}, 1000.0)
    assert seen.forget("a:1") and not seen.forget("a:1")
    assert seen.add_round(Nodes((), ()), {}, 1002.0) == []


def test_at_most_200_are_kept():
    seen = LostNodes()
    for number in range(300):
        one = node(f"n{number}:1")
        lost = seen.add_round(Nodes((one,), ()), {one: stats(int(number < 50))}, 1000.0 + number)
    assert len(lost) == 200
    assert addresses(lost)[:51] == [f"n{number}:1" for number in range(49, -1, -1)] + ["n298:1"]


def test_a_dead_nsqd_stays_on_every_page_and_in_the_metrics(cluster, admin, events):
    dead = cluster.addresses[0]
    assert admin.scrape()["nsq_nsqd_up", dead] == 1
    admin.json("/api/live/nodes")
    cluster.nsqds[0].kill()
    page = wait_until(lambda: [
        each for each in admin.json("/api/live/nodes")["list"]
        if each["address"] == dead and each["state"] == "gone"] and admin.json("/api/live/nodes"))
    assert (page["node_count"], page["answered_count"]) == (2, 1)
    [problem] = admin.json("/api/live/topics")["problems"]
    assert problem["state"] == "gone" and problem["since"] > 0
    assert "it held 3 messages" in problem["reason"]
    assert admin.scrape()["nsq_nsqd_up", dead] == 0
    reader = cluster.admin(allow_actions=False)
    assert reader.post("/api/live/forget", {"node": dead}).status_code == 403
    assert admin.post("/api/live/forget", {"node": dead}).status_code == 200
    assert admin.json("/api/live/nodes")["node_count"] == 1
    assert ("nsq_nsqd_up", dead) not in admin.scrape()
    assert admin.post("/api/live/forget", {"node": dead}).status_code == 404
