"""nsq_stat: rates by value, rows against the embedded servers, failures and invalid flags."""

import json
import signal

import pytest

from nsqclient.cli import main
from nsqclient.cli import nsq_stat
from nsqclient.cli.nsq_stat import (
    HEADER, Answer, Counters, Live, Row, Sampler, rates,
)
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.cluster.cluster import Cluster


def test_a_poll_that_waits_for_one_nsqd_changes_no_rate_of_another():
    before = {"a": Answer(Counters(60, 50), 1.0), "slow": Answer(Counters(60), 7.0)}
    after = {"a": Answer(Counters(180, 30), 3.0), "slow": Answer(Counters(180), 9.5)}
    assert rates(before, after) == [
        Row("a", 60.0, 70.0, Counters(180, 30)), Row("slow", 48.0, 48.0, Counters(180))]


def test_a_restarted_nsqd_has_no_negative_rate():
    before = {"a": Answer(Counters(messages=100), 1.0)}
    [row] = rates(before, {"a": Answer(Counters(messages=10, depth=4), 2.0)})
    assert (row.ingress, row.egress) == (10.0, 6.0)


@pytest.fixture
def nsqd(leak_guard):
    with Nsqd() as server:
        server.create_topic("t")
        server.create_channel("t", "c")
        server.publish_many("t", [b"x"] * 4)
        yield server


def stat(*words):
    return main(["nsq_stat", "--topic=t", "--channel=c", "--interval=20ms", "--count=2", *words])


@pytest.mark.parametrize("prefix", ["", "http://"])
def test_each_interval_prints_a_row(nsqd, capsys, prefix):
    assert stat(f"--nsqd-http-address={prefix}{nsqd.http_address}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == HEADER.splitlines() and len(lines) == 4
    assert lines[2].split() == "0 0 | 4 4 0 0 0 | 0 0 4 0".split()


def test_the_given_address_is_asked_not_the_broadcast_address(capsys):
    with Nsqd(broadcast_address="192.0.2.1") as server:
        server.create_topic("t")
        server.create_channel("t", "c")
        assert stat(f"--nsqd-http-address={server.http_address}") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize("flag", ["nsqd", "lookupd"])
def test_another_port_than_the_http_port_is_status_1(nsqd, capsys, flag):
    with Nsqlookupd() as lookupd:
        others = {"nsqd": lookupd.http_address, "lookupd": nsqd.http_address}
        for address in (nsqd.tcp_address, others[flag]):
            status = main(["nsq_stat", "--topic=t", "--channel=c",
                           f"--{flag}-http-address={address}"])
            printed = capsys.readouterr()
            assert (status, printed.out) == (1, "")
            assert f"nsq_stat: {address}: " in printed.err


def test_the_nsqds_stay_known_while_no_nsqlookupd_answers():
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as server:
        server.create_topic("t")
        server.create_channel("t", "c")
        with Cluster([lookupd.http_address]) as cluster:
            sampler = Sampler("t", "c", cluster)
            while not sampler.poll():
                pass
            lookupd.stop()
            assert len(sampler.poll()) == 1 and sampler.problems


@pytest.mark.parametrize("name", ["t", "other"])
def test_a_channel_that_does_not_exist_yet_is_reported_at_each_poll(nsqd, capsys, name):
    words = ["--channel=nope", f"--topic={name}"]
    assert stat(f"--nsqd-http-address={nsqd.http_address}", *words) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("no nsqd has channel nope") == 3


def test_json_prints_an_object_for_each_interval(nsqd, capsys):
    assert stat(f"--nsqd-http-address={nsqd.http_address}", "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["topic"] == "t" and second["depth"] == 4 and second["problems"] == {}
    assert second["nsqds"][nsqd.http_address]["messages"] == 4


def test_the_table_is_drawn_over_the_last_one(capsys, monkeypatch):
    view = Live("t/c", 2.0)
    view(None, {})
    monkeypatch.setenv("COLUMNS", "200")
    view([Row("h:1", 3, 1, Counters(5, 4, paused=1))], {"h:2": "refused"})
    view([], {})
    first, second, third = capsys.readouterr().out.split("\x1b[J")[1:]
    assert "counting" in first and first.endswith("\x1b[1F")
    assert "total  " in second and "paused" in second and "! h:2: refused" in second
    assert second.endswith("\n\x1b[6F") and third.count("\n") == 3


def test_a_small_terminal_is_not_overrun(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    Live("t/c", 2.0)([Row(f"h:{n}", 0, 0, Counters()) for n in range(50)], {})
    lines = capsys.readouterr().out.removeprefix("\x1b[J").splitlines()
    assert len(lines) == 4 and max(map(len, lines)) < 20


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(nsqd, capsys, monkeypatch, signum):
    started = nsq_stat.Plain.__call__

    def show(self, *arguments):
        started(self, *arguments)
        signal.raise_signal(signum)

    monkeypatch.setattr(nsq_stat.Plain, "__call__", show)
    words = [f"--nsqd-http-address={nsqd.http_address}", "--interval=1h"]
    assert main(["nsq_stat", "--topic=t", "--channel=c", *words]) == 0
