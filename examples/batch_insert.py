"""A batch job: messages are collected and inserted into SQLite, one transaction for each batch.

Brings its own embedded nsqd, and ends when everything it published is in the table.

    python examples/batch_insert.py
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import tempfile
import threading
from pathlib import Path

from nsqclient import BatchHandler, Consumer, Message, Producer
from nsqclient.devserver import Nsqd

MESSAGES = 5_000


class Table:
    """Inserts batches; a message that comes twice is one row, since its id is the key."""

    def __init__(self, path: Path) -> None:
        # Batches are handled on worker threads; one worker means one batch at a time.
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute("CREATE TABLE lines (id TEXT PRIMARY KEY, line TEXT)")
        self.batches = 0
        self.full = threading.Event()

    def insert(self, batch: list[Message]) -> None:
        """Store a batch; an exception requeues all of it, and nothing of it is stored."""
        rows = [(str(message.id), message.body.decode()) for message in batch]
        with self._database:
            self._database.executemany("INSERT OR IGNORE INTO lines VALUES (?, ?)", rows)
        self.batches += 1
        if self.count() >= MESSAGES:
            self.full.set()

    def count(self) -> int:
        """How many rows there are."""
        count: int = self._database.execute("SELECT count(*) FROM lines").fetchone()[0]
        return count

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def main() -> int:
    """Publish, consume in batches, and say what came of it."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        nsqd = stack.enter_context(Nsqd())
        table = Table(Path(folder) / "lines.db")
        stack.callback(table.close)
        with Producer([nsqd.tcp_address]) as producer:
            producer.publish_many("lines", [b"line %d" % n for n in range(MESSAGES)])
        consumer = Consumer(
            "lines", "sqlite", BatchHandler(table.insert, size=500, max_wait=0.5),
            nsqd_tcp_addresses=[nsqd.tcp_address], max_in_flight=1000,
        )
        with consumer:
            table.full.wait(30)
        print(f"{table.count():,} rows in {table.batches} transactions")
        return 0 if table.count() == MESSAGES else 1


if __name__ == "__main__":
    sys.exit(main())
