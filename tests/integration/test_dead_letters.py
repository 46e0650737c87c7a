"""Retry policies, GiveUp, dead letters and ``nsqclient dead_letters`` on both kinds of server."""

import json
import re
import signal

import pytest

from nsqclient import (
    Config, Consumer, DeadLetter, DeadLetterDirectory, DeadLetterTopic, GiveUp, Producer,
)
from nsqclient.cli import main
from nsqclient.message import Failure, Message
from nsqclient.testing import make_message
from tests.integration.test_consumer import QUICK, Collector, consume, publish, take
from tests.support.docs.tool_runs import tool
from tests.support.waiting import wait_until


def letter(body, topic="orders", **facts):
    return DeadLetter(body, topic, "billing", id=body.decode("ascii", "replace").ljust(16, "0"),
                      attempts=5, reason="no total", exception="ValueError: no total",
                      traceback="Traceback:\n  boom\n", given_up_at="2026-01-31T12:00:00Z", **facts)


def run(server, command, *words):
    return main(["dead_letters", command, "--topic=orders.dead", "--timeout=30s",
                 f"--nsqd-tcp-address={server.tcp_address}",
                 f"--nsqd-http-address={server.http_address}", *words])


def fill(server, *letters):
    server.create("orders.dead", "dead_letters")
    publish(server, *(each if isinstance(each, bytes) else each.to_envelope()
                      for each in letters), topic="orders.dead")


def waiting(server, topic="orders.dead", channel="dead_letters"):
    stats = server.stats(topic, channel)
    return stats["depth"] + stats["in_flight_count"] + stats.get("deferred_count", 0)


def bodies(server, topic, count):
    return sorted(take(server, topic, count, "check"))


def keep_in(path, *letters):
    keep = DeadLetterDirectory(path)

    class From:
        address = "127.0.0.1:4150"
        topic, channel = "orders", "billing"

    class GivenUp(Message):
        failure = Failure("no total", ValueError("no total"))

    for number, body in enumerate(letters):
        keep(GivenUp(body, b"%016d" % number, 5, 1, 0.0, 0.0, From()))
    return keep


def test_a_list_of_a_topic_leaves_all_where_it_is(server, capsys):
    fill(server, letter(b"a"), letter(b"b"), b"bare")
    for _ in range(2):
        assert run(server, "list") == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 3
        assert any("orders/billing  5 attempts  no total" in line for line in lines)
        assert any("a body of 4 bytes, without an envelope" in line for line in lines)
        wait_until(lambda: server.stats("orders.dead", "dead_letters")["depth"] == 3)


@pytest.mark.parametrize("command", ["list", "show", "replay", "delete"])
def test_a_topic_or_channel_that_does_not_exist_is_not_created(server, capsys, command):
    """A mistyped name changes nothing; the messages of a topic without a channel stay in it."""
    words = {"replay": ["--count=1", "--destination-topic=orders"], "delete": ["--count=1"]}
    words = [command, *words.get(command, [])]
    assert run(server, *words) == 1
    assert "no nsqd has the topic orders.dead: check its spelling" in capsys.readouterr().err
    assert server.stats()["topics"] == []
    publish(server, letter(b"a").to_envelope(), topic="orders.dead")
    assert run(server, *words) == 1
    assert "give --create-channel" in capsys.readouterr().err
    assert server.stats("orders.dead")["channels"] == []
    assert server.stats("orders.dead")["depth"] == 1


def test_a_channel_is_created_on_request(server, capsys):
    publish(server, letter(b"a").to_envelope(), topic="orders.dead")
    assert run(server, "list", "--create-channel") == 0
    assert "orders/billing" in capsys.readouterr().out
    assert waiting(server) == 1


def test_an_nsqd_without_the_channel_is_left_out(server_factory, capsys):
    with_channel, without = server_factory(), server_factory()
    fill(with_channel, letter(b"a"))
    publish(without, letter(b"b").to_envelope(), topic="orders.dead")
    assert main([
        "dead_letters", "list", "--topic=orders.dead", "--timeout=30s",
        *(f"--nsqd-tcp-address={each.tcp_address}" for each in (with_channel, without)),
        *(f"--nsqd-http-address={each.http_address}" for each in (with_channel, without)),
    ]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("a000") and f"{without.tcp_address}: left out" in err


def test_show_has_the_traceback_and_the_body(server, capsys):
    fill(server, letter(b"\xff"))
    assert run(server, "show") == 0
    shown = capsys.readouterr().out
    assert "    Traceback:" in shown and "body (base64):" in shown and "/w==" in shown
    assert run(server, "show", "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["body"], values["body_encoding"], values["channel"]) == (
        "/w==", "base64", "billing")


def test_a_replay_of_a_topic_publishes_the_next_ones(server, capsys):
    fill(server, *(letter(b"%d" % number) for number in range(5)), letter(b"x", "other"), b"bare")
    words = ["replay", "--destination-topic=orders"]
    assert run(server, *words, "--count=5") == 0
    assert capsys.readouterr().out.endswith("replayed 5 of 5 dead letters\n")
    wait_until(lambda: waiting(server) == 2)
    assert run(server, *words, "--count=9") == 0
    assert capsys.readouterr().out.endswith("replayed 2 of 2 dead letters\n")
    assert bodies(server, "orders", 7) == [b"0", b"1", b"2", b"3", b"4", b"bare", b"x"]
    wait_until(lambda: waiting(server) == 0)


def test_the_limit_of_the_producer_does_not_hold_for_a_dead_letter(server):
    """An nsqd has delivered the message, so its limit is larger."""
    message = make_message(b"x" * 2000)
    with Producer([server.tcp_address], config=Config(nsqd_max_msg_size=1000)) as producer:
        DeadLetterTopic(producer, "whole")(message)
        DeadLetterTopic(producer, "bare", lambda message: message.body)(message)
    size = {topic["topic_name"]: topic["message_bytes"] for topic in server.stats()["topics"]}
    assert size["bare"] == 2000 < size["whole"]


def test_letters_go_to_their_origin_if_the_operator_trusts_them(server, capsys):
    fill(server, letter(b"a"), letter(b"b", "other"))
    assert run(server, "replay", "--count=2", "--to-origin") == 0
    assert bodies(server, "orders", 1) == [b"a"] and bodies(server, "other", 1) == [b"b"]
    fill(server, b"bare")
    assert run(server, "replay", "--count=1", "--to-origin") == 1
    assert "give --destination-topic" in capsys.readouterr().err


def test_a_body_that_nsqd_refuses_stays(server, capsys):
    """A letter with an empty body, say, which can only be deleted."""
    fill(server, letter(b""))
    assert run(server, "replay", "--count=1", "--destination-topic=orders") == 1
    assert "not replayed" in capsys.readouterr().err
    wait_until(lambda: server.stats("orders.dead", "dead_letters")["depth"] == 1)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_replay_in_order(server, signum):
    fill(server, *(letter(b"%d" % number) for number in range(20)))
    words = ["replay", "--topic=orders.dead", "--count=20", "--rate=1",
             "--destination-topic=orders",
             f"--nsqd-tcp-address={server.tcp_address}",
             f"--nsqd-http-address={server.http_address}"]
    with tool("ours", "dead_letters", *words) as process:
        process.stdout.readline()
        process.send_signal(signum)
        output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 0
    assert re.search(r"^replayed \d+ of 20 dead letters$", output, re.MULTILINE)
    replayed = int(output.split()[-5])
    wait_until(lambda: server.stats("orders.dead", "dead_letters")["depth"] == 20 - replayed)


def test_an_nsqd_that_is_not_there_is_an_error(capsys):
    assert main(["dead_letters", "replay", "--topic=t", "--count=1", "--timeout=100ms",
                 "--destination-topic=t", "--nsqd-tcp-address=127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_letters_of_a_directory_are_found_by_id(tmp_path, capsys):
    keep_in(tmp_path, b"a", b"b", b"c")
    path, one = f"--path={tmp_path}", "--id=0000000000000001"
    assert main(["dead_letters", "list", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("orders+billing+0000000000000000+")
    assert main(["dead_letters", "show", path, one]) == 0
    assert "    b" in capsys.readouterr().out.splitlines()
    assert main(["dead_letters", "delete", path, one]) == 0
    assert main(["dead_letters", "delete", path, one]) == 1
    assert "has the id 0000000000000001" in capsys.readouterr().err
    assert len(DeadLetterDirectory(tmp_path).names()) == 2
    name = DeadLetterDirectory(tmp_path).names()[0]
    (tmp_path / f"other{name}.json").write_bytes((tmp_path / f"{name}.json").read_bytes())
    assert main(["dead_letters", "delete", path, f"--id={0:016d}"]) == 1
    assert "2 dead letters have the id" in capsys.readouterr().err
    assert main(["dead_letters", "delete", path, f"--id={name}"]) == 0


def test_a_replay_of_a_directory_publishes_and_deletes(server, tmp_path, capsys):
    path = tmp_path / "dead"
    names = keep_in(path, b"a", b"b", b"c", b"d").names()
    foreign = path / f"{names[2]}.json"
    foreign.write_text('{"dead_letter": 1, "topic": "", "body": "c", "body_encoding": "utf-8"}')
    words = ["dead_letters", "replay", f"--path={path}",
             f"--nsqd-tcp-address={server.tcp_address}"]
    assert main([*words, "--id=0000000000000001", "--to-origin"]) == 0
    assert main([*words, "--all", "--to-origin"]) == 1
    out, err = capsys.readouterr()
    assert f"replayed {names[0]} to orders" in out
    assert "give --destination-topic" in err
    assert main([*words, "--id=0000000000000002", "--destination-topic=orders"]) == 0
    assert bodies(server, "orders", 4) == [b"a", b"b", b"c", b"d"]
    assert list(path.iterdir()) == []


def test_a_damaged_file_stops_nothing(server, tmp_path, capsys):
    path = tmp_path / "dead"
    keep_in(path, b"a", b"b")
    damaged, folder = path / "odd\x1b[2J\udcff\u202e.json", path / "folder.json"
    damaged.write_text("{")
    folder.mkdir()
    for words in (["list"], ["list", "--json"], ["show", f"--id={0:016d}"]):
        main(["dead_letters", *words, f"--path={path}"])
    out, err = capsys.readouterr()
    assert all(map(str.isprintable, (out + err).split("\n")))
    assert r"odd\x1b[2J" in err and "is damaged" in err and "folder" in err
    assert damaged.exists()
    assert main(["dead_letters", "replay", "--to-origin", f"--path={path}", "--all",
                 f"--nsqd-tcp-address={server.tcp_address}"]) == 1
    assert bodies(server, "orders", 2) == [b"a", b"b"]
    assert sorted(path.iterdir()) == sorted([
        folder, damaged.with_name(f"{damaged.name}.damaged")])
    assert ".json.damaged" in capsys.readouterr().err


def is_settled(server):
    stats = server.stats("events", "c")
    return not (stats["depth"] or stats["in_flight_count"] or stats.get("deferred_count"))


def test_give_up_makes_a_dead_letter_that_explains_itself(server):
    def check(message):
        try:
            int(message.body)
        except ValueError as error:
            raise GiveUp("no number") from error

    publish(server, b"seven")
    letters = Collector()
    with Producer([server.tcp_address]) as producer:
        collector = Collector(check)
        keep = DeadLetterTopic(producer, "events.dead")
        with consume(server, collector, config=QUICK, on_giving_up=keep):
            wait_until(lambda: server.stats("events.dead").get("depth") == 1)
            wait_until(lambda: is_settled(server))
    (message,) = collector.messages
    with Consumer("events.dead", "ops", letters, nsqd_tcp_addresses=[server.tcp_address]):
        wait_until(lambda: letters.messages)
    letter = DeadLetter.parse(letters.bodies[0])
    assert (letter.body, letter.topic, letter.channel) == (b"seven", "events", "c")
    assert (letter.id, letter.attempts, letter.timestamp) == (
        message.id.decode(), 1, message.timestamp)
    assert (letter.reason, letter.nsqd_address) == ("no number", server.tcp_address)
    assert letter.exception == "nsqclient.message.GiveUp: no number"
    assert "invalid literal for int()" in letter.traceback and "in check" in letter.traceback
    assert letter.given_up_at and letter.host
