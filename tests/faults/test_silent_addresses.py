"""Thousands of addresses that do not answer, named by one nsqlookupd, delay no healthy nsqd."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient.devserver import Nsqd
from nsqclient.runtime.dialing import MAX_DIALS
from tests.support.faults.silent_addresses import hanging_lookups, listing, silent_addresses
from tests.support.processes import start_threads
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(120)]

SILENT = 3000
#: Dialing all of them takes at least three minutes; a healthy nsqd is connected within 2 s.
SOON = 60.0
MOST_THREADS = 40


def names_of_dialers() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("nsq-dialer-")]


class Threads:
    """The highest number of threads that was seen."""

    def __init__(self) -> None:
        self._before = threading.active_count()
        self._most = 0

    def wait_until(self, condition: Callable[[], object]) -> None:
        """As the function, and count them with each look."""
        def look() -> object:
            self._most = max(self._most, threading.active_count() - self._before)
            return condition()

        wait_until(look, SOON)

    def check(self) -> None:
        assert len(names_of_dialers()) <= MAX_DIALS and self._most < MOST_THREADS, self._most


@contextlib.contextmanager
def two_nsqlookupds(accepts: bool) -> Iterator[tuple[list[str], threading.Event]]:
    """An nsqlookupd with silent addresses, and one with a healthy nsqd, which answers when set."""
    with (
        Nsqd() as nsqd, silent_addresses(SILENT, accepts=accepts) as silent,
        listing(silent) as bad, listing([nsqd.tcp_address]) as good,
    ):
        good.release.clear()
        yield [bad.address, good.address], good.release


ACCEPTS = pytest.mark.parametrize("accepts", [False, True], ids=["no answer", "no handshake"])


@ACCEPTS
def test_a_consumer_connects_to_the_nsqd_that_another_nsqlookupd_names(accepts):
    """Even where dials of the silent ones hang already; it gets its RDY, and threads stay few."""
    with two_nsqlookupds(accepts) as (lookupds, release):
        threads, errors = Threads(), []
        consumer = Consumer(
            "t", "c", lambda message: None, on_error=errors.append,
            config=Config(max_in_flight=100, rdy_share_of_timeout=0),  # all RDY at once
            lookupd_http_addresses=lookupds,
        ).start()
        try:
            threads.wait_until(lambda: len(names_of_dialers()) >= MAX_DIALS // 2)
            release.set()
            threads.wait_until(consumer.healthy)
            threads.wait_until(lambda: consumer.stats().connections[0].rdy == 100)
            threads.wait_until(lambda: len(errors) > MAX_DIALS)
            threads.check()
        finally:  # the dials under way are broken off
            report = consumer.stop(10)
        assert report and report.threads == ()


@ACCEPTS
def test_a_producer_connects_to_the_nsqd_that_another_nsqlookupd_names(accepts):
    """A publish that waits meanwhile succeeds, and threads stay few."""
    with two_nsqlookupds(accepts) as (lookupds, release):
        threads, tried = Threads(), set()
        producer = Producer(lookupd_http_addresses=lookupds)
        [publish] = start_threads(1, lambda: producer.publish("t", b"x", timeout=SOON))
        try:
            threads.wait_until(lambda: len(names_of_dialers()) >= MAX_DIALS // 2)
            release.set()
            threads.wait_until(lambda: not publish.is_alive())
            assert producer.stats().published == 1
            threads.wait_until(  # more than the first ones were dialed meanwhile
                lambda: producer.publish("t", b"y") is None
                and tried.update(names_of_dialers()) is None and len(tried) > MAX_DIALS)
            threads.check()
        finally:
            is_clean = producer.close(10)
            publish.join()
        assert is_clean


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


def test_names_whose_lookup_hangs_keep_a_consumer_from_no_other_nsqd():
    with Nsqd() as nsqd, hanging_lookups():
        with Consumer("t", "c", print, nsqd_tcp_addresses=[*HANGING, nsqd.tcp_address]) as consumer:
            wait_until(consumer.healthy, SOON)


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
