"""The Producer in bad times: nsqds that die, stop and come back, connections cut and deaf."""

import time

import pytest

from nsqclient import NSQError, Producer, PublishRejectedError, PublishUnknownError
from tests.support.faults.proxy import FaultProxy
from tests.support.processes import start_threads
from tests.support.waiting import wait_until

#: Seconds after its deadline at which a publish may end on a busy machine.
LATEST = 5.0
#: The outcomes that a publish may have, apart from a return.
BAD_OUTCOMES = (PublishUnknownError, PublishRejectedError)


@pytest.fixture
def servers(server_factory):
    return [server_factory() for _ in range(2)]


def test_a_sigkill_with_a_thousand_outstanding_leaves_no_future_without_an_outcome(server):
    """1,000 async publishes and 8 blocking threads when nsqd is killed: all end in time.

    The same producer publishes again after the restart.
    """
    timeout = 2.0
    with FaultProxy(server.tcp_address) as proxy, Producer([proxy.address]) as producer:
        producer.publish("events", b"before")
        proxy.set_deaf()
        futures, errors, overruns = [], [], []

        def publish_later():
            limit = time.monotonic() + timeout
            futures.append(producer.publish_async("events", b"x", timeout=timeout))
            futures[-1].add_done_callback(
                lambda future: overruns.append(time.monotonic() - limit))

        for _ in range(1000):
            publish_later()

        def publish():
            limit = time.monotonic() + timeout
            try:
                producer.publish("events", b"x", timeout=timeout)
            except NSQError as exc:
                errors.append(exc)
            overruns.append(time.monotonic() - limit)

        threads = start_threads(8, publish)
        wait_until(lambda: producer.stats().pending == 1008)
        server.kill()
        proxy.reset()
        proxy.set_deaf(False)
        outcomes = [future.exception(timeout + 5) for future in futures]
        for thread in threads:
            thread.join()
        wait_until(lambda: len(overruns) == 1008)
        assert max(overruns) < LATEST
        assert all(isinstance(error, BAD_OUTCOMES) for error in [*outcomes, *errors])
        server.start()
        producer.publish("events", b"after", timeout=10)
        assert producer.stats().pending == 0


def test_a_silent_nsqd_is_skipped(servers):
    with FaultProxy(servers[0].tcp_address) as proxy:
        with Producer([proxy.address, servers[1].tcp_address]) as producer:
            wait_until(lambda: producer.ping() or len(producer.stats().connected) == 2)
            proxy.set_deaf()
            for _ in range(4):
                producer.publish("events", b"x", timeout=30)
                producer.publish_many("events", [b"x"] * 3, timeout=30)
                producer.publish_async("events", b"x", timeout=30).result(60)
            assert producer.stats().retried
            wait_until(lambda: len(producer.stats().connected) == 1)
            proxy.set_deaf(False)
            wait_until(lambda: len(producer.stats().connected) == 2)
