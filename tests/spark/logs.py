"""Logs of shards that a test writes by itself: numbered messages, without an nsqd."""

import pickle
from typing import Any

from nsqclient import Producer
from nsqclient.spark.known_ids import Claim
from nsqclient.spark.segment import Rows, check_segment, read_rows
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.shards.shard_log import ShardLog


def message_id(number: int) -> bytes:
    return b"%016d" % number


def put(log: ShardLog, nsqd: str, numbers: Any, conn: str = "c-0", window: int = 2500,
        ) -> list[int]:
    """Store messages as the writer thread of an ingest does; return the stored messages."""
    numbers, copies = list(numbers), []
    while True:
        claims = []
        parts = []
        if numbers:
            claims = [Claim(nsqd, conn, window, [message_id(number) for number in numbers])]
            parts = [(nsqd, Rows.of([(n, 1, message_id(n), b"%d" % n) for n in numbers]))]
        known = log.append(parts, claims, copies)
        if known is None:
            return numbers
        copies += [claims[0]._replace(ids=[claims[0].ids[n] for n in known[0]])]
        numbers = [number for n, number in enumerate(numbers) if n not in known[0]]


def write_log(
    store: Any, nsqd: str, *sizes: int, first: int = 0, topic: str = "t", channel: str = "c",
    log: ShardLog | None = None,
) -> ShardLog:
    """Write segments of these sizes with consecutive numbers; return their log."""
    if log is None:
        log = ShardLog(store, ShardKeys(topic, channel, nsqd))
        log.open()
    for size in sizes:
        assert len(put(log, nsqd, range(first, first + size))) == size
        first += size
    return log


def rows_of(store: Any, key: str) -> Any:
    return read_rows(check_segment(store.url, key, store.read(key)))


def numbers_of(store: Any, nsqd: str, topic: str = "t", channel: str = "c") -> list[int]:
    keys = ShardKeys(topic, channel, nsqd)
    return [int(body) for found in store.list_objects(keys.of("segments"))
            for body in rows_of(store, found.key).column("body").to_pylist()]


def publish(server: Any, count: int, first: int = 0, size: int = 0, topic: str = "t") -> None:
    with Producer([server.tcp_address]) as producer:
        for start in range(first, first + count, 10_000):
            producer.publish_many(topic, [
                b"%0*d" % (size, number)
                for number in range(start, min(start + 10_000, first + count))])


def counts(server: Any) -> tuple[int, int]:
    stats = server.stats("t", "c")
    return stats["depth"], stats["in_flight_count"]


def bodies(reader: Any, start: Any, end: Any) -> list[int]:
    """The bodies that executors read of a batch. The reader is pickled, as by Spark."""
    far = pickle.loads(pickle.dumps(reader))
    return [int(body) for partition in reader.partitions(start, end)
            for batch in far.read(pickle.loads(pickle.dumps(partition)))
            for body in batch.column("body").to_pylist()]
