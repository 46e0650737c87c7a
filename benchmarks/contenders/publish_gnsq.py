"""gnsq's Producer: one greenlet, many greenlets, many messages at once, results later."""

from __future__ import annotations

import time
from importlib.metadata import version

import gevent
import gnsq
from report import PublishTask, read_publish_task, report, skip

BATCH = 1000
GREENLETS = 16


def sync(producer: gnsq.Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish one message after the other."""
    for _ in range(count):
        producer.publish(task.topic, body)


def sync_greenlets(producer: gnsq.Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish from many greenlets over one producer."""
    gevent.joinall(
        [
            gevent.spawn(sync, producer, task, body, count // GREENLETS)
            for _ in range(GREENLETS)
        ],
        raise_error=True,
    )


def multi(producer: gnsq.Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish a thousand messages at a time."""
    bodies = [body] * BATCH
    for _ in range(count // BATCH):
        producer.multipublish(task.topic, bodies)


def results(producer: gnsq.Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish without waiting, then wait for every answer."""
    waiting = [producer.publish(task.topic, body, raise_error=False) for _ in range(count)]
    for result in waiting:
        result.get()


MODES = {"sync": sync, "sync16": sync_greenlets, "multi": multi, "async": results}


def main() -> None:
    task = read_publish_task()
    if task.mode not in MODES:
        skip("gnsq", f"has no way to publish {task.mode}")
        return
    body = b"x" * task.size
    producer = gnsq.Producer([task.address])
    producer.start()
    started = time.perf_counter()
    MODES[task.mode](producer, task, body, task.count)
    seconds = time.perf_counter() - started
    producer.close()
    report("gnsq", version("gnsq"), task.count, seconds)


if __name__ == "__main__":
    main()
