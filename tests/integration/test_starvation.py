"""An nsqd that counts more messages in flight than it has sent, and a consumer that goes on."""

import logging
import threading

import pytest

from nsqclient import Config, Consumer
from tests.support.waiting import wait_until

QUICK = Config(default_requeue_delay=0.1, max_backoff_duration=0.2, msg_timeout=1.0)


class Handler:
    def __init__(self):
        self.bodies, self.may_end = [], threading.Event()

    def __call__(self, message):
        self.may_end.wait(20)
        self.bodies.append(message.body)
        if message.body == b"bad" and message.attempts == 1:
            raise ValueError


def publish(nsqd, *bodies):
    for body in bodies:
        nsqd.publish("events", body)


def replaced(caplog):
    return [record.getMessage() for record in caplog.records
            if "the connection is replaced" in record.getMessage()]


def test_a_second_delivery_of_the_same_attempt_replaces_the_connection(nsqd, caplog):
    """nsqd's count would stay too high: the test that ends the backoff would get no message."""
    caplog.set_level(logging.INFO)
    handler = Handler()
    with Consumer("events", "c", handler, nsqd_tcp_addresses=[nsqd.tcp_address],
                  max_in_flight=3, workers=3, config=QUICK.replace(msg_timeout=60)) as consumer:
        publish(nsqd, b"1", b"2", b"3")
        wait_until(lambda: consumer.stats().total.received == 3)
        nsqd.faults.deliver_again("events", "c")
        wait_until(lambda: len(replaced(caplog)) == 1)
        handler.may_end.set()
        wait_until(lambda: [one.counters.received for one in consumer.stats().connections] == [0])
        publish(nsqd, b"bad")
        wait_until(lambda: handler.bodies.count(b"bad") == 2)
        publish(nsqd, b"new")
        wait_until(lambda: b"new" in handler.bodies)
        nsqd.wait_until_empty("events", "c")
    assert "twice" in replaced(caplog)[0]
    assert not [record for record in caplog.records if "lost" in record.getMessage()]


@pytest.mark.parametrize("knows_depth", [True, False])
def test_a_silent_nsqd_is_replaced_after_msg_timeout(nsqd, caplog, monkeypatch, knows_depth):
    """Whatever made its count wrong: messages wait in the channel, or the test of a backoff."""
    monkeypatch.setattr(
        "nsqclient.consumer.watchdog.Watchdog._replace_miscounted", lambda *args: None)
    if knows_depth:
        monkeypatch.setattr(
            "nsqclient.consumer.channel_depth.find_http_address", lambda *args: nsqd.http_address)
    handler, held = Handler(), []
    handler.may_end.set()

    def handle(message):
        if held:
            handler(message)
        else:
            message.enable_async()
            held.append(message)

    with Consumer("events", "c", handle, nsqd_tcp_addresses=[nsqd.tcp_address],
                  config=QUICK) as consumer:
        publish(nsqd, b"1")
        wait_until(lambda: held)
        nsqd.faults.deliver_again("events", "c")
        wait_until(lambda: consumer.stats().total.received == 2)
        held[0].requeue(0, backoff=not knows_depth)
        wait_until(lambda: replaced(caplog), timeout=20)
        wait_until(lambda: b"1" in handler.bodies, timeout=20)
        nsqd.wait_until_empty("events", "c")
    assert "delivered nothing" in replaced(caplog)[0]
    assert ("waits there" in replaced(caplog)[0]) == knows_depth


def test_an_idle_consumer_keeps_its_connection(nsqd, caplog, monkeypatch):
    asked = []
    monkeypatch.setattr("nsqclient.consumer.core.ConsumerCore._fetch_depth",
                        lambda self, sub: asked.append(sub) or 0)
    with Consumer("events", "c", Handler(), nsqd_tcp_addresses=[nsqd.tcp_address], config=QUICK):
        wait_until(lambda: len(asked) >= 2, timeout=20)
    assert not replaced(caplog)
