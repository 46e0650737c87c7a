"""gnsq's Consumer with a handler that only counts. It runs handlers in its own greenlet."""

from __future__ import annotations

from importlib.metadata import version

import gevent
import gnsq
from gevent.event import Event
from report import Clock, read_consume_task, report

#: How long after the last message the connection stays, so that its FIN is written, in seconds.
LINGER = 0.3


def main() -> None:
    task = read_consume_task()
    clock = Clock(task.count)
    done = Event()

    def handler(consumer: gnsq.Consumer, message: gnsq.Message) -> None:
        if clock.tick():
            done.set()

    consumer = gnsq.Consumer(
        task.topic,
        task.channel,
        task.address.split(","),
        message_handler=handler,
        max_in_flight=task.max_in_flight,
    )
    consumer.start(block=False)
    done.wait()
    gevent.sleep(LINGER)
    consumer.close()
    report("gnsq", version("gnsq"), task.count, clock.seconds)


if __name__ == "__main__":
    main()
