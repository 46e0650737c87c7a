"""The doctor's judgement by value, its table, its flags. What it finds: integration/test_doctor."""

from __future__ import annotations

import json

import pytest

from nsqclient.cli.doctor.clock import judge
from nsqclient.cli.doctor.doctor import main
from nsqclient.cli.doctor.findings import Verdict, ok, warning, wrong
from nsqclient.cli.doctor.queues import judge_change, judge_topic
from nsqclient.cli.doctor.table import as_json, as_table
from nsqclient.http import Stats
from nsqclient.http.fields import Fields


def stats(channel=None, clients=(), **topic) -> Stats:
    """Statistics with one channel, as nsqd answers."""
    channel = {"channel_name": "mail", "depth": 0, "client_count": len(clients),
               "clients": list(clients), **(channel or {})}
    topic = {"topic_name": "orders", "channels": [channel], **topic}
    return Stats.read(Fields({"health": "OK", "topics": [topic]}, "its answer"))


def client(rdy: int, in_flight: int = 0) -> dict[str, int]:
    """A consumer's connection."""
    return {"ready_count": rdy, "in_flight_count": in_flight}


@pytest.mark.parametrize(("seen", "verdict", "check", "words"), [
    (stats(), Verdict.OK, "channel", "0 wait"),
    (stats({"paused": True, "depth": 3}), Verdict.WRONG, "channel", "paused (3 wait"),
    (stats({"depth": 3}), Verdict.WARNING, "channel", "nobody consumes"),
    (stats({"deferred_count": 3}), Verdict.WARNING, "channel", "nobody consumes"),
    (stats({"depth": 3}, [client(0), client(0)]), Verdict.WRONG, "RDY", "no consumer is ready"),
    (stats({"depth": 3}, [client(5, 5)]), Verdict.WARNING, "RDY", "all that its RDY allows"),
    (stats({"depth": 3}, [client(5, 5), client(5, 1)]), Verdict.OK, "channel", "2 consumers"),
])
def test_a_channel_is_judged(seen, verdict, check, words):
    """By what waits, who consumes, and whether they are ready."""
    (found,) = judge_topic(seen, "orders", "mail", "n:4151")
    assert (found.verdict, found.check) == (verdict, check) and words in found.text
    assert (found.advice == "") == (verdict is Verdict.OK)
    assert found.where == "orders/mail at n:4151"


def test_other_channels_and_topics_do_not_count():
    """Only what was asked for is judged."""
    assert judge_topic(stats({"paused": True}), "orders", "audit", "n:1") == []
    assert judge_topic(stats({"paused": True}), "refunds", "", "n:1") == []


def test_a_full_disk_and_a_paused_topic_are_told():
    """nsqd's own health, and the switch on the topic."""
    ill = Stats.read(Fields({"health": "NOK - no space"}, "its answer"))
    (found,) = judge_topic(ill, "orders", "", "n:1")
    assert found.check == "disk" and "no space" in found.text
    found = judge_topic(stats(paused=True), "orders", "", "n:1")[0]
    assert found.check == "topic" and "/topic/unpause?topic=orders" in found.advice


def test_what_grows_is_told():
    """Timeouts have to be mended, requeues may be meant so."""
    before = stats({"timeout_count": 4, "requeue_count": 1})
    after = stats({"timeout_count": 6, "requeue_count": 2})
    timeouts, requeues = judge_change(before, after, "orders", "", "n:1", 10.0)
    assert (timeouts.verdict, timeouts.text) == (Verdict.WRONG, "2 messages timed out in 10 s")
    assert requeues.verdict is Verdict.WARNING and "1 requeue in" in requeues.text
    assert judge_change(after, after, "orders", "", "n:1", 10.0) == []
    assert judge_change(after, after, "refunds", "", "n:1", 10.0) == []


@pytest.mark.parametrize(("ahead", "words"), [
    (0.4, "agrees"), (-4.9, "agrees"), (3600, "3600 s ahead of ours"), (-60, "60 s behind ours"),
])
def test_a_clock_is_judged(ahead, words):
    """A few seconds are forgiven: the header has whole ones."""
    found = judge(ahead, "n:1")
    assert words in found.text and (found.verdict is Verdict.OK) == (abs(ahead) < 5)


def test_the_table_ends_with_what_is_wrong(monkeypatch):
    """What is fine stands first, what to do under what is wrong, and a summary last."""
    monkeypatch.setenv("COLUMNS", "80")
    text = as_table([
        wrong("nsqd", "a:4150", "connection refused", "start it " + "again " * 20),
        ok("nsqlookupd", "b:4161", "answers"),
        warning("clock", "c.a-very-long-name-of-a-host.example:4161", "30 s ahead", "run NTP"),
    ])
    lines = text.splitlines()
    assert lines[0].split() == ["CHECK", "WHERE", "FINDING"]
    assert [line.split()[0] for line in lines if line[:1].strip()] == [
        "ok", "warning", "WRONG", "1"]
    assert max(map(len, lines)) <= 80 and "-> start it" in text
    assert lines[-1] == "1 to mend, 1 to look at"
    assert as_table([ok("x", "y", "z")]).endswith("\nall is well\n")


def test_the_json_has_the_same():
    """One object with a summary and every finding."""
    found = json.loads(as_json([wrong("nsqd", "a:1", "t", "do")]))
    assert found["summary"] == "1 to mend, 0 to look at"
    assert found["findings"] == [{"verdict": "wrong", "check": "nsqd", "where": "a:1",
                                  "text": "t", "advice": "do"}]


@pytest.mark.parametrize(("words", "status", "said"), [
    ([], 1, "--topic required"),
    (["--topic=x"], 1, "give --lookupd-http-address or --nsqd-tcp-address"),
    (["--topic=a b", "--nsqd-tcp-address=x:1"], 1, "--topic is invalid"),
    (["--topic=x", "--channel=!", "--nsqd-tcp-address=x:1"], 1, "--channel is invalid"),
    (["--topic=x", "--nsqd-tcp-address=x"], 1, "has no port"),
    (["--topic=x", "--nsqd-http-address=x"], 1, "nsqd_http_address"),
    (["--topic=x", "--lookupd-http-address=:"], 1, "has no"),
    (["--topic=x", "--nsqd-tcp-address=x:1", "--consumer-opt=nope,1"], 2, "nope"),
    (["--topic=x", "--nsqd-tcp-address=x:1", "--connect-timeout=0"], 1, "should be positive"),
    (["--what"], 2, "flag provided but not defined"),
])
def test_a_wrong_command_line_is_told(words, status, said, capsys):
    """One line on stderr, nothing on stdout."""
    assert main(words) == status
    output = capsys.readouterr()
    assert said in output.err and output.out == ""


def test_the_help_names_every_flag(capsys):
    """--help shows the groups, and ends with 0."""
    assert main(["--help"]) == 0
    text = capsys.readouterr().err
    assert all(f"--{flag}" in text for flag in ("topic", "watch", "nsqd-http-address", "json"))
