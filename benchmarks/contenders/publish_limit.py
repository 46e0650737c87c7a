"""An upper bound for publishing threads: the bare exchange of nsqclient, a socket for each thread.

Not a client: it has no deadlines, errors, heartbeats or statistics. A publish takes a socket from a
stack, calls ``exchange`` (in C if nsqclient was built with a compiler) and puts the socket back.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque

from nsqclient.connection.exchange import exchange
from report import PublishTask, read_publish_task, report, skip

#: mode -> threads
THREADS = {"sync": 1, "sync2": 2, "sync4": 4, "sync16": 16, "sync64": 64}
#: Seconds that one publish may take.
LIMIT = 30.0
OK = b"\0\0\0\6\0\0\0\0OK"


def connect(address: str) -> socket.socket:
    """Open a connection without IDENTIFY."""
    host, _, port = address.rpartition(":")
    opened = socket.create_connection((host, int(port)))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.sendall(b"  V2")
    opened.setblocking(False)
    return opened


def publish(idle: deque[socket.socket], task: PublishTask, count: int) -> None:
    """Publish ``count`` messages, one after the other."""
    size = struct.pack(">i", task.size)
    command = b"PUB %b\n%b%b" % (task.topic.encode(), size, b"x" * task.size)
    for _ in range(count):
        opened = idle.pop()
        _, answer = exchange(opened.fileno(), command, 0, LIMIT)
        if answer != OK:
            raise SystemExit(f"nsqd answered {answer!r}")
        idle.append(opened)


def main() -> None:
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
