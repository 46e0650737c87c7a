"""nsq_to_file with --topic-pattern: topics that come and go, several nsqlookupds."""

import logging
import signal
import subprocess
from contextlib import contextmanager

import pytest

from nsqclient.cli.nsq_to_file import TopicWatcher
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.http import NsqdHTTP, NsqlookupdHTTP
from nsqclient.http.cluster import Cluster
from nsqclient.runtime.log_lines import PrefixedLogger
from tests.support.archives import read_tree
from tests.support.docs.tool_runs import tool
from tests.support.servers.http_api import HttpApi
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

LOG = PrefixedLogger(logging.getLogger("nsqclient.nsq_to_file"), "")


@contextmanager
def archiving(folder, *lookupds, pattern="web", name="<TOPIC><REV>", log=subprocess.DEVNULL):
    """The tool, for topics with "web" in their name; work-dir, so that a closed file shows."""
    words = [f"--lookupd-http-address={address}" for address in lookupds]
    with tool("ours", "nsq_to_file", f"--topic-pattern={pattern}", "--topic-refresh=100ms",
              f"--output-dir={folder}/out", f"--work-dir={folder}/work", "--datetime-format=%Y",
              "--sync-interval=100ms", f"--filename-format={name}", "--skip-empty-files",
              "--consumer-opt=lookupd_poll_interval,100ms", *words, stderr=log) as process:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def pub(nsqd, topic, body):
    with NsqdHTTP(nsqd.http_address) as client:
        client.pub(topic, body)


def delete(topic, nsqd, lookupd):
    with NsqlookupdHTTP(lookupd.http_address) as client:
        client.delete_topic(topic)
    with NsqdHTTP(nsqd.http_address) as client:
        client.delete_topic(topic)
    with NsqlookupdHTTP(lookupd.http_address) as client:
        wait_until(lambda: client.topics() == ())


def test_the_files_of_a_deleted_topic_are_closed(leak_guard, tmp_path):
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        with archiving(tmp_path, lookupd.http_address):
            pub(nsqd, "web", b"one")
            wait_until(lambda: read_tree(tmp_path / "work") == {"web-000000": b"one\n"})
            api = HttpApi(nsqd.http_address)
            wait_until(lambda: api.stats("web", "nsq_to_file")["in_flight_count"] == 0)
            delete("web", nsqd, lookupd)
            wait_until(lambda: read_tree(tmp_path / "out") == {"web-000000": b"one\n"})
            pub(nsqd, "web", b"two")
            wait_until(lambda: read_tree(tmp_path / "work") == {"web-000001": b"two\n"})
        assert read_tree(tmp_path / "out") == {"web-000000": b"one\n", "web-000001": b"two\n"}


def test_a_topic_whose_name_leads_out_of_the_directory_is_not_archived(leak_guard, tmp_path):
    """It is not consumed, which is logged once; the other topics are archived."""
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        pub(nsqd, "..", b"evil")
        pub(nsqd, "web", b"one")
        with (tmp_path / "log").open("wb") as log, archiving(
            tmp_path / "a", lookupd.http_address, pattern=".", name="<TOPIC>/x<REV>", log=log
        ):
            wait_until(lambda: read_tree(tmp_path / "a" / "work") == {"web/x-000000": b"one\n"})
            pub(nsqd, "web2", b"two")  # a later look than the first
            wait_until(lambda: (tmp_path / "a" / "work" / "web2").exists())
    assert read_tree(tmp_path / "a") == {
        "out/web/x-000000": b"one\n", "out/web2/x-000000": b"two\n"}
    assert (tmp_path / "log").read_text().count("outside") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"a", "log"}


def test_topics_of_every_nsqlookupd_are_archived(leak_guard, tmp_path):
    dead = f"127.0.0.1:{free_port()}"
    with Nsqlookupd() as one, Nsqlookupd() as two:
        with Nsqd(lookupd_tcp_addresses=[one.tcp_address]) as a, Nsqd(
            lookupd_tcp_addresses=[one.tcp_address, two.tcp_address]
        ) as b, archiving(tmp_path, one.http_address, two.http_address, dead):
            for nsqd, topic in ((a, "web-a"), (b, "web-b"), (b, "other"), (a, "web"), (b, "web")):
                pub(nsqd, topic, b"x")
            wait_until(lambda: {name: len(data) for name, data in
                                read_tree(tmp_path / "work").items()}
                       == {"web-a-000000": 2, "web-b-000000": 2, "web-000000": 4}, timeout=20)
        assert set(read_tree(tmp_path / "out")) == {"web-a-000000", "web-b-000000", "web-000000"}


@pytest.fixture
def lookupds(leak_guard):
    with Nsqlookupd() as one, Nsqlookupd() as two:
        yield [one, two]


def test_a_topic_is_deleted_when_no_nsqlookupd_knows_it(lookupds):
    came, gone, agrees = [], [], [False, True]
    clients = [NsqlookupdHTTP(lookupd.http_address) for lookupd in lookupds]
    watcher = TopicWatcher(
        Cluster(lookupd.http_address for lookupd in lookupds), 60, came.append,
        lambda topic: gone.append(topic) or agrees.pop(0), [].append, LOG)
    for client in clients:
        client.create_topic("t")
    assert watcher.poll() and came == ["t"]
    clients[0].delete_topic("t")
    assert watcher.poll() and gone == []
    lookupds[1].stop()
    assert watcher.poll() and gone == []
    watcher.start()
    watcher.stop()
    for client in clients:
        client.close()
