"""Thousands of addresses that do not answer, named by one nsqlookupd, delay no healthy nsqd."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient.devserver import Nsqd
from nsqclient.runtime.dialing import MAX_DIALS
from tests.support.faults.silent_addresses import listing, silent_addresses
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(120)]

SILENT = 3000
#: Dialing all of them takes at least three minutes; a healthy nsqd is connected within 2 s.
SOON = 60.0
MOST_THREADS = 40


def names_of_dialers() -> list[str]:
    """The names of the threads that dial now; each has the address."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("nsq-dialer-")]


class Threads:
    """The most threads that were alive at once, as far as anybody looked."""

    def __init__(self) -> None:
        self._before = threading.active_count()
        self.most = 0

    def look(self) -> bool:
        """Count them; true, for a chain of conditions."""
        self.most = max(self.most, threading.active_count() - self._before)
        return True


@contextlib.contextmanager
def two_nsqlookupds(accepts: bool) -> Iterator[tuple]:
    """An nsqlookupd with silent addresses, and another with one healthy nsqd."""
    with (
        Nsqd() as nsqd, silent_addresses(SILENT, accepts=accepts) as silent,
        listing(silent) as bad, listing([nsqd.tcp_address]) as good,
    ):
        yield nsqd, bad, good


ACCEPTS = pytest.mark.parametrize("accepts", [False, True], ids=["no answer", "no handshake"])


@ACCEPTS
def test_a_consumer_connects_to_the_nsqd_that_another_nsqlookupd_names(accepts):
    """Even where dials of the silent ones hang already; it gets its RDY, and threads stay few."""
    with two_nsqlookupds(accepts) as (nsqd, bad, good):
        good.release.clear()
        threads, errors = Threads(), []
        consumer = Consumer(
            "t", "c", lambda message: None, on_error=errors.append,
            config=Config(max_in_flight=100, rdy_share_of_timeout=0),  # all RDY at once
            lookupd_http_addresses=[bad.address, good.address],
        ).start()
        try:
            wait_until(lambda: threads.look() and len(names_of_dialers()) >= MAX_DIALS // 2, SOON)
            began = time.monotonic()
            good.release.set()
            wait_until(lambda: threads.look() and consumer.healthy(), SOON)
            print("connected after", time.monotonic() - began)
            wait_until(
                lambda: threads.look() and consumer.stats().connections[0].rdy == 100, SOON
            )
            print("all RDY after", time.monotonic() - began)
            wait_until(lambda: threads.look() and len(errors) > MAX_DIALS, SOON)
            print("threads", threads.most)
            assert len(names_of_dialers()) <= MAX_DIALS and threads.most < MOST_THREADS
        finally:  # the dials under way are broken off
            report = consumer.stop(10)
        assert report and report.threads == ()


@ACCEPTS
def test_a_producer_connects_to_the_nsqd_that_another_nsqlookupd_names(accepts):
    """A publish that waits meanwhile succeeds, and threads stay few."""
    with two_nsqlookupds(accepts) as (nsqd, bad, good):
        good.release.clear()
        threads = Threads()
        producer = Producer(lookupd_http_addresses=[bad.address, good.address])
        publish = threading.Thread(target=lambda: producer.publish("t", b"x", timeout=SOON))
        publish.start()
        try:
            wait_until(lambda: threads.look() and len(names_of_dialers()) >= MAX_DIALS // 2, SOON)
            began = time.monotonic()
            good.release.set()
            wait_until(lambda: threads.look() and not publish.is_alive(), SOON)
            print("published after", time.monotonic() - began)
            assert producer.stats().published == 1
            tried = set()
            wait_until(  # more than the first ones were dialed meanwhile
                lambda: threads.look() and producer.publish("t", b"y") is None
                and tried.update(names_of_dialers()) is None and len(tried) > MAX_DIALS, SOON,
            )
            print("threads", threads.most)
            assert len(names_of_dialers()) <= MAX_DIALS and threads.most < MOST_THREADS
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
