"""How many lines per second to_nsq publishes: ours and the original, in turn, on one nsqd.

``python -m benchmarks.to_nsq [lines [rounds [lines of the original]]]``. The time runs from the
start of the process to its end, and nsqd must have counted every line. As the original waits for
each line it may be given fewer. Needs the programs that tools/build_nsq.py makes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.docs.tool_runs import command
from tests.support.servers.real_servers import RealNsqd


def measure(nsqd: RealNsqd, kind: str, topic: str, file: Path, count: int) -> float:
    """Publish a file of ``count`` lines; return the rate."""
    nsqd.post("/topic/create", topic=topic)
    nsqd.post("/channel/create", topic=topic, channel="c")
    words = command(kind, "to_nsq", f"--topic={topic}", f"--nsqd-tcp-address={nsqd.tcp_address}")
    with file.open("rb") as stdin:
        began = time.monotonic()
        subprocess.run(words, stdin=stdin, stderr=subprocess.DEVNULL, check=True, timeout=600)
        seconds = time.monotonic() - began
    counted = nsqd.stats(topic, "c")["message_count"]
    if counted != count:
        raise SystemExit(f"{kind}: nsqd has {counted} of {count} lines")
    nsqd.post("/topic/delete", topic=topic)
    return count / seconds


def main() -> None:
    """Print one line for each run, then the medians and their ratio."""
    numbers = [int(word) for word in sys.argv[1:]]
    count, rounds = (numbers + [1_000_000, 3][len(numbers):])[:2]
    counts = {"original": numbers[2] if len(numbers) > 2 else count, "ours": count}
    rates: dict[str, list[float]] = {kind: [] for kind in counts}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        files = {kind: Path(name) / kind for kind in counts}
        for kind, file in files.items():
            file.write_bytes(b"".join(b"%0100d\n" % n for n in range(counts[kind])))
        nsqd = RealNsqd(Path(name) / "nsqd", mem_queue_size=2 * count)
        nsqd.start()
        try:
            for turn in range(rounds):
                for kind, file in files.items():
                    rate = measure(nsqd, kind, f"{kind}{turn}", file, counts[kind])
                    rates[kind].append(rate)
                    print(f"{kind:<10}{rate:>10,.0f} lines/s", flush=True)
        finally:
            nsqd.kill()
    ours, original = (statistics.median(rates[kind]) for kind in ("ours", "original"))
    print(f"median: ours {ours:,.0f}, original {original:,.0f}: {ours / original:.1f} x")


if __name__ == "__main__":
    main()
