"""What 16 threads of Python that wait for each publish could do at most, with one socket.

No deadlines, no errors, no heartbeats, no accounts: not a client, but a bound to measure the
distance to. It does only what has to be done: the messages that wait are sent as one MPUB; one of
their threads receives the answer; each thread that is woken wakes the next, by a system call that
leaves the interpreter free, and the last one sends what has come together meanwhile.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections import deque

from report import PublishTask, read_publish_task, report, skip

THREADS = 16
OK = b"\0\0\0\6\0\0\0\0OK"


class Publish:
    """A message under way, and where its thread sleeps."""

    __slots__ = ("bed", "is_done", "is_receiver")

    def __init__(self, bed: int) -> None:
        self.bed = bed
        self.is_done = self.is_receiver = False


class PublisherGroup:
    """The threads of one socket."""

    def __init__(self, task: PublishTask) -> None:
        host, _, port = task.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(b"  V2")
        self._head = b"MPUB %b\n" % task.topic.encode()
        self._body = struct.pack(">i", task.size) + b"x" * task.size
        self._waiting: deque[Publish] = deque()
        self._sent: list[Publish] = []
        self._line: deque[Publish] = deque()
        self._is_moving = False
        self._is_free = deque([True])

    def publish(self, count: int) -> None:
        """Publish so many messages, one after the other."""
        bed = os.eventfd(0)
        for _ in range(count):
            one = Publish(bed)
            self._waiting.append(one)
            if not self._is_moving:
                self._send()
            while not one.is_done:
                os.eventfd_read(bed)
                if one.is_receiver and not one.is_done:
                    self._receive(one)
            if not one.is_receiver:
                self._go_on()
        os.close(bed)

    def _send(self) -> None:
        try:
            self._is_free.pop()
        except IndexError:
            return
        together = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not together:
            self._is_free.append(True)
            return
        bodies = struct.pack(">i", len(together)) + self._body * len(together)
        self._sent = together
        self._socket.sendall(self._head + struct.pack(">i", len(bodies)) + bodies)
        together[0].is_receiver = True
        os.eventfd_write(together[0].bed, 1)

    def _receive(self, receiver: Publish) -> None:
        answer = self._socket.recv(len(OK), socket.MSG_WAITALL)
        if answer != OK:
            raise SystemExit(f"nsqd answered {answer!r}")
        for one in self._sent:
            one.is_done = True
            if one is not receiver:
                self._line.append(one)
        self._is_free.append(True)
        self._is_moving = True
        self._go_on()

    def _go_on(self) -> None:
        try:
            os.eventfd_write(self._line.popleft().bed, 1)
        except IndexError:
            self._is_moving = False
            self._send()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def main() -> None:
    """Publish the task's messages and report."""
    task = read_publish_task()
    if task.mode != "sync16" or task.layers:
        skip("limit", "is 16 threads on a plain socket")
        return
    group = PublisherGroup(task)
    threads = [
        threading.Thread(target=group.publish, args=(task.count // THREADS,))
        for _ in range(THREADS)
    ]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    group.close()
    report("limit", "", task.count, seconds)


if __name__ == "__main__":
    main()
