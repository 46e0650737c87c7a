"""Connections that stop, stall, slow down, vanish or end by half: the guarantees hold."""

import contextlib
import time
from typing import NamedTuple

import pytest

from nsqclient import Consumer, Producer, PublishRejectedError, PublishUnknownError
from nsqclient.producer.nodes import HANDSHAKE_TIMEOUT
from tests.faults.dialogues import QUICK, RECOVERY, SCAN, Seen, drain, make_channel
from tests.support.faults.proxy import CLIENT, SERVER, FaultProxy
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow]

#: A publish during a fault has so long, in seconds, and returns this much later at most, also on
#: a busy machine: see docs/reliability.rst.
TIMEOUT, GRACE = 1.0, 1.0
#: Seconds to recover if a client has dialed into a black hole: its handshake has to time out first.
REDIAL = HANDSHAKE_TIMEOUT + RECOVERY


class Stall(NamedTuple):
    """How a fault begins, and whether publishing and consuming go on meanwhile."""

    begin: object
    works: bool = False


STALLS = {
    "stop": Stall(FaultProxy.stop),
    "deaf": Stall(FaultProxy.set_deaf),
    "black hole": Stall(FaultProxy.set_black_hole),
    "reset": Stall(FaultProxy.reset, True),
    "drop": Stall(FaultProxy.drop, True),
    "half-closed by the client": Stall(lambda proxy: proxy.half_close(CLIENT)),
    "half-closed by the server": Stall(lambda proxy: proxy.half_close(SERVER), True),
    "slow": Stall(lambda proxy: proxy.set_slow(100, 0.01), True),
}


@pytest.fixture
def proxy(server):
    """A proxy before a server with the channel ``events/c``."""
    make_channel(server, "events")
    with FaultProxy(server.tcp_address) as running:
        yield running


@pytest.mark.parametrize("name", STALLS)
def test_clients_keep_their_deadlines_and_recover(server, proxy, name):
    """A publish during the fault ends in time; after it all works again, and nothing is left."""
    stall, seen = STALLS[name], Seen()
    config = QUICK.replace(msg_timeout=1)
    with Producer([proxy.address], config=config) as producer, Consumer(
        "events", "c", seen, nsqd_tcp_addresses=[proxy.address], max_in_flight=10, config=config,
    ):
        producer.publish("events", b"before", timeout=RECOVERY)
        wait_until(lambda: b"before" in seen.bodies, RECOVERY)
        stall.begin(proxy)
        began = time.monotonic()
        ignored = () if stall.works else (PublishRejectedError, PublishUnknownError)
        with contextlib.suppress(*ignored):
            producer.publish("events", b"during", timeout=RECOVERY if stall.works else TIMEOUT)
            assert stall.works or name.startswith("half"), "nothing could have been stored"
        assert time.monotonic() - began < (RECOVERY if stall.works else TIMEOUT) + GRACE
        proxy.heal()
        recovery = REDIAL if name == "black hole" else RECOVERY
        producer.publish("events", b"after", timeout=recovery)
        wait_until(lambda: b"after" in seen.bodies, recovery)
        if stall.works:
            wait_until(lambda: b"during" in seen.bodies, RECOVERY + SCAN)
    drain(server, "events")


@pytest.mark.parametrize("name", ["deaf", "black hole"])
def test_stop_and_close_end_while_nobody_answers(server, proxy, name):
    config = QUICK.replace(heartbeat_interval=30)
    producer = Producer([proxy.address], config=config)
    producer.publish_async("events", b"x", timeout=RECOVERY).result(RECOVERY)
    seen = Seen()
    consumer = Consumer(
        "events", "c", seen, nsqd_tcp_addresses=[proxy.address], config=config
    ).start()
    wait_until(lambda: seen.bodies)
    STALLS[name].begin(proxy)
    future = producer.publish_async("events", b"y", timeout=30)
    for end in (consumer.stop, producer.close):
        began = time.monotonic()
        end(1)
        assert time.monotonic() - began < 15
    assert isinstance(future.exception(0), PublishUnknownError)
    proxy.reset()
