"""The embedded cluster's nsqlookupds over HTTP: both styles, what they say, and how they fail."""

from __future__ import annotations

import pytest
import requests

from nsqclient.devserver import PartitionedCluster
from nsqclient.devserver.partitioned.lookupd import LookupdMode

BARE = {"Accept": "application/vnd.nsq; version=1.0"}


@pytest.fixture
def cluster():
    """Two nsqds, two nsqlookupds, and a topic of two partitions."""
    with PartitionedCluster(2, 2) as running:
        running.create_topic("t", 2, replicas=2, channels=["c"])
        yield running


def ask(cluster, path, nsqlookupd=0, headers=BARE, **params):
    url = f"http://{cluster.nsqlookupds[nsqlookupd].http_address}{path}"
    return requests.get(url, params=params, headers=headers, timeout=10)


def leaders(cluster, nsqlookupd=0, **params):
    """Return partition -> TCP port as a lookup says it."""
    partitions = ask(cluster, "/lookup", nsqlookupd, topic="t", **params).json()["partitions"]
    if partitions is None:
        return None
    return {int(number): nsqd["tcp_port"] for number, nsqd in partitions.items()}


def port(cluster, nsqd):
    return int(cluster.nsqds[nsqd].tcp_address.rpartition(":")[2])


def test_lookup_names_the_leaders_and_the_meta(cluster):
    """The keys of partitions are strings, the meta is there where it was asked for."""
    answer = ask(cluster, "/lookup", topic="t", access="w", metainfo="true").json()
    assert answer["meta"]["partition_num"] == 2 and answer["channels"] == ["c"]
    assert set(answer["partitions"]) == {"0", "1"} and len(answer["producers"]) == 2
    assert "meta" not in ask(cluster, "/lookup", topic="t").json()
    assert list(leaders(cluster, partition="1")) == [1]


def test_both_styles(cluster):
    """Without the header answers are wrapped, and every error is a 500."""
    wrapped = ask(cluster, "/lookup", headers={}, topic="t").json()
    assert wrapped["status_txt"] == "OK" and "partitions" in wrapped["data"]
    unknown = ask(cluster, "/lookup", headers={}, topic="u", access="w")
    assert unknown.status_code == 500
    assert unknown.json() == {"status_code": 500, "status_txt": "Key not found", "data": None}
    bare = ask(cluster, "/lookup", topic="u", access="w")
    assert (bare.status_code, bare.json()) == (404, {"message": "Key not found"})


def test_unknown_topic_for_readers(cluster):
    """It is no error, and the meta is all zero."""
    answer = ask(cluster, "/lookup", topic="u", metainfo="true").json()
    assert answer["partitions"] == {} and answer["meta"]["partition_num"] == 0


@pytest.mark.parametrize(("params", "code"), [
    ({}, "MISSING_ARG_TOPIC"), ({"topic": "t", "access": "x"}, "INVALID_ACCESS_MODE"),
])
def test_bad_questions(cluster, params, code):
    """Wrong parameters are refused with the server's codes."""
    answer = ask(cluster, "/lookup", **params)
    assert (answer.status_code, answer.json()["message"]) == (400, code)


def test_list_of_lookupds(cluster):
    """The ports are strings, and one node leads; a stopped one is left out."""
    answer = ask(cluster, "/listlookup").json()
    ports = [f"{node['NodeIP']}:{node['HttpPort']}" for node in answer["lookupdnodes"]]
    assert ports == cluster.lookupd_http_addresses
    assert answer["lookupdleader"] == answer["lookupdnodes"][0]
    cluster.nsqlookupds[1].stop()
    assert len(ask(cluster, "/listlookup").json()["lookupdnodes"]) == 1


def test_modes_of_a_lookupd(cluster):
    """Without a coordinator there is no list and no meta; as a stock one it knows no list."""
    lookupd = cluster.nsqlookupds[0]
    lookupd.set_mode(LookupdMode.NO_COORDINATOR)
    assert ask(cluster, "/listlookup").content == b""
    assert ask(cluster, "/listlookup", headers={}).json()["data"] is None
    assert "meta" not in ask(cluster, "/lookup", topic="t", metainfo="true").json()
    lookupd.set_mode(LookupdMode.NO_LIST)
    assert ask(cluster, "/listlookup").status_code == 404


def test_a_lookupd_that_hangs_ends_with_stop(cluster):
    """The request waits; stopping the server ends it."""
    cluster.nsqlookupds[0].set_mode(LookupdMode.HANG)
    url = f"http://{cluster.nsqlookupds[0].http_address}/ping"
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.get(url, timeout=0.2)


def test_frozen_lookupd_disagrees(cluster):
    """It goes on with the old leader while the other knows the new one."""
    cluster.nsqlookupds[1].freeze()
    cluster.move_leader("t", 0)
    assert leaders(cluster)[0] == port(cluster, 1)
    assert leaders(cluster, 1)[0] == port(cluster, 0)
    cluster.nsqlookupds[1].thaw()
    assert leaders(cluster, 1)[0] == port(cluster, 1)


def test_during_a_move_writers_see_nothing(cluster):
    """Writers are told of no leader, readers of the old one."""
    cluster.begin_move("t", 0)
    assert 0 not in leaders(cluster, access="w")
    assert leaders(cluster)[0] == port(cluster, 0)


def test_crash_step_by_step(cluster):
    """Both kinds of answers drop the partition; readers hear of the new leader first."""
    cluster.crash(0)
    assert 0 not in leaders(cluster) and 0 not in leaders(cluster, access="w")
    cluster.take_over(0, writable=False)
    assert leaders(cluster)[0] == port(cluster, 1)
    assert 0 not in leaders(cluster, access="w")
    cluster.take_over(0)
    assert leaders(cluster, access="w")[0] == port(cluster, 1)
    cluster.restart(0)
    assert cluster.leader_of("t", 0) == 1


def test_tombstones_hide_from_writers(cluster):
    """Writers do not see the nsqd, readers do; it can be undone, also over HTTP."""
    cluster.tombstone("t", 0)
    assert list(leaders(cluster, access="w")) == [1] and len(leaders(cluster)) == 2
    url = f"http://{cluster.nsqlookupds[0].http_address}/topic/tombstone"
    node = cluster.nsqds[0].http_address
    requests.post(url, params={"topic": "t", "node": node, "restore": "true"}, timeout=10)
    assert len(leaders(cluster, access="w")) == 2
    requests.post(url, params={"topic": "t", "node": node}, timeout=10)
    assert len(leaders(cluster, access="w")) == 1
    cluster.tombstone("t", 0, restore=True)
    assert len(leaders(cluster, access="w")) == 2


def test_disabled_writes_are_null(cluster):
    """Writers get nulls, readers the leaders."""
    cluster.disable_write()
    assert leaders(cluster, access="w") is None and len(leaders(cluster)) == 2


def test_topic_without_channel_is_not_for_writers():
    """As a real cluster by default: subscribe first."""
    with PartitionedCluster(1, 1, needs_channel=True) as cluster:
        cluster.create_topic("t", 2)
        answer = ask(cluster, "/lookup", topic="t", access="w")
        assert answer.status_code == 404 and "has no channel" in answer.json()["message"]


def test_create_and_delete_a_topic(cluster):
    """Only the leading nsqlookupd makes topics, and says what is missing."""

    def post(nsqlookupd, path, **params):
        url = f"http://{cluster.nsqlookupds[nsqlookupd].http_address}{path}"
        answer = requests.post(url, params=params, headers=BARE, timeout=10)
        return answer.status_code, answer.json().get("message") if answer.content else None

    args = {"topic": "new", "partition_num": "3", "replicator": "1"}
    assert post(1, "/topic/create", **args) == (400, "E_FAILED_ON_NOT_LEADER")
    assert post(0, "/topic/create", topic="new") == (400, "MISSING_ARG_TOPIC_PARTITION_NUM")
    assert post(0, "/topic/create", **args | {"replicator": "6"}) == (
        400, "INVALID_ARG_TOPIC_REPLICATOR")
    assert post(0, "/topic/create", **args | {"partition_num": "9" * 5000}) == (
        400, "INVALID_ARG_TOPIC_PARTITION_NUM")
    assert post(0, "/topic/create", **args | {"topic": "!"})[0] == 400
    assert post(0, "/topic/create", **args)[0] == 200
    assert ask(cluster, "/topics").json() == {"topics": ["new", "t"]}
    assert ask(cluster, "/channels", topic="t").json() == {"channels": ["c"]}
    assert post(0, "/topic/delete", topic="new")[0] == 200
    assert post(0, "/topic/delete", topic="new")[0] == 404


def test_nodes_and_info(cluster):
    """Every nsqd is listed with its partitions, and the version has its mark."""
    nodes = ask(cluster, "/nodes").json()["producers"]
    assert [node["partitions"] for node in nodes] == [{"t": ["0"]}, {"t": ["1"]}]
    assert ask(cluster, "/info").json()["ha_support"] is True
    cluster.crash(1)
    assert len(ask(cluster, "/nodes").json()["producers"]) == 1
