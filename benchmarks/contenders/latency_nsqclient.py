"""How long a message takes from publish to the start of nsqclient's handler."""

from __future__ import annotations

import struct
import sys
import threading
import time

from report import say

from nsqclient import Config, Consumer, Message
from nsqclient.version import __version__


def main() -> None:
    address, topic, channel, number = sys.argv[1:]
    count = int(number)
    took: list[float] = []
    done = threading.Event()

    def handler(message: Message) -> None:
        now = time.time_ns()
        took.append((now - struct.unpack(">q", message.body)[0]) / 1000)
        if len(took) == count:
            done.set()

    with Consumer(
        topic, channel, handler, nsqd_tcp_addresses=[address],
        config=Config(output_buffer_size=-1),
    ):
        done.wait()
    took.sort()
    say("nsqclient", __version__, p50_us=took[count // 2], p99_us=took[count * 99 // 100])


if __name__ == "__main__":
    main()
