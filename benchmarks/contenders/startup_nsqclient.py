"""How long it takes from nothing to the first message in the handler."""

import sys
import time

began = time.perf_counter()

import nsqclient  # noqa: E402 - its import is measured

imported = time.perf_counter() - began

import threading  # noqa: E402
from pathlib import Path  # noqa: E402

from report import say  # noqa: E402


def age() -> float:
    """Return for how many seconds this process has lived, to 10 ms."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - started / 100


def main() -> None:
    address, topic, channel = sys.argv[1:]
    first = threading.Event()
    consumer = nsqclient.Consumer(
        topic, channel, lambda message: first.set(), nsqd_tcp_addresses=[address]
    )
    with consumer:
        first.wait()
        seconds = age()
    say("nsqclient", nsqclient.__version__, import_s=imported, first_message_s=seconds)


if __name__ == "__main__":
    main()
