"""The programs of the page on batch jobs end by themselves, with everything done."""

import csv
import json

import pytest

from tests.manual.conftest import Cluster
from tests.support.docs.pages import Block, named, text_of
from tests.support.docs.terminal import Terminal


@pytest.fixture
def orders(cluster: Cluster) -> Cluster:
    cluster.create_topic("orders")
    for channel in ("export", "database", "rows"):
        cluster.nsqd.create_channel("orders", channel)
    cluster.nsqd.publish_many("orders", [json.dumps({"total": n}).encode() for n in range(700)])
    return cluster


def run(terminal: Terminal, block: list[Block]) -> str:
    (terminal.folder / "job.py").write_text(terminal.here(text_of(block)))
    return terminal.run("python job.py")


def test_the_loop_writes_every_order(orders: Cluster, terminal: Terminal) -> None:
    run(terminal, named("batch job loop"))
    rows = list(csv.reader((terminal.folder / "orders.csv").read_text().splitlines()))
    assert sorted(int(total) for _, total in rows) == list(range(700))
    assert all(len(message_id) == 16 for message_id, _ in rows)
    assert orders.nsqd.messages("orders", "export") == []


@pytest.mark.parametrize("block, channel, end", [
    (named("batch job handler"), "database", ["700 stored, 0 to be tried again later"]),
    (named("batch job with is_starved"), "rows", []),
])
def test_every_batch_is_stored(
    orders: Cluster, terminal: Terminal, block: list[Block], channel: str, end: list[str]
) -> None:
    printed = run(terminal, block).splitlines()
    stored = printed[:len(printed) - len(end)]
    assert printed[len(stored):] == end and sum(int(line.split()[0]) for line in stored) == 700
    assert orders.nsqd.messages("orders", channel) == []
