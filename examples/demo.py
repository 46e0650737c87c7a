"""The life of a message in one run: published, discovered, consumed, counted.

Starts an embedded nsqlookupd and two embedded nsqds, publishes every line of a text file from
four threads, consumes them through discovery with eight workers into a file, and counts.

    python examples/demo.py                      the sample file, on embedded servers
    INPUT=/var/log/syslog python examples/demo.py        a file of yours
    NSQD=127.0.0.1:4150 python examples/demo.py          a running nsqd instead

The exit status is 0 only when no line is missing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from nsqclient import Config, Consumer, Message, NSQError, Producer
from nsqclient.devserver import Nsqd, Nsqlookupd

HERE = Path(__file__).resolve().parent
PUBLISHERS = 4
WORKERS = 8
#: Lines that may be on the way at once. An ephemeral topic keeps 10,000 in memory and drops the
#: rest, so publishers stay below that.
WINDOW = 5000
#: Seconds without any line arriving after which the demo stops waiting for the missing ones. Also
#: the longest wait of a publisher for the window.
PATIENCE = 20.0


class Account:
    """Counts published and consumed messages. Thread-safe."""

    def __init__(self, output: Path) -> None:
        self._lock = threading.Lock()
        self._file = output.open("wb")
        self._window = threading.Semaphore(WINDOW)
        self.is_stopping = False
        self.published = 0
        self.seen: Counter[int] = Counter()
        self.changed = time.monotonic()
        self.problems: list[str] = []

    def before_publish(self) -> None:
        """Wait until fewer than WINDOW lines are on the way, at most PATIENCE seconds."""
        self._window.acquire(timeout=PATIENCE)

    def stop(self) -> None:
        """End the publishers."""
        self.is_stopping = True
        self._window.release(PUBLISHERS)

    def on_published(self) -> None:
        with self._lock:
            self.published += 1

    def on_problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)
        self._window.release()

    def handle(self, message: Message) -> None:
        """The handler: keep the line, and count it by its number."""
        number, _, line = message.body.partition(b"\t")
        with self._lock:
            first = not self.seen[int(number)]
            self.seen[int(number)] += 1
            self.changed = time.monotonic()
            if first:
                self._file.write(line + b"\n")
        if first:
            self._window.release()

    def close(self) -> None:
        self._file.close()


def publish(producer: Producer, topic: str, numbers: itertools.count[int], lines: list[bytes],
            account: Account) -> None:
    """Publish lines until none is left."""
    while not account.is_stopping and (number := next(numbers)) < len(lines):
        account.before_publish()
        try:
            producer.publish(topic, b"%d\t%b" % (number, lines[number]))
        except NSQError as exc:
            account.on_problem(f"line {number + 1}: {exc}")
        else:
            account.on_published()


def show_progress(total: int, account: Account, last: bool = False) -> None:
    """Print the progress: redraw one line on a terminal, otherwise print a new line."""
    text = f"published {account.published:>7,} / {total:,}   consumed {len(account.seen):>7,}"
    if sys.stderr.isatty():
        done = len(account.seen) * 30 // max(1, total)
        bar = "#" * done + "." * (30 - done)
        print(f"\r[{bar}] {text}", end="\n" if last else "", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def table(rows: list[tuple[str, str]]) -> str:
    """Two columns with a frame."""
    left = max(len(name) for name, _ in rows)
    right = max(len(value) for _, value in rows)
    rule = f"+{'-' * (left + 2)}+{'-' * (right + 2)}+"
    body = [f"| {name:<{left}} | {value:>{right}} |" for name, value in rows]
    return "\n".join([rule, *body, rule])


def run(lines: list[bytes], output: Path, nsqd_address: str | None) -> int:
    """Publish and consume all lines; return the exit status."""
    account = Account(output)
    topic = f"demo-{os.getpid()}#ephemeral"
    with contextlib.ExitStack() as stack:
        if nsqd_address is not None:
            nsqds, source = [nsqd_address], {"nsqd_tcp_addresses": [nsqd_address]}
        else:
            lookupd = stack.enter_context(Nsqlookupd())
            servers = [
                stack.enter_context(Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]))
                for _ in range(2)
            ]
            nsqds = [server.tcp_address for server in servers]
            source = {"lookupd_http_addresses": [lookupd.http_address]}
            print(f"nsqlookupd on {lookupd.http_address}, nsqds on {', '.join(nsqds)}",
                  file=sys.stderr)
        producer = stack.enter_context(Producer(nsqds))
        consumer = Consumer(
            topic, "archive#ephemeral", account.handle, **source,
            max_in_flight=500, workers=WORKERS, config=Config(lookupd_poll_interval=0.5),
        )
        began = time.monotonic()
        stack.enter_context(consumer)
        numbers = itertools.count()
        threads = [
            threading.Thread(target=publish, args=(producer, topic, numbers, lines, account))
            for _ in range(PUBLISHERS)
        ]
        stack.callback(account.stop)
        for thread in threads:
            thread.start()
        beat = threading.Event()
        while len(account.seen) < len(lines):
            beat.wait(0.2 if sys.stderr.isatty() else 1.0)
            show_progress(len(lines), account)
            alive = any(thread.is_alive() for thread in threads)
            if not alive and time.monotonic() - account.changed > PATIENCE:
                break
        took = account.changed - began
        for thread in threads:
            thread.join()
        show_progress(len(lines), account, last=True)
    account.close()
    missing = len(lines) - len(account.seen)
    print(table([
        ("lines in", f"{len(lines):,}"),
        ("messages out", f"{sum(account.seen.values()):,}"),
        ("duplicates", f"{sum(account.seen.values()) - len(account.seen):,}"),
        ("missing", f"{missing:,}"),
        ("messages/s", f"{len(account.seen) / took:,.0f}" if took > 0 else "-"),
    ]))
    print(f"consumed lines are in {os.path.relpath(output)}")
    for problem in account.problems[:10]:
        print(problem, file=sys.stderr)
    return 0 if missing == 0 else 1


def main() -> int:
    """Read the input, and run."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    path = Path(os.environ.get("INPUT") or HERE / "data" / "tzdata.txt")
    try:
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        print(f"cannot read INPUT: {exc}", file=sys.stderr)
        return 2
    if not lines:
        print(f"INPUT {path} has no lines", file=sys.stderr)
        return 2
    output = Path("demo-output")
    output.mkdir(exist_ok=True)
    try:
        return run(lines, output / "consumed.txt", os.environ.get("NSQD") or None)
    except NSQError as exc:
        print(f"demo: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
