"""BulkConsumer: messages in bulk, their responses, and the proof of a stop."""

import threading

import pytest

from nsqclient import Config
from nsqclient.consumer.bulk import BulkConsumer, BulkHandler
from nsqclient.devserver import Nsqd, PartitionedCluster
from nsqclient.devserver.protocol.commands import Rdy
from nsqclient.partitioned.bulk import BulkConsumer as PartitionedBulkConsumer
from nsqclient.partitioned.producer import Producer
from tests.support.waiting import wait_until

CONFIG = Config(max_in_flight=100)


class Handler(BulkHandler):
    """Keeps what arrives; ``answer`` is called with each batch."""

    def __init__(self, answer=lambda sub, batch: None):
        self.answer = answer
        self.batches, self.refused, self.lost, self.errors = [], [], [], []
        self.lock = threading.Lock()

    def on_batch(self, sub, batch):
        with self.lock:
            self.batches.append((sub, batch))
        self.answer(sub, batch)

    def on_fin_refused(self, sub, message_id):
        self.refused.append(message_id)

    def on_lost(self, sub, error):
        self.lost.append(sub)

    def on_error(self, error):
        self.errors.append(error)

    @property
    def bodies(self):
        with self.lock:
            return [body for _, batch in self.batches for *_, body in batch]


def ids(batch):
    return [message_id for _, _, message_id, _ in batch]


def test_messages_are_finished_in_bulk_and_a_stop_proves_it(nsqd):
    handler = Handler(lambda sub, batch: sub.finish_ids(ids(batch)))
    consumer = BulkConsumer("events", "c", handler, CONFIG, nsqds=[nsqd.tcp_address], lanes=2)
    consumer.start()
    wait_until(lambda: len(consumer.connections) == 2)
    nsqd.publish_many("events", [b"%d" % n for n in range(500)])
    wait_until(lambda: len(handler.bodies) == 500)
    assert consumer.stop() == [] and consumer.stop() == []
    nsqd.wait_until_empty("events", "c")
    assert all(sub.is_proven and sub.is_lost for sub in handler.lost) and len(handler.lost) == 2


def test_what_arrived_is_settled_before_the_end_and_the_rest_comes_again(nsqd):
    handler = Handler()
    consumer = BulkConsumer("events", "c", handler, CONFIG, nsqds=[nsqd.tcp_address])
    consumer.start()
    wait_until(lambda: consumer.connections)
    nsqd.publish_many("events", [b"%d" % n for n in range(10)])
    wait_until(lambda: len(handler.bodies) == 10)
    assert [len(sub) for sub in consumer.connections] == [10]

    def settle(deadline):
        every = [(sub, one) for sub, batch in handler.batches for one in batch]
        for number, (sub, message) in enumerate(every):
            (sub.finish_ids if number % 2 else sub.requeue_ids)([message[2]])

    consumer.stop(settle=settle)
    wait_until(lambda: [one.state for one in nsqd.messages("events", "c")] == ["queued"] * 5)


def test_paused_and_lost_connections(nsqd):
    handler = Handler(lambda sub, batch: sub.finish_ids(ids(batch)))
    consumer = BulkConsumer("events", "c", handler, CONFIG, nsqds=[nsqd.tcp_address])
    consumer.start()
    wait_until(lambda: consumer.connections)
    consumer.set_paused(True)
    wait_until(lambda: nsqd.commands[-1].event == Rdy(0))
    nsqd.publish("events", b"later")
    nsqd.faults.drop_connections()
    wait_until(lambda: handler.lost and consumer.connections)
    assert not handler.bodies
    consumer.set_paused(False)
    wait_until(lambda: handler.bodies == [b"later"])
    consumer.stop()


def test_a_refused_fin_is_reported():
    handler = Handler()
    with Nsqd(msg_timeout=0.2) as nsqd:
        consumer = BulkConsumer("events", "c", handler, CONFIG, nsqds=[nsqd.tcp_address])
        consumer.start()
        wait_until(lambda: consumer.connections)
        nsqd.publish("events", b"late")
        wait_until(lambda: len(handler.batches) >= 2)
        sub, first = handler.batches[0]
        consumer.set_paused(True)
        wait_until(lambda: nsqd.messages("events", "c")[0].state == "queued")
        sub.finish_ids(ids(first))
        wait_until(lambda: handler.refused == ids(first))
        consumer.stop()


@pytest.mark.parametrize("ordered", [False, True])
def test_partitions_are_consumed_in_bulk(ordered):
    handler = Handler(lambda sub, batch: sub.finish_ids(ids(batch)))
    with PartitionedCluster(2, 1) as cluster:
        cluster.create_topic("t", 3, ordered=ordered, channels=["c"])
        lookupds = cluster.lookupd_http_addresses
        consumer = PartitionedBulkConsumer("t", "c", handler, CONFIG, lookupds=lookupds)
        consumer.start()
        wait_until(lambda: len(consumer.connections) == 3)
        assert {sub.source for sub in consumer.connections} == {
            "partition-0", "partition-1", "partition-2"}
        with Producer(lookupd_http_addresses=lookupds) as producer:
            for number in range(30):
                producer.publish("t", b"%d" % number, key=str(number))
        wait_until(lambda: len(handler.bodies) == 30)
        consumer.stop()
        cluster.wait_until_empty("t", "c")
    assert all(len(ids(batch)[0]) == 16 for _, batch in handler.batches)
