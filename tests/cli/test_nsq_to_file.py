"""nsq_to_file as a process, on the embedded nsqd: delivery, full disks, hooks, topic patterns."""

import logging
import resource
import shlex
import subprocess
import sys
import zlib
from contextlib import contextmanager

import pytest

from nsqclient import Producer
from nsqclient.cli import main
from nsqclient.cli.nsq_to_file import TopicWatcher
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.cluster.cluster import Cluster
from nsqclient.runtime.log_lines import PrefixedLogger
from tests.support.archives import read_tree
from tests.support.docs.tool_runs import end, tool
from tests.support.servers.http_api import HttpApi
from tests.support.waiting import wait_until

#: A short backoff, so that recovery is quick.
QUICK = ["--consumer-opt=backoff_multiplier,20ms", "--consumer-opt=max_backoff_duration,100ms"]


@pytest.fixture
def nsqd():
    with Nsqd() as server:
        api = HttpApi(server.http_address)
        api.create("t", "nsq_to_file")
        yield server


def start(nsqd, folder, *more, **options):
    return tool("ours", "nsq_to_file", "--topic=t", f"--output-dir={folder}",
                f"--nsqd-tcp-address={nsqd.tcp_address}", "--datetime-format=%Y",
                "--sync-interval=100ms", "--filename-format=f<REV>", *more, **options)


def publish(nsqd, *bodies):
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish_many("t", bodies)


def stats(nsqd):
    return HttpApi(nsqd.http_address).stats("t", "nsq_to_file")


def is_empty(nsqd):
    now = stats(nsqd)
    return not (now["depth"] or now["in_flight_count"] or now["deferred_count"])


def test_a_slow_topic_is_seen_at_once_and_synced_at_the_stop(nsqd, tmp_path):
    publish(nsqd, b"one")
    with start(nsqd, tmp_path, "--sync-interval=1h") as process:
        wait_until(lambda: read_tree(tmp_path) == {"f": b"one\n"})
        assert stats(nsqd)["in_flight_count"] == 1
        assert end(process) == 0
    assert is_empty(nsqd)


def test_messages_are_synced_before_they_time_out(nsqd, tmp_path):
    """A --sync-interval longer than msg_timeout does not make every message a duplicate."""
    publish(nsqd, b"one")
    more = ["--sync-interval=1h", "--consumer-opt=msg_timeout,1s"]
    with start(nsqd, tmp_path, *more) as process:
        wait_until(lambda: stats(nsqd)["clients"] and is_empty(nsqd))
        assert end(process) == 0
    assert stats(nsqd)["timeout_count"] == 0 and read_tree(tmp_path) == {"f": b"one\n"}


@pytest.mark.parametrize("more", [[], ["--gzip"]], ids=["plain", "gzip"])
def test_a_full_disk_backs_off_and_recovers(nsqd, tmp_path, more):
    bodies = [b"%04d" % number + zlib.crc32(b"%d" % number).to_bytes(4, "big").hex().encode() * 8
              for number in range(100)]
    with start(nsqd, tmp_path, "--max-in-flight=10", *QUICK, *more) as process:
        wait_until(lambda: stats(nsqd)["clients"])
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        publish(nsqd, *bodies)
        wait_until(lambda: stats(nsqd)["requeue_count"] > 10)
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        wait_until(lambda: is_empty(nsqd), timeout=20)
        assert end(process) == 0
    (content,) = read_tree(tmp_path).values()
    assert sorted(content.splitlines()) == bodies


def test_a_command_runs_for_each_finished_file(nsqd, tmp_path):
    publish(nsqd, b"one", b"two", b"three")
    script, seen = tmp_path / "hook.py", tmp_path / "seen"
    line = "os.environ['NSQ_FILE'] + ' ' + sys.argv[2] + chr(10)"
    script.write_text(f"import os, sys\nopen(sys.argv[1], 'a').write({line})\n"
                      "sys.exit(3 if sys.argv[2].endswith('-000001') else 0)\n")
    command = f"--exec-on-close={shlex.join([sys.executable, str(script), str(seen)])}"
    with (tmp_path / "log").open("wb") as log:
        with start(nsqd, tmp_path / "out", "--rotate-size=1", command, stderr=log) as process:
            wait_until(lambda: stats(nsqd)["clients"] and is_empty(nsqd))
            assert end(process) == 0
    paths = sorted((tmp_path / "out").iterdir())
    assert len(paths) >= 3
    assert seen.read_text().splitlines() == [f"{path} {path}" for path in paths]
    said = (tmp_path / "log").read_text()
    assert said.count("--exec-on-close") == said.count(f"for {paths[1]}: exit status 3") == 1


@contextmanager
def archiving(folder, *lookupds, pattern="web", name="<TOPIC><REV>", log=subprocess.DEVNULL):
    words = [f"--lookupd-http-address={address}" for address in lookupds]
    with tool("ours", "nsq_to_file", f"--topic-pattern={pattern}", "--topic-refresh=100ms",
              f"--output-dir={folder}/out", f"--work-dir={folder}/work", "--datetime-format=%Y",
              "--sync-interval=100ms", f"--filename-format={name}", "--skip-empty-files",
              "--consumer-opt=lookupd_poll_interval,100ms", *words, stderr=log) as process:
        yield process
        assert end(process) == 0


def test_a_topic_whose_name_leads_out_of_the_directory_is_not_archived(leak_guard, tmp_path):
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        nsqd.publish("..", b"evil")
        nsqd.publish("web", b"one")
        with (tmp_path / "log").open("wb") as log, archiving(
            tmp_path / "a", lookupd.http_address, pattern=".", name="<TOPIC>/x<REV>", log=log
        ):
            wait_until(lambda: read_tree(tmp_path / "a" / "work") == {"web/x-000000": b"one\n"})
            nsqd.publish("web2", b"two")  # a later look than the first
            wait_until(lambda: (tmp_path / "a" / "work" / "web2").exists())
    assert read_tree(tmp_path / "a") == {
        "out/web/x-000000": b"one\n", "out/web2/x-000000": b"two\n"}
    assert (tmp_path / "log").read_text().count("outside") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"a", "log"}


def test_a_poll_that_raises_is_followed_by_others(leak_guard, monkeypatch):
    watcher = TopicWatcher(
        Cluster(["127.0.0.1:1"]), 0.01, [].append, [].append,
        PrefixedLogger(logging.getLogger("nsqclient.nsq_to_file"), ""))
    polls = []

    def poll():
        polls.append(1)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(watcher, "poll", poll)
    watcher.start()
    wait_until(lambda: len(polls) > 2)
    watcher.stop()


def test_a_directory_that_cannot_be_written_ends_it(tmp_path, capsys):
    (tmp_path / "out").write_bytes(b"")
    assert main(["nsq_to_file", "--topic=t", "--nsqd-tcp-address=127.0.0.1:1",
                 f"--output-dir={tmp_path / 'out'}"]) == 1
    assert "cannot create files" in capsys.readouterr().err
