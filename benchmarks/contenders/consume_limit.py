"""What Python on a blocking socket could do at most: cut out the ids, send the FINs in bulk.

No handler, no message objects, no heartbeats, no errors: not a client, but a bound to measure
the distance to.
"""

from __future__ import annotations

import socket
import time

from report import read_consume_task, report, skip

RECEIVE = 256 * 1024
#: Position of the id in a message frame, after size, type, timestamp and attempts.
ID_AT, ID_END = 18, 34


def main() -> None:
    task = read_consume_task()
    if "," in task.address:
        skip("limit", "is one socket: several nsqds do not apply")
        return
    host, _, port = task.address.rpartition(":")
    left = task.count
    started = 0.0
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"  V2SUB %b %b\n" % (task.topic.encode(), task.channel.encode()))
        rest = connection.recv(10, socket.MSG_WAITALL)[10:]  # OK
        connection.sendall(b"RDY %d\n" % task.max_in_flight)
        while left > 0:
            data = rest + connection.recv(RECEIVE)
            if not started:
                started = time.perf_counter()
            ids = []
            position, end = 0, len(data)
            while end - position >= 4:
                stop = position + 4 + int.from_bytes(data[position:position + 4], "big")
                if stop > end:
                    break
                ids.append(data[position + ID_AT:position + ID_END])
                position = stop
            rest = data[position:]
            left -= len(ids)
            if ids:
                connection.sendall(b"FIN " + b"\nFIN ".join(ids) + b"\n")
        seconds = time.perf_counter() - started
    report("limit", "", task.count - left, seconds)


if __name__ == "__main__":
    main()
