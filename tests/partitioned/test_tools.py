"""to_nsq and nsq_to_nsq with partitioned clusters."""

import json
import re
import signal
import subprocess
import sys

import pytest

from nsqclient import InvalidMessageError, PartitionError
from nsqclient.cli import main
from nsqclient.cli.lines import in_flags, key_of
from nsqclient.devserver import Nsqd, Nsqlookupd, PartitionedCluster
from nsqclient.partitioned import Outgoing, Producer
from nsqclient.protocol.partitioned.sharding import murmur3
from tests.support.waiting import wait_until

WAIT = 120


def nsq_to_nsq(*words):
    return subprocess.Popen([sys.executable, "-m", "nsqclient", "nsq_to_nsq", "--topic=t", *words])


def to_nsq(cluster, *words, data):
    """Publish lines to topic t with the tool; return the finished process."""
    lookupd = cluster.lookupd_http_addresses[0]
    return subprocess.run(
        [sys.executable, "-m", "nsqclient", "to_nsq", "--topic=t", *words,
         f"--lookupd-http-address={lookupd}"],
        input=data, stderr=subprocess.PIPE, timeout=WAIT, check=False)


def end(process):
    """Stop a tool that runs until a signal."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 0


def test_a_key_is_the_value_of_a_field():
    """A number is used as text. A record without a key is not published."""
    assert key_of(b'{"user": "a"}', "user") == "a" and key_of(b'{"user": ""}', "user") == ""
    assert key_of(b'{"user": 7}', "user") == "7"
    for body in (b"", b"[]", b"{}", b'{"user": null}', b'{"user": true}', b'{"user": 1.5}'):
        with pytest.raises(InvalidMessageError, match="no key"):
            key_of(body, "user")


@pytest.mark.parametrize(("words", "status", "text"), [
    (["--nsqd-tcp-address=a:1", "--lookupd-http-address=a:1"], 2, "not both"),
    (["--nsqd-tcp-address=a:1", "--key-field=x"], 2, "needs --lookupd-http-address"),
    (["--nsqd-tcp-address=a:1", "--ordered"], 2, "needs --lookupd-http-address"),
    (["--lookupd-http-address=a:1", "--ordered", "--defer=1s"], 2, "not both"),
])
def test_to_nsq_refuses_flags_that_do_not_fit(words, status, text, capsys):
    assert main(["to_nsq", "--topic=t", *words]) == status
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("words", "said"), [
    ([], "topic t is ordered: give --key-field or --ordered"),
    (["--defer=1s"], "--defer needs a stock NSQ"),
])
def test_to_nsq_says_which_flags_a_topic_needs(cluster, words, said):
    cluster.create_topic("t", 3, ordered=True)
    done = to_nsq(cluster, *words, data=b"x")
    assert said in done.stderr.decode() and done.returncode == 1


def test_a_key_for_a_stock_cluster_is_refused_with_the_names_of_flags():
    """The errors are those of publishes."""
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        for options in ({"lookupd_http_addresses": [lookupd.http_address]},
                        {"nsqd_tcp_addresses": [nsqd.tcp_address]}):
            with Producer(**options) as producer:
                with pytest.raises(PartitionError) as caught:
                    producer.publish("t", b"x", key="k")
            assert in_flags(caught.value, "--key-field").startswith("--key-field needs ")


@pytest.mark.parametrize("flag, key", [
    ("--key-field=user", lambda record: json.loads(record)["user"]),
    ("--ordered", lambda record: "t"),  # all in one partition
])
def test_to_nsq_keeps_the_order_where_asked_to(cluster, flag, key):
    cluster.create_topic("t", 3, ordered=True)
    records = [json.dumps({"user": f"u{number % 7}", "n": number}).encode()
               for number in range(500)]
    assert to_nsq(cluster, flag, data=b"\n".join(records)).returncode == 0
    for partition in range(3):
        assert cluster.messages("t", partition) == [
            one for one in records if murmur3(key(one), 3) == partition]


def test_nsq_to_nsq_copies_from_a_stock_nsq_to_partitions(cluster):
    cluster.create_topic("t", 3, ordered=True)
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        bodies = [json.dumps({"user": f"u{number}"}).encode() for number in range(30)]
        with Producer([nsqd.tcp_address]) as producer:
            producer.publish_many("t", bodies)
        process = nsq_to_nsq(
            f"--nsqd-tcp-address={nsqd.tcp_address}", "--key-field=user",
            f"--destination-lookupd-http-address={cluster.lookupd_http_addresses[0]}")
        try:
            wait_until(lambda: sum(len(cluster.messages("t", p)) for p in range(3)) == 30, WAIT)
        finally:
            end(process)
    for partition in range(3):
        assert all(murmur3(json.loads(body)["user"], 3) == partition
                   for body in cluster.messages("t", partition))


def test_nsq_to_nsq_copies_headers_between_partitioned_clusters(cluster):
    cluster.create_topic("t", 2, extended=True, channels=["nsq_to_nsq", "stock"])
    lookupd = cluster.lookupd_http_addresses[0]
    with PartitionedCluster(1, 1) as there, Nsqd() as stock:
        there.create_topic("t", 1, extended=True, channels=["c"])
        processes = [
            nsq_to_nsq(f"--lookupd-http-address={lookupd}", *words) for words in (
                [f"--destination-lookupd-http-address={there.lookupd_http_addresses[0]}"],
                ["--channel=stock", f"--destination-nsqd-tcp-address={stock.tcp_address}"],
            )
        ]
        try:
            with Producer(lookupd_http_addresses=[lookupd]) as producer:
                producer.publish_many("t", [Outgoing(b"1", headers={"n": 1}), b"2"])
            wait_until(lambda: len(there.messages("t", 0)) == 2, WAIT)
            wait_until(lambda: [c for c in stock.commands if c.name in ("PUB", "MPUB")], WAIT)
        finally:
            for process in processes:
                end(process)
        assert sorted(there.messages("t", 0)) == [b"1", b"2"]
        assert [c for c in there.nsqds[0].commands if c.name in ("PUB_EXT", "MPUB_EXT")]


def test_nsq_stat_and_doctor_count_each_partition_once(cluster, capsys):
    """Copies on other nsqds are not counted."""
    cluster.create_topic("t", 3, replicas=2, channels=["c"])
    lookupd = f"--lookupd-http-address={cluster.lookupd_http_addresses[0]}"
    with Producer(lookupd_http_addresses=cluster.lookupd_http_addresses) as producer:
        producer.publish_many("t", [b"x"] * 30)
    assert main(["nsq_stat", "--topic=t", "--channel=c", "--json", "--interval=20ms", "--count=1",
                 lookupd]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["depth"], len(shown["nsqds"])) == (30, 3)
    main(["doctor", "--topic=t", "--watch=0", "--json", lookupd])
    findings = json.loads(capsys.readouterr().out)["findings"]
    channels = [each for each in findings if each["check"] == "channel"]
    assert len(channels) == 3
    waiting = [re.search(r"(\d+) wait", each["text"]) for each in channels]
    assert sum(int(found[1]) for found in waiting) == 30


def test_nsq_to_nsq_copies_an_ordered_topic_in_its_order(cluster):
    cluster.create_topic("t", 1, ordered=True, channels=["nsq_to_nsq"])
    lookupd = cluster.lookupd_http_addresses[0]
    bodies = [b"%d" % number for number in range(30)]
    with PartitionedCluster(1, 1) as there, Producer(lookupd_http_addresses=[lookupd]) as producer:
        there.create_topic("t", 1, channels=["c"])
        producer.publish_many("t", bodies, key="k")
        process = nsq_to_nsq(
            f"--lookupd-http-address={lookupd}",
            f"--destination-lookupd-http-address={there.lookupd_http_addresses[0]}")
        try:
            wait_until(lambda: len(there.messages("t", 0)) == 30, WAIT)
        finally:
            end(process)
        assert there.messages("t", 0) == bodies


def test_a_tail_of_a_few_messages_does_not_warn_of_more_partitions(cluster):
    """-n lowers max_in_flight, which the user has not set."""
    cluster.create_topic("t", 6, channels=["c"])
    lookupd = cluster.lookupd_http_addresses[0]
    with Producer(lookupd_http_addresses=[lookupd]) as producer:
        for partition in range(6):  # some wait wherever RDY is
            producer.publish_many("t", [b"x"] * 10, partition=partition)

    def warnings_of(*words):
        done = subprocess.run(
            [sys.executable, "-m", "nsqclient", "nsq_tail", "--topic=t", "--channel=c",
             f"--lookupd-http-address={lookupd}", *words],
            capture_output=True, timeout=WAIT, check=True)
        return b"number of partitions" in done.stderr

    assert not warnings_of("-n=5")
    assert warnings_of("-n=5", "--max-in-flight=2")
