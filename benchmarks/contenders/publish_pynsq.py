"""pynsq's Writer. No call waits for the answer, so a callback sends the next message.

That makes one chain of messages (sync), or sixteen (sync16); async hands everything over at once.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import nsq
from report import PublishTask, read_publish_task, report, skip
from tornado.ioloop import IOLoop

BATCH = 1000
#: How many messages are under way at once.
CHAINS = {"sync": 1, "sync16": 16, "multi": 1}
#: How often to look whether the writer is connected, in seconds.
LOOK = 0.02


class Run:
    """One measurement on the loop's thread."""

    def __init__(self, task: PublishTask) -> None:
        self._task = task
        self._body = b"x" * task.size
        self._batch = [self._body] * BATCH
        self._loop = IOLoop.current()
        self._writer = nsq.Writer([task.address])
        self._unanswered = self._to_send = 0
        self._started = 0.0
        self.seconds = 0.0

    def run(self) -> None:
        """Connect, publish, return when every message has its answer."""
        self._loop.call_later(LOOK, self._start_when_connected)
        self._loop.start()

    def _start_when_connected(self) -> None:
        if not any(conn.connected() for conn in self._writer.conns.values()):
            self._loop.call_later(LOOK, self._start_when_connected)
            return
        commands = self._task.count // (BATCH if self._task.mode == "multi" else 1)
        self._unanswered = self._to_send = commands
        self._started = time.perf_counter()
        for _ in range(commands if self._task.mode == "async" else CHAINS[self._task.mode]):
            self._send()

    def _send(self) -> None:
        self._to_send -= 1
        if self._task.mode == "multi":
            self._writer.mpub(self._task.topic, self._batch, callback=self._answered)
        else:
            self._writer.pub(self._task.topic, self._body, callback=self._answered)

    def _answered(self, conn: Any, data: Any) -> None:
        if isinstance(data, Exception):
            raise data
        self._unanswered -= 1
        if self._unanswered == 0:
            self.seconds = time.perf_counter() - self._started
            self._loop.stop()
        elif self._to_send and self._task.mode != "async":
            self._send()


def main() -> None:
    task = read_publish_task()
    if task.mode not in (*CHAINS, "async"):
        skip("pynsq", f"has no way to publish {task.mode}")
        return
    run = Run(task)
    run.run()
    report("pynsq", version("pynsq"), task.count, run.seconds)


if __name__ == "__main__":
    main()
