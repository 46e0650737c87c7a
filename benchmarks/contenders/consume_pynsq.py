"""pynsq's Reader with a handler that only counts. It has one thread: workers do not apply."""

from __future__ import annotations

from importlib.metadata import version

import nsq
from report import Clock, read_consume_task, report
from tornado.ioloop import IOLoop

#: How long after the last message the loop still runs, so that its FINs are written, in seconds.
LINGER = 0.3


def main() -> None:
    task = read_consume_task()
    clock = Clock(task.count)
    loop = IOLoop.current()

    def handler(message: nsq.Message) -> bool:
        if clock.tick():
            loop.call_later(LINGER, loop.stop)
        return True

    reader = nsq.Reader(
        task.topic,
        task.channel,
        message_handler=handler,
        nsqd_tcp_addresses=task.address.split(","),
        max_in_flight=task.max_in_flight,
    )
    loop.start()
    reader.close()
    report("pynsq", version("pynsq"), task.count, clock.seconds)


if __name__ == "__main__":
    main()
