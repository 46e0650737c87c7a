"""Addresses and names that do not answer delay no healthy nsqd."""

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient.devserver import Nsqd
from nsqclient.runtime.dialing import MAX_DIALS
from tests.support.faults.silent_addresses import hanging_lookups, listing, silent_addresses
from tests.support.processes import start_threads
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(120)]

#: Seconds; a healthy nsqd is connected within 2 s.
SOON = 60.0


def test_a_consumer_reaches_a_new_nsqd_behind_many_silent_ones_of_one_nsqlookupd():
    """Each is dialed once before any is dialed again, 16 at a time."""
    with Nsqd() as nsqd, silent_addresses(5 * MAX_DIALS) as silent:
        with listing([*silent, nsqd.tcp_address]) as lookupd:
            consumer = Consumer(
                "t", "c", lambda message: None, lookupd_http_addresses=[lookupd.address],
                config=Config(dial_timeout=0.5),
            )
            with consumer:
                wait_until(consumer.healthy, SOON)


HANGING = [f"host{number}.invalid:4150" for number in range(20)]


def test_names_whose_lookup_hangs_keep_a_producer_from_no_other_nsqd():
    with Nsqd() as nsqd, hanging_lookups():
        with Producer([*HANGING, nsqd.tcp_address]) as producer:
            producer.publish("t", b"x", timeout=SOON)


def test_a_publish_reaches_an_nsqd_whose_lookup_takes_longer_than_dial_timeout(caplog):
    with Nsqd() as nsqd, hanging_lookups() as release:
        _, _, port = nsqd.tcp_address.rpartition(":")
        config = Config(dial_timeout=0.1)
        with Producer([f"slow.invalid:{port}"], config=config) as producer:
            [publish] = start_threads(1, lambda: producer.publish("t", b"x", timeout=SOON))
            wait_until(lambda: "its lookup has no result after 0.1 s" in caplog.text)
            release.set()
            publish.join()
            assert producer.stats().published == 1
