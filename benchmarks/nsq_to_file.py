"""How many messages per second nsq_to_file archives: ours and the original, in turn, on one nsqd.

``python -m benchmarks.nsq_to_file [messages [rounds]] [flags of the tool]``. The time runs from the
start of the process until its channel is empty. Needs the programs that tools/build_nsq.py makes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from nsqclient import Producer
from tests.support.docs.tool_runs import tool
from tests.support.servers.real_servers import RealNsqd
from tests.support.waiting import wait_until


def measure(nsqd: RealNsqd, kind: str, topic: str, folder: Path, count: int,
            more: list[str]) -> float:
    """Archive ``count`` messages of 100 bytes; return the rate."""
    nsqd.post("/topic/create", topic=topic)
    nsqd.post("/channel/create", topic=topic, channel="c")
    with Producer([nsqd.tcp_address]) as producer:
        for start in range(0, count, 10_000):
            producer.publish_many(
                topic, [b"%0100d" % n for n in range(start, min(start + 10_000, count))])
    began = time.monotonic()
    with tool(kind, "nsq_to_file", f"--topic={topic}", "--channel=c", f"--output-dir={folder}",
              f"--nsqd-tcp-address={nsqd.tcp_address}", *more) as process:
        wait_until(lambda: nsqd.stats(topic, "c")["depth"] == 0, timeout=300)
        rate = count / (time.monotonic() - began)
        process.terminate()
        process.wait(30)
    return rate


def main() -> None:
    """Print one line for each run."""
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    more = [word for word in sys.argv[1:] if not word.isdigit()]
    count, rounds = (numbers + [100_000, 3][len(numbers):])[:2]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        nsqd = RealNsqd(Path(name) / "nsqd", mem_queue_size=10 * count)
        nsqd.start()
        try:
            for turn in range(rounds):
                for kind in ("original", "ours"):
                    rate = measure(nsqd, kind, f"{kind}{turn}", Path(name) / "out", count, more)
                    print(f"{kind:<10}{rate:>10,.0f} messages/s", flush=True)
        finally:
            nsqd.kill()


if __name__ == "__main__":
    main()
