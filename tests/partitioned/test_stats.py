"""Actions on channels of a partitioned cluster, and its statistics in the form of a stock one."""

import json
from contextlib import ExitStack
from urllib.parse import parse_qsl, urlsplit

import pytest

from nsqclient.cluster.actions import ActionError, ClusterActions
from nsqclient.cluster.ask_all import UpstreamError
from nsqclient.cluster.cluster import Cluster
from nsqclient.partitioned.http import as_stock, led_topics
from nsqclient.cli import main
from nsqclient.devserver import PartitionedCluster
from tests.support.servers.http_recorder import recording

VERSION = "0.3.7-HA.1.13.0"


def partition(number, *, leads=True, channel="c", **values):
    channels = [{"channel_name": channel, **values}] if channel else []
    return {"topic_name": "t", "topic_partition": str(number), "is_leader": leads, "depth": 9999,
            "backend_depth": 9999, "message_count": 100, "channels": channels}


# -- statistics, by value


def test_each_partition_that_is_led_counts_once():
    stats = {"version": VERSION, "topics": [
        partition(0, depth=7, in_flight_count=2, client_num=1, clients=[{"client_id": "a"}]),
        partition(1, leads=False, depth=100),
        partition(2, depth=3, in_flight_count=0, client_num=1, paused=True, deferred_count=1,
                  delayed_queue_count=4)]}
    [topic] = as_stock(stats)["topics"]
    assert [topic[each] for each in ("depth", "backend_depth", "message_count")] == [0, 0, 200]
    [channel] = topic["channels"]
    assert [channel[each] for each in ("depth", "in_flight_count", "client_count", "paused",
                                       "deferred_count")] == [8, 2, 2, True, 5]
    assert channel["clients"] == [{"client_id": "a"}]
    assert {number: each.channel("c").depth for number, each in led_topics(stats, "t").items()} == {
        0: 5, 2: 3}


@pytest.mark.parametrize("topic", [
    {"topic_name": "t", "depth": 5, "channels": None}, {"topic_name": "t", "topic_partition": ""},
    {"topic_name": "t", "topic_partition": "x"}, {},
])
def test_the_answer_of_a_stock_nsqd_stays_as_it_is(topic):
    stats = {"topics": [topic, 7]}
    assert as_stock(stats) is stats and led_topics(stats, "t") == {}


# -- actions


@pytest.fixture
def servers(leak_guard):
    """Two nsqds with two partitions each and copies of the others, and an nsqlookupd."""
    with ExitStack() as stack:
        lookupd, *nsqds = (stack.enter_context(recording()) for _ in range(3))
        for first, nsqd in zip((0, 2), nsqds):
            nsqd.topics = [partition(number, leads=first <= number < first + 2)
                           for number in range(4)]
            nsqd.refused = {}

            def answer(request, nsqd=nsqd):
                if request.path.startswith("/stats"):
                    return 200, json.dumps({"version": VERSION, "topics": nsqd.topics}).encode()
                status, code = nsqd.refused.get(dict(asked(request))["partition"], (200, ""))
                return status, json.dumps({"message": code}).encode()

            nsqd.answer = answer
        host = nsqds[0].address.split(":")[0]
        producers = [{"broadcast_address": host, "hostname": "h", "remote_address": "r:1",
                      "tcp_port": 4150, "http_port": int(each.address.split(":")[1]),
                      "version": VERSION, "topics": ["t"]} for each in nsqds]
        lookupd.body = json.dumps({
            "topics": ["t"], "producers": producers, "channels": ["c"],
            "meta": {"partition_num": 4, "replica": 2},
            "partitions": {str(n): producers[n // 2] for n in range(4)}}).encode()
        cluster = stack.enter_context(Cluster([lookupd.address]))
        yield ClusterActions(cluster), lookupd, nsqds


def asked(request):
    return parse_qsl(urlsplit(request.path).query)


def posts(nsqds):
    return [sorted((urlsplit(each.path).path, *asked(each)[:3])
                   for each in nsqd.requests if each.method == "POST") for nsqd in nsqds]


def numbers(nsqds):
    """The partitions that each nsqd was asked to change."""
    return [sorted(dict(asked(each))["partition"] for each in nsqd.requests
                   if each.method == "POST") for nsqd in nsqds]


def test_an_action_on_one_nsqd_reaches_the_partitions_that_it_leads(servers):
    actions, _, nsqds = servers
    assert actions.change("pause", "t", "c", nsqds[1].address) == []
    assert numbers(nsqds) == [[], ["2", "3"]]


def test_a_partition_that_was_not_reached_is_a_failure_of_its_own(servers):
    actions, _, nsqds = servers
    nsqds[0].refused["1"] = (400, "E_FAILED_ON_NOT_LEADER")
    nsqds[1].topics = [partition(2), partition(3, leads=False)]
    failures = [each.text() for each in actions.change("pause", "t", "c")]
    assert len(failures) == 2
    assert failures[0] == "partition 3 of t: none of the nsqds that answered leads it"
    assert f"nsqd {nsqds[0].address} partition 1" in failures[1]
    assert "E_FAILED_ON_NOT_LEADER" in failures[1]


def test_partitions_without_the_channel_are_left_alone(servers):
    """A missing channel is an error, even for delete, which nsqd would confirm."""
    actions, _, nsqds = servers
    nsqds[0].topics = [partition(0), partition(1, channel="")]
    assert actions.change("delete", "t", "c") == []
    assert numbers(nsqds) == [["0"], ["2", "3"]]
    with pytest.raises(ActionError, match="CHANNEL_NOT_FOUND"):
        actions.change("delete", "t", "absent")


def test_a_channel_is_created_in_each_partition(servers):
    """The error names the nsqd if channels must be registered."""
    actions, lookupd, nsqds = servers
    assert actions.create("t", "new") == []
    assert numbers(nsqds) == [["0", "1"], ["2", "3"]]
    for nsqd in nsqds:
        nsqd.refused = {number: (403, "not registered") for number in "0123"}
    with pytest.raises(UpstreamError) as caught:
        actions.create("t", "new")
    text = str(caught.value)
    assert f"POST /channel/create, with the arguments topic and channel, to {lookupd.address}" \
        in text


@pytest.mark.parametrize("action, what_to_do", [
    ("create", "/topic/create?topic=t&partition_num=PARTITIONS&replicator=COPIES"),
    ("delete", "/topic/delete?topic=t&partition=**"),
    ("pause", "pause each of its channels"), ("unpause", "unpause each of its channels"),
    ("empty", "empty each of its channels"),
])
def test_an_action_on_a_whole_topic_says_what_to_call(servers, action, what_to_do):
    actions, _, nsqds = servers
    with pytest.raises(ActionError, match="PARTITIONED_CLUSTER") as caught:
        actions.create("t") if action == "create" else actions.change(action, "t")
    assert what_to_do in str(caught.value) and posts(nsqds) == [[], []]


def test_the_embedded_cluster_has_these_actions(leak_guard, capsys):
    with PartitionedCluster(3, 1) as cluster:
        cluster.create_topic("t", 6, replicas=2, channels=["c"])
        for number in range(6):
            for _ in range(10):
                cluster.publish("t", number, b"x")
        where = f"--lookupd-http-address={cluster.lookupd_http_addresses[0]}"

        def act(action, *words):
            return main(["channel", action, "t", *(words or ["c"]), where, "--yes"])

        def channel():
            capsys.readouterr()
            assert main(["topics", "t", "--json", "--interval=0", where]) == 0
            return json.loads(capsys.readouterr().out)["topics"][0]["channels"]

        assert channel()[0]["depth"] == 60
        assert act("pause") == 0 and channel()[0]["paused"] == 3
        assert act("unpause") == 0 and channel()[0]["paused"] == 0
        assert act("empty") == 0 and channel()[0]["depth"] == 0
        assert act("delete", "absent") == 1 and "CHANNEL_NOT_FOUND" in capsys.readouterr().err
        assert act("delete") == 0 and channel() == []
        assert act("create") == 0 and channel()[0]["name"] == "c"
        assert main(["topic", "delete", "t", where, "--yes"]) == 1
        assert "partition=**" in capsys.readouterr().err
