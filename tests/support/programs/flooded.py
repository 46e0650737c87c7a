"""A consumer with RDY 1 under a flood: SIZE HANDLER CUTS.

SIZE the length of a body in bytes, HANDLER "hangs" or "async": it leaves
the answers to others. Another process sends as fast as the socket takes it, whatever it is sent.
It ends when the consumer has cut enough connections, or after 25 s. Prints its figures as a JSON
object; ``peak`` is the most memory that this process had, in bytes.
"""

import itertools
import json
import os
import signal
import socket
import sys
import threading
import time

from nsqclient import Config, Consumer
from nsqclient.protocol.frames import OK, encode_frame, encode_message
from tests.support.memory import resident

BLOCK = 1024 * 1024
LIMIT = 25.0


def blocks(size: int):
    body = b"x" * size
    # All ids of a block have the same first half.
    block = b"".join(
        encode_message(1, 1, b"########%08x" % number, body)
        for number in range(max(1, BLOCK // (size + 34)))
    )
    for number in itertools.count():
        yield block.replace(b"########", b"%08x" % number)


def attack(listener: socket.socket, size: int) -> None:
    while True:
        peer, _ = listener.accept()
        with peer:
            try:
                peer.recv(4096)
                peer.sendall(encode_frame(0, b"OK"))
                peer.recv(4096)
                peer.sendall(encode_frame(0, OK))
                for block in blocks(size):
                    peer.sendall(block)
            except OSError:
                pass


def main() -> None:
    size, handler, cuts = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    attacker = os.fork()
    if not attacker:
        attack(listener, size)
    release = threading.Event()
    errors: list[str] = []
    reasons: set[str] = set()

    def handle(message):
        if handler == "hangs":
            release.wait()
        else:
            message.enable_async()

    consumer = Consumer(
        "topic", "channel", handle, nsqd_tcp_addresses=["127.0.0.1:%d" % listener.getsockname()[1]],
        # Bytes that arrive within the settle time are not limited, and depend on the machine.
        config=Config(output_buffer_timeout=0.025, max_queued_bytes=64 * BLOCK),
        on_error=lambda error: errors.append(f"{type(error).__name__}: {error}"),
    ).start()
    try:
        began = time.monotonic()
        pause = threading.Event()  # never set
        while len(errors) < cuts and time.monotonic() < began + LIMIT:
            pause.wait(0.05)
            reasons.add(consumer.healthy().reason.split(":")[0])
        stats = consumer.stats()
        release.set()
        consumer.stop(2)
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
    print(json.dumps({
        "peak": resident()[1], "errors": errors, "reasons": sorted(reasons),
        "received": stats.total.received, "requeued_unstarted": stats.total.requeued_unstarted,
        "queued": stats.queued, "queued_bytes": stats.queued_bytes,
    }))


main()
