"""nsq_stat: rates by value, rows against the embedded servers, failures and invalid flags."""

import json
import signal
import sys

import pytest

from nsqclient.cli import main
from nsqclient.cli.tools import nsq_stat
from nsqclient.cli.tools.nsq_stat import (
    HEADER, Answer, Counters, Live, Plain, Row, Sampler, format_row, rates, total,
)
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.cluster.cluster import Cluster
from tests.cli.test_terminal import Screen
from tests.support.servers.http_recorder import recording
from tests.support.servers.ports import free_port


# -- rates


def test_a_poll_that_waits_for_one_nsqd_changes_no_rate_of_another():
    """Each rate is over the time between the answers of its own nsqd.

    What left is what came less what stayed.
    """
    before = {"a": Answer(Counters(60, 50), 1.0), "slow": Answer(Counters(60), 7.0)}
    after = {"a": Answer(Counters(180, 30), 3.0), "slow": Answer(Counters(180), 9.5)}
    assert rates(before, after) == [
        Row("a", 60.0, 70.0, Counters(180, 30)), Row("slow", 48.0, 48.0, Counters(180))]


def test_a_restarted_nsqd_has_no_negative_rate():
    before = {"a": Answer(Counters(messages=100), 1.0)}
    [row] = rates(before, {"a": Answer(Counters(messages=10, depth=4), 2.0)})
    assert (row.ingress, row.egress) == (10.0, 6.0)


def test_an_nsqd_that_comes_or_goes_changes_no_rate():
    before = {"a": Answer(Counters(5), 0.0), "gone": Answer(Counters(900), 0.0)}
    rows = rates(before, {"a": Answer(Counters(6), 1.0), "new": Answer(Counters(7), 1.0)})
    assert [(row.name, row.ingress) for row in rows] == [("a", 1.0), ("new", 0.0)]


def test_the_total_is_the_sum_of_all_rows():
    row = total([Row("a", 1, 2, Counters(*range(9))), Row("b", 3, 4, Counters(*range(9)))])
    assert row == Row("total", 4, 6, Counters(*range(0, 18, 2)))


def test_the_columns_are_the_originals():
    row = Row("x", 200.2, 0, Counters(messages=400, depth=400))
    columns = "    200       0 |     400     400       0     0     0"
    assert format_row(row) == columns + " |       0       0          400       0"
    assert len(HEADER.splitlines()[1]) == len(format_row(row))


def test_the_heading_comes_again(capsys):
    view = Plain()
    for _ in range(51):
        view(None, {})
    assert capsys.readouterr().out == HEADER * 3


# -- servers


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


@pytest.mark.parametrize("prefix", ["", "http://"])
def test_nsqds_are_found_through_nsqlookupd(capsys, prefix):
    with Nsqlookupd() as lookupd:
        lookupds = [lookupd.tcp_address]
        with Nsqd(lookupd_tcp_addresses=lookupds) as a, Nsqd(lookupd_tcp_addresses=lookupds) as b:
            for server in (a, b):
                server.create_topic("t")
                server.create_channel("t", "c")
                server.publish("t", b"x")
            words = [f"--lookupd-http-address={prefix}{lookupd.http_address}",
                     f"--lookupd-http-address=127.0.0.1:{free_port()}"]
            with Cluster(w.split("=")[1] for w in words) as cluster:
                sampler = Sampler("t", "c", cluster)
                while len(sampler.poll()) < 2:
                    pass
            assert stat(*words) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[3].split()[3] == "2"
    assert printed.err.count("refused") == 3  # at every poll


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


def test_it_goes_on_when_the_server_comes_back(caplog):
    body = json.dumps({"topics": [{"topic_name": "t", "channels": [{"channel_name": "c"}]}]})
    with recording() as server, Cluster(nsqds=[server.address]) as cluster:
        sampler = Sampler("t", "c", cluster)
        server.status, server.body = 500, body.encode()
        assert sampler.poll() == {} and server.address in sampler.problems
        server.status = 200
        with caplog.at_level("INFO", "nsqclient"):
            assert sampler.poll()[server.address].counters == Counters()
    assert "answers again" in caplog.text


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


def test_a_password_is_not_shown(nsqd, capsys):
    dead = f"--nsqd-http-address=http://user:s3cret@127.0.0.1:{free_port()}"
    assert stat(dead, f"--nsqd-http-address=http://user:s3cret@{nsqd.http_address}", "--json") == 0
    printed = capsys.readouterr()
    assert "s3cret" not in printed.out + printed.err
    assert "refused: is nsqd running there" in printed.err
    record = json.loads(printed.out.splitlines()[0])
    assert list(record["nsqds"]) == [nsqd.http_address]
    assert len(record["problems"]) == 1


# -- the table


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


@pytest.mark.parametrize("words, is_table", [([], True), (["--plain"], False)])
def test_a_terminal_gets_the_table(nsqd, monkeypatch, words, is_table):
    monkeypatch.setattr(sys, "stdout", Screen())
    assert stat(f"--nsqd-http-address={nsqd.http_address}", *words) == 0
    printed = sys.stdout.getvalue()
    assert ("\x1b[" in printed) is is_table and ("t/c" in printed) is is_table


# -- the end


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(nsqd, capsys, monkeypatch, signum):
    started = nsq_stat.Plain.__call__

    def show(self, *arguments):
        started(self, *arguments)
        signal.raise_signal(signum)

    monkeypatch.setattr(nsq_stat.Plain, "__call__", show)
    words = [f"--nsqd-http-address={nsqd.http_address}", "--interval=1h"]
    assert main(["nsq_stat", "--topic=t", "--channel=c", *words]) == 0
