"""nsq_tail by value: its output, its end, invalid flags."""

import gzip
import os

import pytest

from nsqclient import Config, Requeue
from nsqclient.cli import main
from nsqclient.cli.consumers import make_guard
from nsqclient.cli.lines import Renderer, gunzipped, parse_format, unescape
from nsqclient.cli.nsq_tail import Tail
from nsqclient.devserver import Nsqd, PartitionedCluster
from nsqclient.partitioned import Producer
from nsqclient.testing import make_message
from tests.support.servers.http_api import HttpApi


def a_message(body=b"hi"):
    return make_message(
        body, 2, message_id=b"0123456789abcdef", timestamp=1_780_000_000_123_456_789)


@pytest.mark.parametrize(("options", "line"), [
    ({}, b"hi\n"),
    ({"print_topic": True}, b"t | hi\n"),
    ({"end": b""}, b"hi"),
    ({"template": parse_format("{id}\\t{attempts} {topic}{{}} {nsqd} {size} {base64}")},
     b"0123456789abcdef\t2 t{} 127.0.0.1:4150 2 aGk=\n"),
    ({"template": parse_format("{timestamp} {time}")},
     b"1780000000123456789 2026-05-28T20:26:40.123456Z\n"),
    ({"template": parse_format("{body}"), "print_topic": True}, b"t | hi\n"),
])
def test_a_format_prints_fields_of_the_message(options, line):
    assert Renderer(**options)("t", a_message()) == line


@pytest.mark.parametrize(("body", "shown"), [
    (gzip.compress(b"one", mtime=0), b"one"),
    (gzip.compress(b"one", mtime=0) + gzip.compress(b"two", mtime=0), b"onetwo"),
    (b"plain", b"plain"),
    (b"\x1f\x8b broken", b"\x1f\x8b broken"),
    (gzip.compress(b"cut off", mtime=0)[:-4], gzip.compress(b"cut off", mtime=0)[:-4]),
])
def test_gunzip_unpacks_gzip_bodies_only(body, shown):
    assert Renderer(gunzip=True, end=b"")("t", a_message(body)) == shown


def test_escapes_of_a_format_are_replaced():
    assert unescape("a\\n\\t\\r\\0\\\\\\x41\\") == b"a\n\t\r\0\\A\\"
    assert unescape("\udcff") == b"\xff"
    for bad in ("\\q", "\\xzz"):
        with pytest.raises(ValueError):
            unescape(bad)


def test_messages_over_the_limit_are_requeued():
    read, write = os.pipe()
    stops = []
    tail = Tail(write, 2, lambda: stops.append(1))
    tail.show(b"a")
    assert not stops
    tail.show(b"b")
    with pytest.raises(Requeue):
        tail.show(b"c")
    os.close(write)
    assert os.read(read, 10) == b"ab" and stops == [1]
    os.close(read)


def test_the_guard_asks_the_http_address_that_was_given_with_the_nsqd():
    with Nsqd() as one, Nsqd() as other:
        other.create_topic("t")
        other.create_channel("t", "c")
        pairs = [one, one, other]
        guard = make_guard({
            "nsqd-tcp-address": [nsqd.tcp_address for nsqd in pairs],
            "nsqd-http-address": [nsqd.http_address for nsqd in pairs],
            "lookupd-http-address": [],
        }, Config(), "t", "c")
        guard.check(other.tcp_address, False)


def test_gunzip_has_a_limit():
    body = gzip.compress(bytes(1_000_000))
    assert len(gunzipped(body)) == 1_000_000
    assert gunzipped(body, 10) == bytes(10) + b"... (more than 10 bytes)"


@pytest.mark.parametrize("ordered", [False, True])
def test_partitions_of_a_topic_are_read_to_the_limit(leak_guard, capfdbinary, ordered):
    """-n neither stalls, although each partition has fewer messages, nor is an order in the way."""
    with PartitionedCluster(3) as cluster:
        cluster.create_topic("t", 6, ordered=ordered, channels=["c"])
        with Producer(lookupd_http_addresses=cluster.lookupd_http_addresses) as producer:
            for number in range(24):
                producer.publish("t", b"%d" % number, partition=number % 6)
        assert main(["nsq_tail", "--topic=t", "--channel=c", "-n", "12",
                     *(f"--lookupd-http-address={address}"
                       for address in cluster.lookupd_http_addresses)]) == 0
    assert len(set(capfdbinary.readouterr().out.split())) == 12


def test_fewer_messages_than_nsqds_do_not_stall(leak_guard, capfdbinary):
    with Nsqd() as empty, Nsqd() as other, Nsqd() as full:
        for nsqd in (empty, other, full):
            HttpApi(nsqd.http_address).create("t", "c")
        full.publish("t", b"x")
        assert main(["nsq_tail", "--topic=t", "--channel=c", "-n", "1", *(
            f"--nsqd-tcp-address={nsqd.tcp_address}" for nsqd in (empty, other, full))]) == 0
    assert capfdbinary.readouterr().out == b"x\n"


def test_a_topic_without_its_flag_says_what_to_write(capsys):
    assert main(["nsq_tail", "orders"]) == 2
    assert "write --topic=orders" in capsys.readouterr().err
