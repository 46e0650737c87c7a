"""The doctor's checks by value, its table, its flags. On servers: integration/test_doctor."""

import re
import shlex

import pytest

from nsqclient.cli.doctor import as_table
from nsqclient.cluster.doctor.findings import Severity, curl, error, ok, warning
from nsqclient.cluster.doctor.checks import check_counters, check_topic, clock_finding
from nsqclient.http import Stats
from nsqclient.protocol.peer_json import JsonReader


def stats(channel=None, clients=(), **topic) -> Stats:
    channel = {"channel_name": "mail", "depth": 0, "client_count": len(clients),
               "clients": list(clients), **(channel or {})}
    topic = {"topic_name": "orders", "channels": [channel], **topic}
    return Stats.read(JsonReader({"health": "OK", "topics": [topic]}, "its answer"))


def client(rdy: int, in_flight: int = 0) -> dict[str, int]:
    return {"ready_count": rdy, "in_flight_count": in_flight}


@pytest.mark.parametrize(("seen", "severity", "check", "words"), [
    (stats(), Severity.OK, "channel", "0 wait"),
    (stats({"paused": True, "depth": 3}), Severity.ERROR, "channel", "paused (3 wait"),
    (stats({"depth": 3}), Severity.WARNING, "channel", "it has no consumer"),
    (stats({"deferred_count": 3}), Severity.WARNING, "channel", "it has no consumer"),
    (stats({"depth": 3}, [client(0), client(0)]), Severity.ERROR, "RDY", "no consumer is ready"),
    (stats({"depth": 3}, [client(5, 5)]), Severity.WARNING, "RDY", "all that its RDY allows"),
    (stats({"depth": 3}, [client(5, 5), client(5, 1)]), Severity.OK, "channel", "2 consumers"),
])
def test_a_stuck_channel_is_reported(seen, severity, check, words):
    (found,) = check_topic(seen, "orders", "mail", "n:4151")
    assert (found.severity, found.check) == (severity, check) and words in found.text
    assert (found.hint == "") == (severity is Severity.OK)
    assert found.where == "orders/mail at n:4151"


def test_a_full_disk_and_a_paused_topic_are_reported():
    ill = Stats.read(JsonReader({"health": "NOK - no space"}, "its answer"))
    (found,) = check_topic(ill, "orders", "", "n:1")
    assert found.check == "disk" and "no space" in found.text
    found = check_topic(stats(paused=True), "orders", "", "n:1")[0]
    assert found.check == "topic"
    assert found.command == "curl -X POST 'http://n:1/topic/unpause?topic=orders'"


def test_timeouts_and_requeues_that_grow_are_reported():
    before = stats({"timeout_count": 4, "requeue_count": 1})
    after = stats({"timeout_count": 6, "requeue_count": 2})
    timeouts, requeues = check_counters(before, after, "orders", "", "n:1", 10.0)
    assert (timeouts.severity, timeouts.text) == (Severity.ERROR, "2 messages timed out in 10 s")
    assert requeues.severity is Severity.WARNING and "1 requeue in" in requeues.text
    assert check_counters(after, after, "orders", "", "n:1", 10.0) == []
    assert check_counters(after, after, "refunds", "", "n:1", 10.0) == []


@pytest.mark.parametrize(("ahead", "words"), [
    (0.4, "agrees"), (-4.9, "agrees"), (3600, "3600 s ahead of ours"), (-60, "60 s behind ours"),
])
def test_a_clock_that_is_off_by_more_than_five_seconds_is_reported(ahead, words):
    """The Date header has whole seconds, so a few do not count."""
    found = clock_finding(ahead, "n:1")
    assert words in found.text and (found.severity is Severity.OK) == (abs(ahead) < 5)


def test_the_table_ends_with_errors_and_a_summary(monkeypatch):
    """Passed checks come first; each hint stands below its finding."""
    monkeypatch.setenv("COLUMNS", "80")
    text = as_table([
        error("nsqd", "a:4150", "connection refused", "start it " + "again " * 20),
        ok("nsqlookupd", "b:4161", "answers"),
        warning("clock", "c.a-very-long-name-of-a-host.example:4161", "30 s ahead", "run NTP"),
    ])
    lines = text.splitlines()
    assert lines[0].split() == ["CHECK", "WHERE", "FINDING"]
    assert [line.split()[0] for line in lines if line[:1].strip()] == [
        "ok", "warning", "ERROR", "1"]
    assert max(map(len, lines)) <= 80 and "-> start it" in text
    assert lines[-1] == "1 error, 1 warning"
    assert as_table([ok("x", "y", "z")]).endswith("\nno problems found\n")


def test_a_command_stands_alone_in_a_line_to_be_pasted(monkeypatch):
    """However narrow the terminal is; in a shell it is one command with one URL."""
    monkeypatch.setenv("COLUMNS", "60")
    command = curl("http://a:1/channel/unpause", topic="orders", channel="tail#ephemeral")
    text = as_table([error("channel", "orders/tail", "it is paused", "unpause it", command)])
    (line,) = [line for line in text.splitlines() if "curl" in line]
    assert shlex.split(line) == [
        "$", "curl", "-X", "POST",
        "http://a:1/channel/unpause?topic=orders&channel=tail%23ephemeral"]


def test_the_results_of_the_table_are_colored():
    findings = [ok("ok", "b:1", "ok"), warning("w", "c:1", "t", "h"), error("e", "d:1", "t", "h")]
    colored = as_table(findings, colored=True)
    assert "\x1b[32mok\x1b[0m" in colored and "\x1b[33mwarning\x1b[0m" in colored
    assert colored.count("\x1b[31;1mERROR\x1b[0m") == 1 and colored.count("\x1b[") == 6
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == as_table(findings)


def test_without_a_topic_all_topics_of_an_nsqd_are_checked():
    good, bad = check_topic(stats(), "", "", "n:1"), check_topic(
        stats({"paused": True}), "", "", "n:1")
    assert [each.text for each in good] == ["1 topic, 1 channel without a problem"]
    assert [each.severity for each in bad] == [Severity.ERROR, Severity.OK]
    before, after = stats({"timeout_count": 4}), stats({"timeout_count": 6})
    (timeouts,) = check_counters(before, after, "", "", "n:1", 10.0)
    assert timeouts.where == "orders/mail at n:1"
