"""nsqclient's Consumer with a handler that only counts."""

from __future__ import annotations

import threading

from options import config_of
from report import Clock, read_consume_task, report

from nsqclient import Consumer, Message
from nsqclient.version import __version__


def main() -> None:
    task = read_consume_task()
    clock = Clock(task.count)
    done = threading.Event()
    lock = threading.Lock()

    def handler(message: Message) -> None:
        if clock.tick():
            done.set()

    def locked_handler(message: Message) -> None:
        with lock:
            handler(message)

    consumer = Consumer(
        task.topic,
        task.channel,
        handler if task.workers == 1 else locked_handler,
        nsqd_tcp_addresses=task.address.split(","),
        max_in_flight=task.max_in_flight,
        workers=task.workers,
        config=config_of(task.layers),
    )
    consumer.start()
    done.wait()
    consumer.stop(30)
    report("nsqclient", __version__, task.count, clock.seconds)


if __name__ == "__main__":
    main()
