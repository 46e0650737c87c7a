"""The data path of a real nsqd, given to the embedded one."""

import pytest

from nsqclient.devserver import Nsqd
from nsqclient.devserver.persistence import DataPathError
from tests.support.servers.raw_client import RawClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real


def publish(server, count):
    for _ in range(count):
        server.post("/pub", b"x" * 100, topic="t")


def test_messages_of_a_real_nsqd_are_not_ignored(real_nsqd):
    """The embedded nsqd does not start, says why, and leaves the files as they are."""
    real = real_nsqd()
    publish(real, 3)
    real.stop()
    before = sorted((path.name, path.read_bytes()) for path in real.data_path.iterdir())
    with pytest.raises(DataPathError, match=r"1 disk queue of a real nsqd \(t\)"):
        Nsqd(data_path=str(real.data_path)).start()
    after = sorted((path.name, path.read_bytes()) for path in real.data_path.iterdir())
    assert after == before
    real.start()
    assert real.stats("t")["depth"] == 3


def test_a_killed_nsqds_messages_are_found_too(real_nsqd):
    """Those on disk, although its notes do not count them."""
    real = real_nsqd(mem_queue_size=1)
    publish(real, 5)
    real.kill()
    with pytest.raises(DataPathError, match="disk queue"):
        Nsqd(data_path=str(real.data_path)).start()


def test_topics_of_a_real_nsqd_without_messages_are_taken_over(real_nsqd):
    real = real_nsqd(mem_queue_size=0)
    publish(real, 3)
    with RawClient(real.tcp_address) as consumer:
        consumer.subscribe("t", "c")
        consumer.send(b"RDY 3\n")
        for _ in range(3):
            consumer.send(b"FIN %b\n" % consumer.read_message()[0])
        wait_until(lambda: real.stats("t", "c")["in_flight_count"] == 0)
    real.stop()
    assert list(real.data_path.glob("*.diskqueue.*"))
    with Nsqd(data_path=str(real.data_path)) as nsqd:
        assert nsqd.registrations() == [("t", "c")]
