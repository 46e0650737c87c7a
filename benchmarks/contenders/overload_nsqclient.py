"""nsqclient's Consumer with more messages in flight than its slow handler finishes in time.

Arguments: address topic channel count max_in_flight workers handler_ms msg_timeout share.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from nsqclient import Config, Consumer, Message
from nsqclient.version import __version__


def main() -> None:
    """Consume until every message was handled or given up, and report."""
    address, topic, channel, *numbers = sys.argv[1:]
    count, max_in_flight, workers = map(int, numbers[:3])
    handler_time, msg_timeout, share = float(numbers[3]) / 1000, float(numbers[4]), numbers[5]
    seen: set[bytes] = set()
    unseen: set[bytes] = set()
    begun: list[float] = []
    taken: list[float] = []
    last = 0.0
    done = threading.Event()

    def note(message: Message, where: set[bytes]) -> None:
        nonlocal last
        if message.body not in seen:
            where.add(message.body)
        last = time.perf_counter()
        if len(seen) + len(unseen) >= count:
            done.set()

    def handler(message: Message) -> None:
        started = time.perf_counter()
        begun.append(started)
        time.sleep(handler_time)
        taken.append(time.perf_counter() - started)
        note(message, seen)

    options = {"msg_timeout": f"{msg_timeout}s"}
    if share:
        options["rdy_share_of_timeout"] = share
    consumer = Consumer(
        topic, channel, handler, nsqd_tcp_addresses=address.split(","),
        max_in_flight=max_in_flight, workers=workers, config=Config.from_strings(options),
        on_giving_up=lambda message: note(message, unseen),
    )
    with consumer:
        done.wait()
    print(json.dumps({
        "name": "nsqclient", "version": __version__, "messages": len(seen), "handled": len(begun),
        "unseen": len(unseen), "seconds": last - begun[0], "mean": sum(taken) / len(taken),
    }))


if __name__ == "__main__":
    main()
