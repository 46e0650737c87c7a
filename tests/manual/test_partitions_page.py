"""The page on partitioned NSQ: its consumer, its producer, and the lines of its trace."""

import logging
import re
from typing import Any

import pytest

from nsqclient import Message
from nsqclient.devserver import PartitionedCluster
from nsqclient.partitioned import Consumer, Producer
from tests.support.docs.pages import named, text_of

LISTED = "10.0.0.1:4161"


def test_the_cluster_of_the_page_starts() -> None:
    scope = {"Consumer": Consumer, "handle": lambda message: None}
    exec(compile(text_of(named("partitioned cluster")), "the page", "exec"), scope)
    assert scope["consumer"].topic == "orders"


def test_the_consumer_producer_and_trace_of_the_page_work(caplog: pytest.LogCaptureFixture) -> None:
    handled: list[Message] = []
    with PartitionedCluster() as cluster:
        cluster.create_topic("orders", 2, ordered=True, extended=True, channels=["billing"])
        lookupds = cluster.lookupd_http_addresses
        call = text_of(named("partitions consumer")).replace(f'["{LISTED}"]', repr(lookupds))
        assert LISTED not in call
        page: dict[str, Any] = {"print": handled.append}
        exec(call, page)
        consumer = page["consumer"]
        with Producer(lookupd_http_addresses=lookupds) as producer, consumer:
            producer.set_tracing(True, "orders")
            consumer.set_tracing(True)
            with caplog.at_level(logging.INFO, "nsqclient.trace"):
                _, publish = text_of(named("partitions producer")).split(
                    f'producer = Producer(lookupd_http_addresses=["{LISTED}"])\n')
                exec(publish, {"producer": producer})
                cluster.wait_until_empty("orders", "billing")
    [message] = handled
    assert message.trace_id == 77 and message.headers["source"] == "shop"
    lines = [record.getMessage() for record in caplog.records if record.name == "nsqclient.trace"]
    shown = text_of(named("trace lines")).splitlines()
    assert sorted(map(words_of, lines)) == sorted(map(words_of, shown))


@pytest.mark.parametrize(("block", "calls"), [
    (named("partitions chosen"), 1), (named("partitions replay"), 1),
    (named("partitions filters"), 2),
])
def test_the_consumers_of_the_page_are_valid(block: Any, calls: int) -> None:
    made: list[Consumer] = []

    def make(*arguments: Any, **options: Any) -> None:
        made.append(Consumer(*arguments, **options))

    exec(text_of(block), {"Consumer": make, "handle": lambda message: None})
    assert len(made) == calls


def words_of(line: str) -> list[str]:
    return re.sub(r"=\S+", "", line).split()
