"""The embedded cluster: its arguments, and its nsqlookupds over HTTP, how they answer and fail."""


import pytest
import requests

from nsqclient.devserver import PartitionedCluster
from nsqclient.devserver.partitioned.lookupd import LookupdMode
from nsqclient.errors import (
    ConfigError, InvalidChannelError, InvalidMessageError, InvalidTopicError,
)

BARE = {"Accept": "application/vnd.nsq; version=1.0"}


@pytest.fixture
def cluster():
    with PartitionedCluster(2, 2) as running:
        running.create_topic("t", 2, replicas=2, channels=["c"])
        yield running


def ask(cluster, path, nsqlookupd=0, headers=BARE, **params):
    url = f"http://{cluster.nsqlookupds[nsqlookupd].http_address}{path}"
    return requests.get(url, params=params, headers=headers, timeout=10)


def leaders(cluster, nsqlookupd=0, **params):
    partitions = ask(cluster, "/lookup", nsqlookupd, topic="t", **params).json()["partitions"]
    if partitions is None:
        return None
    return {int(number): nsqd["tcp_port"] for number, nsqd in partitions.items()}


def port(cluster, nsqd):
    return int(cluster.nsqds[nsqd].tcp_address.rpartition(":")[2])


def test_lookup_lists_leaders_and_metadata(cluster):
    """The keys of partitions are strings; metadata is included where asked for."""
    answer = ask(cluster, "/lookup", topic="t", access="w", metainfo="true").json()
    assert answer["meta"]["partition_num"] == 2 and answer["channels"] == ["c"]
    assert set(answer["partitions"]) == {"0", "1"} and len(answer["producers"]) == 2
    assert "meta" not in ask(cluster, "/lookup", topic="t").json()
    assert list(leaders(cluster, partition="1")) == [1]


def test_responses_are_wrapped_without_the_accept_header(cluster):
    """Without the header every error is a 500."""
    wrapped = ask(cluster, "/lookup", headers={}, topic="t").json()
    assert wrapped["status_txt"] == "OK" and "partitions" in wrapped["data"]
    unknown = ask(cluster, "/lookup", headers={}, topic="u", access="w")
    assert unknown.status_code == 500
    assert unknown.json() == {"status_code": 500, "status_txt": "Key not found", "data": None}
    bare = ask(cluster, "/lookup", topic="u", access="w")
    assert (bare.status_code, bare.json()) == (404, {"message": "Key not found"})


def test_unknown_topic_is_empty_for_readers(cluster):
    answer = ask(cluster, "/lookup", topic="u", metainfo="true").json()
    assert answer["partitions"] == {} and answer["meta"]["partition_num"] == 0


@pytest.mark.parametrize(("params", "code"), [
    ({}, "MISSING_ARG_TOPIC"), ({"topic": "t", "access": "x"}, "INVALID_ACCESS_MODE"),
])
def test_invalid_parameters_have_the_servers_codes(cluster, params, code):
    answer = ask(cluster, "/lookup", **params)
    assert (answer.status_code, answer.json()["message"]) == (400, code)


def test_listlookup_has_the_running_nsqlookupds(cluster):
    """The ports are strings, and one node leads; a stopped one is left out."""
    answer = ask(cluster, "/listlookup").json()
    ports = [f"{node['NodeIP']}:{node['HttpPort']}" for node in answer["lookupdnodes"]]
    assert ports == cluster.lookupd_http_addresses
    assert answer["lookupdleader"] == answer["lookupdnodes"][0]
    cluster.nsqlookupds[1].stop()
    assert len(ask(cluster, "/listlookup").json()["lookupdnodes"]) == 1


def test_stop_ends_a_request_that_hangs(cluster):
    cluster.nsqlookupds[0].set_mode(LookupdMode.HANG)
    url = f"http://{cluster.nsqlookupds[0].http_address}/ping"
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.get(url, timeout=0.2)


def test_tombstone_hides_the_nsqd_from_writers(cluster):
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


def test_disabled_writes_are_null_for_writers(cluster):
    cluster.disable_write()
    assert leaders(cluster, access="w") is None and len(leaders(cluster)) == 2


def test_leading_nsqlookupd_creates_and_deletes_topics(cluster):
    def post(nsqlookupd, path, **params):
        url = f"http://{cluster.nsqlookupds[nsqlookupd].http_address}{path}"
        answer = requests.post(url, params=params, headers=BARE, timeout=10)
        return answer.status_code, answer.json().get("message") if answer.content else None

    args = {"topic": "new", "partition_num": "2", "replicator": "1"}
    assert post(1, "/topic/create", **args) == (400, "E_FAILED_ON_NOT_LEADER")
    assert post(0, "/topic/create", topic="new") == (400, "MISSING_ARG_TOPIC_PARTITION_NUM")
    assert post(0, "/topic/create", **args | {"replicator": "6"}) == (
        400, "INVALID_ARG_TOPIC_REPLICATOR")
    assert post(0, "/topic/create", **args | {"partition_num": "9" * 5000}) == (
        400, "INVALID_ARG_TOPIC_PARTITION_NUM")
    assert post(0, "/topic/create", **args | {"topic": "!"})[0] == 400
    assert post(0, "/topic/create", **args)[0] == 200
    assert post(0, "/topic/create", **args | {"topic": "big", "replicator": "2"})[0] == 400
    for allows in ("multipart", "orderedmulti"):
        many = args | {"topic": allows, "replicator": "2", allows: "true"}
        assert post(0, "/topic/create", **many)[0] == 200
        assert post(0, "/topic/delete", topic=allows)[0] == 200
    assert ask(cluster, "/topics").json() == {"topics": ["new", "t"]}
    assert ask(cluster, "/channels", topic="t").json() == {"channels": ["c"]}
    assert post(0, "/topic/delete", topic="new")[0] == 200
    assert post(0, "/topic/delete", topic="new")[0] == 404


def test_nodes_lists_every_nsqd_with_its_partitions(cluster):
    nodes = ask(cluster, "/nodes").json()["producers"]
    assert [node["partitions"] for node in nodes] == [{"t": ["0"]}, {"t": ["1"]}]
    assert ask(cluster, "/info").json()["ha_support"] is True
    cluster.crash(1)
    assert len(ask(cluster, "/nodes").json()["producers"]) == 1


@pytest.mark.parametrize(("options", "hint"), [
    ({"nsqds": 0}, "nsqds must be a whole number of at least 1, not 0"),
    ({"nsqlookupds": -1}, "nsqlookupds must be a whole number of at least 1"),
    ({"msg_timeout": 0}, "msg_timeout"),
    ({"msg_timeout": 901}, "over max_msg_timeout of 900 s"),
    ({"tcp_port": 65535}, "tcp_port must be a whole number from 0 to 65531"),
])
def test_a_cluster_checks_its_options(options, hint):
    with pytest.raises(ConfigError, match=hint):
        PartitionedCluster(**options)


@pytest.mark.parametrize(("call", "error"), [
    (lambda c: c.create_topic("new", 0), ConfigError),
    (lambda c: c.create_topic("new", 1025), ConfigError),
    (lambda c: c.create_topic("new", replicas=0), ConfigError),
    (lambda c: c.create_topic("new", replicas=3), ConfigError),
    (lambda c: c.create_topic("b$d"), InvalidTopicError),
    (lambda c: c.create_topic("new", channels=["b$d"]), InvalidChannelError),
    (lambda c: c.create_topic("new", channels="abc"), ConfigError),
    (lambda c: c.publish("t", 0, "text"), InvalidMessageError),
    (lambda c: c.publish("t", 1, b"x"), ConfigError),
    (lambda c: c.messages("t", 0, "other"), ConfigError),
    (lambda c: c.leader_of("t", -1), ConfigError),
    (lambda c: c.move_leader("t", 0, 2), ConfigError),
    (lambda c: c.crash(2), ConfigError),
    (lambda c: c.take_over(2), ConfigError),
    (lambda c: c.restart(True), ConfigError),
    (lambda c: c.tombstone("t", 2), ConfigError),
    (lambda c: c.lead_lookupd(1), ConfigError),
])
def test_a_method_checks_its_arguments(call, error):
    cluster = PartitionedCluster(2, 1)
    cluster.create_topic("t", channels=["c"])
    with pytest.raises(error):
        call(cluster)
    assert cluster.leader_of("t", 0) == 0 and cluster.messages("t", 0, "c") == []
