"""nsqclient's Producer: one thread, many threads, many messages at once."""

from __future__ import annotations

import threading
import time

from options import config_of
from report import PublishTask, read_publish_task, report, skip

from nsqclient import Producer
from nsqclient.version import __version__

BATCH = 1000
#: mode -> threads
THREADS = {"sync2": 2, "sync4": 4, "sync16": 16, "sync64": 64}


def sync(producer: Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish one message after the other."""
    for _ in range(count):
        producer.publish(task.topic, body)


def sync_threads(producer: Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish from many threads over one producer."""
    number = THREADS[task.mode]
    threads = [
        threading.Thread(target=sync, args=(producer, task, body, count // number))
        for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def multi(producer: Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish a thousand messages at a time."""
    bodies = [body] * BATCH
    for _ in range(count // BATCH):
        producer.publish_many(task.topic, bodies)


def asynchronous(producer: Producer, task: PublishTask, body: bytes, count: int) -> None:
    """Publish without waiting, then wait for all."""
    futures = [producer.publish_async(task.topic, body) for _ in range(count)]
    for future in futures:
        future.result()


MODES = {
    "sync": sync, **dict.fromkeys(THREADS, sync_threads), "multi": multi, "async": asynchronous,
}


def main() -> None:
    task = read_publish_task()
    if task.mode not in MODES:
        skip("nsqclient", f"has no way to publish {task.mode}")
        return
    body = b"x" * task.size
    with Producer([task.address], config=config_of(task.layers)) as producer:
        producer.ping()
        started = time.perf_counter()
        MODES[task.mode](producer, task, body, task.count)
        seconds = time.perf_counter() - started
    report("nsqclient", __version__, task.count, seconds)


if __name__ == "__main__":
    main()
