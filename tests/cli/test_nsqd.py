"""The flags of ``nsqclient nsqd --partitioned``."""

import gc

import pytest

from nsqclient.cli import main, tool_flags
from nsqclient.cli.flags import CommandLineError
from nsqclient.cli.nsqd import build_cluster, build_command, parse_topic

ANY_PORTS = [
    "--partitioned", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0",
    "--partitioned-lookupd-http-address=127.0.0.1:0",
]


def test_a_topic_flag_has_a_name_partitions_and_attributes():
    assert parse_topic("orders:4") == {
        "topic": "orders", "partitions": 4, "ordered": False, "extended": False}
    assert parse_topic("o:1:extended:ordered") == {
        "topic": "o", "partitions": 1, "ordered": True, "extended": True}


@pytest.mark.parametrize("text", [
    "orders", "o:", "o:x", "o:0", "o:256", "o!:1", "o:1:odd", ":1",
    pytest.param("o:" + "9" * 5000, id="digits"),
])
def test_an_invalid_topic_flag_is_rejected(text):
    with pytest.raises(CommandLineError, match="NAME:PARTITIONS"):
        parse_topic(text)


def test_the_cluster_starts_with_its_topics():
    parsed = build_command().parse(
        [*ANY_PORTS, "--partitioned-nsqds=2", "--partitioned-topic=o:3:ordered"])
    with build_cluster(parsed) as cluster:
        assert (len(cluster.nsqds), len(cluster.nsqlookupds)) == (2, 2)
        assert [cluster.leader_of("o", partition) for partition in range(3)] == [0, 1, 0]


@pytest.mark.parametrize("flag", [
    "--partitioned-nsqds=0", "--partitioned-nsqlookupds=0", "--partitioned-topic=x",
    "--data-path=/somewhere", "--partitioned-lookupd-http-address=nowhere",
])
def test_invalid_flags_are_errors_with_a_reason(flag, capsys):
    assert main(["nsqd", *ANY_PORTS, flag]) != 0
    assert flag.split("=")[0].lstrip("-") in capsys.readouterr().err


def test_full_garbage_collections_are_rare_while_it_runs(monkeypatch):
    """And as before when it has ended."""
    before = gc.get_threshold()
    seen = []
    monkeypatch.setattr(tool_flags, "serve", lambda *args: seen.append(gc.get_threshold()) or 0)
    assert main(["nsqd", *ANY_PORTS[1:3]]) == 0
    assert seen == [(*before[:2], 1000)] and gc.get_threshold() == before
