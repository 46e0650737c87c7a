"""What threads of Python that wait for each publish could do at most, with a socket for each.

No deadlines, no errors, no heartbeats, no statistics: not a client, but a bound to measure the
distance to. A publish takes a socket from a stack, writes its command, reads the response and puts
the socket back. The sockets block without a timeout, which costs one system call and one release of
the interpreter for each write and each read.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque

from report import PublishTask, read_publish_task, report, skip

#: mode -> threads
THREADS = {"sync": 1, "sync2": 2, "sync4": 4, "sync16": 16, "sync64": 64}
OK = b"\0\0\0\6\0\0\0\0OK"


def connect(address: str) -> socket.socket:
    """Open a connection without IDENTIFY."""
    host, _, port = address.rpartition(":")
    opened = socket.create_connection((host, int(port)))
    opened.settimeout(None)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.sendall(b"  V2")
    return opened


def publish(idle: deque[socket.socket], task: PublishTask, count: int) -> None:
    """Publish ``count`` messages, one after the other."""
    size = struct.pack(">i", task.size)
    command = b"PUB %b\n%b%b" % (task.topic.encode(), size, b"x" * task.size)
    for _ in range(count):
        opened = idle.pop()
        opened.sendall(command)
        answer = opened.recv(4096)
        if answer != OK:
            raise SystemExit(f"nsqd answered {answer!r}")
        idle.append(opened)


def main() -> None:
    """Publish the task's messages and report."""
    task = read_publish_task()
    number = THREADS.get(task.mode, 0)
    if not number or task.layers:
        skip("limit", "is threads on plain sockets")
        return
    idle = deque([connect(task.address) for _ in range(number)])
    threads = [
        threading.Thread(target=publish, args=(idle, task, task.count // number))
        for _ in range(number)
    ]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    for opened in idle:
        opened.close()
    report("limit", "", task.count // number * number, seconds)


if __name__ == "__main__":
    main()
