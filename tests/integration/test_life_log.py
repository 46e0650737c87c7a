"""The lifecycle tables in docs/topics/logging.rst are true: each line is made to happen."""

import logging
import re
import threading

import pytest

from nsqclient import Config, Consumer, Producer, PublishError, Requeue
from nsqclient.devserver import Nsqlookupd
from tests.support.docs.log_rows import lifecycle_rows
from tests.support.processes import CHECKOUT
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

#: (level, logger, line) of each row.
TABLE = [row[:3] for row in lifecycle_rows("docs/topics/logging.rst")]
#: Patterns for the words in capitals.
WORDS = {
    "TOPIC": "orders", "CHANNEL": "mail", "ADDRESS": r"\S+:\d+", "N": r"[\d.]+",
    "VERSION": r"\d\S+", "WHY": "[^;]+", "HINT": r"\w[^\n]{15,}", "MESSAGE": "<Message [^>]+>",
    "failures": "failures?", "attempts": "attempts?",
}
QUICK = Config(default_requeue_delay=0, backoff_multiplier=0.01, max_in_flight=5)


def pattern(line: str) -> str:
    """Turn a line of the table into a pattern of the whole message."""
    return re.sub("|".join(sorted(WORDS, key=len, reverse=True)), lambda found: WORDS[found[0]],
                  re.sub(r"([.()])", r"\\\1", line))


@pytest.fixture
def logged(caplog):
    """Wait until the line that begins so was logged, as often, as the table says."""
    caplog.set_level(logging.INFO, "nsqclient")

    def wait(start: str, count: int = 1):
        rows = [row for row in TABLE if row[2].startswith(start)]
        assert rows, f"the table has no line {start!r}"
        level, name, line = rows[0]

        def was_logged():
            return sum(
                record.levelname == level and record.name == name
                and re.fullmatch(pattern(line), record.getMessage()) is not None
                for record in caplog.records
            ) >= count

        wait_until(was_logged, 10, f"not logged at {level}: {line}; but: {caplog.messages}")

    return wait


def consumer(handler=lambda message: None, config=QUICK, **addresses):
    return Consumer("orders", "mail", handler, config=config, **addresses)


def test_each_event_of_an_undisturbed_consumer_is_logged_once(nsqd_factory, logged):
    with Nsqlookupd() as lookupd:
        nsqd = nsqd_factory(lookupd_tcp_addresses=[lookupd.tcp_address])
        nsqd.create_topic("orders")
        quick = QUICK.replace(lookupd_poll_interval=0.05)
        with consumer(config=quick, lookupd_http_addresses=[lookupd.http_address]):
            logged("TOPIC/CHANNEL: started")
            logged("TOPIC/CHANNEL: nsqlookupd ADDRESS lists")
            logged("ADDRESS: connected to nsqd")
            logged("TOPIC/CHANNEL: consuming from")
    logged("TOPIC/CHANNEL: stopped: while stopping N finished, N requeued unstarted, N abandoned")


def test_failed_and_lost_connections_are_logged(nsqd_factory, logged):
    nsqd = nsqd_factory()
    with consumer(nsqd_tcp_addresses=[nsqd.tcp_address, f"127.0.0.1:{free_port()}"]):
        logged("TOPIC/CHANNEL: cannot consume from")
        logged("TOPIC/CHANNEL: consuming from")
        nsqd.faults.drop_connections()
        logged("TOPIC/CHANNEL: lost ADDRESS")


def test_a_replaced_connection_is_logged(nsqd, logged):
    release = threading.Event()
    with consumer(lambda message: release.wait(20), nsqd_tcp_addresses=[nsqd.tcp_address]) as one:
        nsqd.publish("orders", b"x")
        wait_until(lambda: one.stats().total.received)
        nsqd.faults.deliver_again("orders", "mail")
        logged("TOPIC/CHANNEL: ADDRESS: WHY: the connection is replaced")
        release.set()


def test_a_topic_that_nobody_knows_is_logged_once(logged, caplog):
    """Once for all nsqlookupds, and not while one of them is down."""
    with Nsqlookupd() as one, Nsqlookupd() as two:
        addresses = [one.http_address, two.http_address]
        quick = QUICK.replace(lookupd_poll_interval=0.02)
        with consumer(config=quick, lookupd_http_addresses=addresses):
            logged("TOPIC/CHANNEL: no nsqlookupd lists")
            asked = caplog.text.count("200") + caplog.text.count("404")
            wait_until(lambda: caplog.text.count("404") > asked + 4)
        assert caplog.text.count("no nsqlookupd lists") == 1
        with consumer(config=quick, lookupd_http_addresses=[
            one.http_address, f"127.0.0.1:{free_port()}",
        ]):
            logged("TOPIC/CHANNEL: no answer from nsqlookupd", 2)
        assert caplog.text.count("no nsqlookupd lists") == 1


def test_backoff_and_giving_up_are_logged(nsqd, logged):
    def handler(message):
        if message.body == b"bad" or message.attempts == 1:
            raise ValueError("as asked")

    nsqd.publish("orders", b"good")
    config = QUICK.replace(max_attempts=2)
    with consumer(handler, config, nsqd_tcp_addresses=[nsqd.tcp_address]):
        logged("TOPIC/CHANNEL: handler failed for MESSAGE")
        logged("TOPIC/CHANNEL: backing off")
        logged("TOPIC/CHANNEL: backoff ended")
        nsqd.publish("orders", b"bad")
        logged("TOPIC/CHANNEL: giving up MESSAGE")


def test_a_held_and_released_flow_is_logged(nsqd, logged):
    release = threading.Event()
    config = QUICK.replace(max_queued_bytes=10_000, rdy_share_of_timeout=0)
    with consumer(lambda message: release.wait(30), config, nsqd_tcp_addresses=[nsqd.tcp_address]):
        for _ in range(5):
            nsqd.publish("orders", b"x" * 5000)
        logged("TOPIC/CHANNEL: RDY 0 until workers catch up")
        release.set()
        logged("TOPIC/CHANNEL: half of max_queued_bytes")


def test_a_level_below_max_in_flight_and_its_end_are_logged(nsqd, logged):
    for _ in range(40):
        nsqd.publish("orders", b"x")
    config = QUICK.replace(msg_timeout=1)
    with consumer(
        lambda message: threading.Event().wait(0.2), config, nsqd_tcp_addresses=[nsqd.tcp_address]
    ) as running:
        logged("TOPIC/CHANNEL: N in flight at most instead of")
        wait_until(lambda: running.is_starved() is not None and running.stats().level == 5)
        logged("TOPIC/CHANNEL: max_in_flight applies again")


def test_a_stop_that_abandons_messages_is_a_warning(nsqd, logged):
    over, began = threading.Event(), threading.Event()

    def handler(message):
        began.set()
        over.wait(30)

    nsqd.publish("orders", b"x")
    slow = consumer(handler, nsqd_tcp_addresses=[nsqd.tcp_address]).start()
    assert began.wait(10)
    assert not slow.stop(0.05)
    over.set()
    logged(
        "TOPIC/CHANNEL: stopped: while stopping N finished, N requeued unstarted, N abandoned;"
        " HINT"
    )


def test_a_requeue_is_not_an_error_that_is_logged_above(nsqd_factory, logged, caplog):
    """The line about the backoff is true for handlers that raise Requeue, which logs nothing."""
    def handler(message):
        raise Requeue(0)

    nsqd = nsqd_factory()
    nsqd.publish("orders", b"x")
    with consumer(handler, nsqd_tcp_addresses=[nsqd.tcp_address]):
        logged("TOPIC/CHANNEL: backing off for")
    assert "above" not in caplog.text and "after 1 failure:" in caplog.text


def test_failures_of_a_producer_are_logged(nsqd_factory, logged):
    nsqd = nsqd_factory()
    with Producer([f"127.0.0.1:{free_port()}"]) as producer:
        with pytest.raises(PublishError):
            producer.publish("orders", b"x", timeout=0.3)
    logged("cannot publish to")
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish("orders", b"x")
        nsqd.faults.drop_connections()
        logged("lost a connection")
    with Producer(lookupd_http_addresses=[f"127.0.0.1:{free_port()}"]) as producer:
        with pytest.raises(PublishError):
            producer.publish("orders", b"x", timeout=0.3)
    logged("no answer from nsqlookupd")


def test_every_row_has_its_test():
    """A row that is added to the table needs a situation above."""
    source = (CHECKOUT / "tests" / "integration" / "test_life_log.py").read_text()
    starts = re.findall(r'logged\("([^"]+)"', source)
    for level, _, line in TABLE:
        exact = [start for start in starts if line.startswith(start)]
        assert exact, f"{level} {line}"
    assert len(TABLE) == 23
