"""nsq_to_nsq beside the original, on real nsqds.

Deliberate differences are on the page docs/tools/nsq_to_nsq.rst.
"""

import json
import subprocess
from contextlib import contextmanager

import pytest

from nsqclient import Producer
from tests.integration.test_consumer import take
from tests.support.docs.tool_runs import end, tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

KINDS = ["ours", "original"]
#: Requeues come back soon, and so do the messages of a killed tool.
QUICK = ["--consumer-opt=default_requeue_delay,100ms", "--consumer-opt=msg_timeout,2s",
         "--consumer-opt=max_backoff_duration,1s", "--consumer-opt=backoff_multiplier,100ms"]


def publish(nsqd, topic, bodies):
    nsqd.create(topic, "nsq_to_nsq")
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish_many(topic, bodies)


@contextmanager
def copying(kind, source, destinations, *more, topic="t", **options):
    words = [f"--topic={topic}", f"--nsqd-tcp-address={source.tcp_address}", *more]
    words += [f"--destination-nsqd-tcp-address={address}" for address in destinations]
    with tool(kind, "nsq_to_nsq", *words, **options) as process:
        yield process


def is_done(source, topic="t"):
    stats = source.stats(topic, "nsq_to_nsq")
    return not (stats["depth"] + stats["in_flight_count"] + stats["deferred_count"])


def bodies_at(nsqd, topic="t"):
    return take(nsqd, topic, nsqd.stats(topic).get("message_count", 0))


@pytest.fixture
def source(real_nsqd):
    return real_nsqd()


@pytest.fixture
def target(real_nsqd):
    return real_nsqd()


OBJECTS = [
    b'{"id":1,"state":"paid","total":9}', b'{"id":2,"state":"open"}', b'{"total":3,"id":3}',
    b'{"state":1}', b'{"state":"1"}', b'{"state":null}', b'{"state":true}', b'[1]', b'no json',
    b'{"id":{"b":1,"a":[1,2]},"state":"paid"}', b'{}',
]


@pytest.mark.parametrize("more", [
    [],
    ["--destination-topic=d"],
    ["--whitelist-json-field=total", "--whitelist-json-field=id"],
    ["--require-json-field=state", "--whitelist-json-field=state"],
    ["--mode=round-robin"],
    ["--mode=epsilon-greedy"],
])
def test_results_are_those_of_the_original(real_nsqd, source, more):
    results = []
    for kind in KINDS:
        target = real_nsqd()
        publish(source, kind, OBJECTS)
        with copying(kind, source, [target.tcp_address], *more, topic=kind) as process:
            wait_until(lambda: is_done(source, kind), timeout=20)
            assert end(process) == 0
        topic = "d" if "--destination-topic=d" in more else kind
        results.append(sorted(bodies_at(target, topic)))
    # Only in nested objects the original sorts keys that the message did not sort.
    assert [json_or_bytes(b) for b in results[0]] == [json_or_bytes(b) for b in results[1]]
    assert results[0]


def json_or_bytes(body):
    try:
        return json.loads(body)
    except ValueError:
        return body


def test_bug_6_nsq_to_nsq_does_not_back_off_for_a_missing_field(source, target):
    publish(source, "t", [b'{"b":1}', b'{"a":1}'] * 50)
    more = ["--require-json-field=a", "--require-json-value=1"]
    with copying("ours", source, [target.tcp_address], *more, stderr=subprocess.PIPE) as process:
        wait_until(lambda: is_done(source))
        assert end(process) == 0
        assert b"backing off" not in process.stderr.read()
    assert bodies_at(target) == [b'{"a":1}'] * 50
    assert source.stats("t", "nsq_to_nsq")["requeue_count"] == 0


def test_a_dead_destination_recovers_and_nothing_is_lost(source, target):
    target.stop()
    publish(source, "t", [b"%d" % n for n in range(500)])
    more = [*QUICK, "--producer-opt=publish_timeout,500ms"]
    with copying("ours", source, [target.tcp_address], *more, stderr=subprocess.PIPE) as process:
        wait_until(lambda: source.stats("t", "nsq_to_nsq")["requeue_count"] > 0, timeout=20)
        target.start()
        wait_until(lambda: is_done(source), timeout=60)
        assert end(process) == 0
        assert b"backing off" in process.stderr.read()
    assert set(bodies_at(target)) == {b"%d" % n for n in range(500)}


@pytest.mark.parametrize("mode", ["hostpool", "round-robin"])
def test_a_message_too_large_for_the_destination_slows_nothing_down(source, real_nsqd, mode):
    target = real_nsqd(max_msg_size=500)
    publish(source, "t", [b"x" * 1000, *[b"small"] * 20])
    with copying("ours", source, [target.tcp_address], f"--mode={mode}"):
        wait_until(lambda: target.stats("t").get("message_count") == 20)
        wait_until(lambda: source.stats("t", "nsq_to_nsq")["deferred_count"] == 1)
