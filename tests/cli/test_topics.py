"""``nsqclient topics``, ``topic`` and ``channel``: the table, and actions on every server."""

import io
import json
import subprocess
import sys

import pytest

from nsqclient.cli import main
from nsqclient.cli.topics import as_table, count
from nsqclient.http import NsqdHTTP, NsqlookupdHTTP, Stats
from nsqclient.protocol.peer_json import JsonReader
from tests.cli.test_terminal import Screen
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


def stats(messages: int, depth: int, paused: bool = False) -> Stats:
    return Stats.read(JsonReader({"topics": [{
        "topic_name": "orders", "message_count": messages, "depth": 1, "paused": paused,
        "channels": [{"channel_name": "mail", "message_count": messages, "depth": depth,
                      "in_flight_count": 3, "client_count": 2}],
    }]}, "stats"))


def test_the_table_has_sums_over_nsqds_and_rates():
    before = {"a": (stats(100, 50), 10.0), "b": (stats(0, 0), 10.0)}
    after = {"a": (stats(120, 40), 12.0), "b": (stats(10, 4, paused=True), 15.0)}
    lines = count(before, after, frozenset({"planned"}))
    assert as_table(lines).splitlines() == [
        "TOPIC    CHANNEL  DEPTH  IN FLIGHT  DEFERRED  IN/S  OUT/S  CONSUMERS",
        "orders                2                         12                    paused",
        "         mail        44          6         0    12     16          4",
        "planned               0                          0                    on no nsqd",
    ]
    assert [line.topic for line in count(before, after, frozenset({"x"}), ["x"])] == ["x"]
    assert {line.topic for line in count(before, after, frozenset({"x", "ox"}), ["o*"])} == {
        "orders", "ox"}


@pytest.fixture
def cluster(lookupd_factory, server_factory):
    """An nsqlookupd and two nsqds, which both have topic t with channel c and messages."""
    lookupd = lookupd_factory()
    a, b = (server_factory(lookupd_tcp_addresses=[lookupd.tcp_address]) for _ in range(2))
    for nsqd in (a, b):
        with NsqdHTTP(nsqd.http_address) as client:
            client.create_topic("t")
            client.create_channel("t", "c")
            client.mpub("t", [b"x"] * 2)
            wait_until(lambda: client.stats("t").topics[0].channels[0].depth == 2)
    wait_until(lambda: len(found_by(lookupd, "t")) == 2)
    return lookupd, a, b


def found_by(lookupd, topic):
    with NsqlookupdHTTP(lookupd.http_address) as client:
        if topic not in client.topics():
            return []
        return [each.http_address for each in client.lookup(topic).producers]


def shown(capsys, *words: str):
    capsys.readouterr()
    status = main(["topics", "--json", "--interval=0", *words])
    return status, json.loads(capsys.readouterr().out)


def test_topics_of_a_cluster_are_listed(cluster, capsys):
    lookupd, a, b = cluster
    status, found = shown(capsys, f"--lookupd-http-address={lookupd.http_address}")
    [topic] = found["topics"]
    assert status == 0 and found["problems"] == []
    assert (topic["name"], topic["nsqds"], topic["channels"][0]["depth"]) == ("t", 2, 4)
    _, found = shown(capsys, f"--nsqd-http-address={a.http_address}", "t", "--log-level=error")
    assert found["topics"][0]["channels"][0]["depth"] == 2
    assert main(["topics", "--interval=10ms", f"--nsqd-http-address={a.http_address}"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == "c 2 0 0 0 0 0".split()


def test_a_server_that_does_not_answer_is_said(cluster, capsys):
    dead = f"127.0.0.1:{free_port()}"
    servers = [f"--nsqd-http-address={address}" for address in (cluster[1].http_address, dead)]
    status, found = shown(capsys, *servers)
    assert status == 1 and found["topics"] and dead in found["problems"][0]
    assert main(["topics", "--interval=0", servers[1]]) == 1
    assert dead in capsys.readouterr().err


@pytest.mark.parametrize("noun, words", [("topic", ["t"]), ("channel", ["t", "c"])])
def test_an_action_is_carried_out_on_every_nsqd(cluster, capsys, noun, words):
    lookupd, a, b = cluster
    where = f"--lookupd-http-address={lookupd.http_address}"

    def act(action):
        return main([noun, action, *words, where, "--yes"])

    def topics(place):
        return shown(capsys, place)[1]["topics"]

    def paused(topic):
        return topic["paused"] if noun == "topic" else topic["channels"][0]["paused"]

    for action, expected in (("pause", 2), ("unpause", 0)):
        assert act(action) == 0
        assert capsys.readouterr().out.startswith(f"{action}: done: {noun} ")
        assert paused(topics(where)[0]) == expected
    assert act("empty") == 0
    depths = [channel["depth"] for channel in topics(where)[0]["channels"]]
    assert depths == ([4] if noun == "topic" else [0])  # messages of channels are counted there
    assert act("delete") == 0
    found = topics(where)
    assert found == [] if noun == "topic" else found[0]["channels"] == []
    assert act("delete") == 1 and "NOT_FOUND" in capsys.readouterr().err


def test_create_makes_it_on_nsqlookupds_and_on_every_nsqd(cluster, capsys):
    lookupd, a, b = cluster
    where = f"--lookupd-http-address={lookupd.http_address}"
    assert main(["channel", "create", "new", "c", where, "--yes"]) == 0
    wait_until(lambda: len(found_by(lookupd, "new")) == 2)
    _, found = shown(capsys, where, "new")
    assert found["topics"][0]["channels"][0]["nsqds"] == 2
    assert main(["topic", "create", "one", f"--nsqd-http-address={a.http_address}", "-yes"]) == 0
    _, found = shown(capsys, f"--nsqd-http-address={a.http_address}", "one")
    assert found["topics"][0]["nsqds"] == 1


def test_a_server_that_did_not_do_it_is_listed(cluster, capsys):
    dead = f"127.0.0.1:{free_port()}"
    servers = [f"--nsqd-http-address={address}" for address in (dead, cluster[1].http_address)]
    assert main(["topic", "pause", "t", *servers, "--yes"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("not done: nsqd ") and dead in err
    assert len(err.splitlines()) == 1
    assert shown(capsys, servers[1])[1]["topics"][0]["paused"] == 1


@pytest.mark.parametrize("answer, status", [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("", 1)])
def test_it_asks_on_a_terminal(cluster, capsys, monkeypatch, answer, status):
    _, a, b = cluster
    monkeypatch.setattr(sys, "stdin", Screen(answer))
    where = f"--nsqd-http-address={a.http_address}"
    assert main(["channel", "delete", "t", "c", where]) == status
    assert (f"delete channel c of topic t (2 messages) on {a.http_address}? [y/N] "
            in capsys.readouterr().err)
    assert bool(shown(capsys, where)[1]["topics"][0]["channels"]) is bool(status)


@pytest.mark.parametrize("words, status, text", [
    (["topic", "delete", "t", "--nsqd-http-address=127.0.0.1:1"], 2, "--yes required"),
    (["topic", "delete", "--yes", "--nsqd-http-address=a:1"], 2, "give TOPIC"),
    (["topic", "delete", "t", "c", "--yes", "--nsqd-http-address=a:1"], 2, "give TOPIC"),
    (["channel", "delete", "t", "--yes", "--nsqd-http-address=a:1"], 2, "give TOPIC and CHANNEL"),
    (["channel", "delete", "t", "c!", "--yes", "--nsqd-http-address=a:1"], 2, "is invalid"),
    (["topics", "--nsqd-http-address=a:1", "--interval=-1s"], 2, "must not be negative"),
    (["topic", "remove", "t"], 2, "unknown command 'remove'"),
    (["topic"], 2, "unpause"),
])
def test_an_invalid_command_line_is_an_error(words, status, text, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("NSQ_YES", "true")  # no flag of the environment
    assert main(words) == status
    assert text in capsys.readouterr().err


def test_a_reader_that_has_enough_ends_it_quietly(cluster):
    code = "import sys; from nsqclient.cli import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
            [sys.executable, "-c", code, "topics", f"--nsqd-http-address={cluster[1].http_address}",
             "--interval=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0)


def test_harmless_actions_need_no_yes_in_a_script(cluster, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    servers = f"--nsqd-http-address={cluster[1].http_address}"
    assert main(["topic", "create", "new", servers]) == 0
    assert main(["topic", "unpause", "new", servers]) == 0
    assert main(["topic", "pause", "new", servers]) == 2
    assert main(["topic", "pause", "--topic=new", servers]) == 2
    assert "write topic pause TOPIC" in capsys.readouterr().err
