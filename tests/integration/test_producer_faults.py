"""The Producer in bad times: nsqds that die, stop and come back, connections cut and deaf."""

import contextlib
import itertools
import threading
import time

import pytest

from nsqclient import NSQError, Producer, PublishRejectedError, PublishUnknownError
from tests.support.faults.proxy import FaultProxy
from tests.support.processes import start_threads
from tests.support.waiting import wait_until


#: Seconds between two publishes of a thread: the faults are tested, not the speed.
PAUSE = 0.002
#: Seconds after its deadline at which a publish may end on a busy machine.
LATEST = 5.0
#: The outcomes that a publish may have, apart from a return.
BAD_OUTCOMES = (PublishUnknownError, PublishRejectedError)


class Log:
    """What each publish ended with, and how long after its deadline."""

    def __init__(self):
        self.outcomes = []

    def note(self, publish, timeout):
        until = time.monotonic() + timeout
        error = None
        try:
            publish()
        except NSQError as exc:
            error = exc
        self.outcomes.append((error, time.monotonic() - until))

    @property
    def failures(self):
        return [error for error, _ in self.outcomes if error is not None]

    def check(self):
        """Every call ended in time with one of the three outcomes."""
        assert max(overrun for _, overrun in self.outcomes) < LATEST
        assert all(isinstance(error, BAD_OUTCOMES) for error in self.failures)


@contextlib.contextmanager
def load(producer, log, threads=4, timeout=5.0):
    """Publish from some threads, in every way there is, while the block runs."""
    stop = threading.Event()
    ways = itertools.cycle([
        lambda: producer.publish("events", b"x", timeout=timeout),
        lambda: producer.publish_many("events", [b"x"] * 3, timeout=timeout),
        lambda: producer.publish_async("events", b"x", timeout=timeout).result(timeout + 5),
    ])

    def publish():
        while not stop.wait(PAUSE):
            log.note(next(ways), timeout)

    running = start_threads(threads, publish)
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join()


@pytest.fixture
def servers(server_factory):
    return [server_factory() for _ in range(2)]


def test_a_sigkill_with_a_thousand_outstanding_leaves_no_future_without_an_outcome(server):
    """1,000 async publishes and 8 blocking threads when nsqd is killed: all end in time.

    The same producer publishes again after the restart.
    """
    timeout = 2.0
    log = Log()
    with FaultProxy(server.tcp_address) as proxy, Producer([proxy.address]) as producer:
        producer.publish("events", b"before")
        proxy.set_deaf()
        futures, overruns = [], []

        def publish_later():
            limit = time.monotonic() + timeout
            futures.append(producer.publish_async("events", b"x", timeout=timeout))
            futures[-1].add_done_callback(
                lambda future: overruns.append(time.monotonic() - limit))

        for _ in range(1000):
            publish_later()

        def publish():
            log.note(lambda: producer.publish("events", b"x", timeout=timeout), timeout)

        threads = start_threads(8, publish)
        wait_until(lambda: producer.stats().pending == 1008)
        server.kill()
        proxy.reset()
        proxy.set_deaf(False)
        errors = [future.exception(timeout + 5) for future in futures]
        wait_until(lambda: len(overruns) == 1000)
        assert max(overruns) < LATEST
        for thread in threads:
            thread.join()
        log.check()
        assert len(log.outcomes) == 8 and all(isinstance(error, BAD_OUTCOMES) for error in errors)
        server.start()
        producer.publish("events", b"after", timeout=10)
        assert producer.stats().pending == 0


@pytest.mark.parametrize("threads", [1, 6])
def test_a_silent_nsqd_is_skipped(servers, threads):
    log = Log()
    with FaultProxy(servers[0].tcp_address) as proxy:
        with Producer([proxy.address, servers[1].tcp_address]) as producer:
            wait_until(lambda: producer.ping() or len(producer.stats().connected) == 2)
            proxy.set_deaf()
            with load(producer, log, threads=threads, timeout=8.0):
                wait_until(lambda: len(producer.stats().connected) == 1)
                seen = len(log.outcomes)
                wait_until(lambda: len(log.outcomes) > seen + 100)
                proxy.set_deaf(False)
                wait_until(lambda: len(producer.stats().connected) == 2)
            assert producer.stats().retried
    assert not log.failures
