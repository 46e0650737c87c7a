"""A consumer in bad times: nsqds that stop, die and come back, and max_in_flight that changes."""


import pytest

from nsqclient import Config, Consumer
from tests.integration.test_consumer import publish
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

#: A restart counts as an attempt, so nothing may be given up here.
PATIENT = Config(max_attempts=0, max_backoff_duration=0)


@pytest.fixture
def cluster(server_factory, lookupd_factory):
    lookupds = [lookupd_factory() for _ in range(2)]
    addresses = [lookupd.tcp_address for lookupd in lookupds]
    servers = [server_factory(lookupd_tcp_addresses=addresses, msg_timeout=5.0) for _ in range(3)]
    for server in servers:
        server.create("events", "c")
    return lookupds, servers


def discover(lookupds, bodies):
    return Consumer(
        "events", "c", lambda message: bodies.add(message.body), max_in_flight=200, workers=2,
        lookupd_http_addresses=[lookupd.http_address for lookupd in lookupds], config=PATIENT,
    )


def addresses(consumer):
    return {connection.address for connection in consumer.stats().connections}


@pytest.mark.parametrize("count, end", [(1, "kill"), (3, "stop")], ids=["one", "all"])
def test_nsqds_that_end_and_come_back_are_consumed_again(cluster, count, end):
    (lookupds, servers), bodies = cluster, set()
    gone, others = servers[:count], servers[count:]

    def fill(servers):
        for server in servers:
            publish(server, *[b"%b-%d" % (server.tcp_address.encode(), n) for n in range(500)])

    with discover(lookupds, bodies) as consumer:
        wait_until(lambda: len(addresses(consumer)) == 3)
        fill(others)
        for server in gone:
            getattr(server, end)()
        wait_until(lambda: len(addresses(consumer)) == len(others))
        for server in gone:
            server.start()
        fill(gone)
        wait_until(lambda: len(bodies) == 1500, timeout=30)
