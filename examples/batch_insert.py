"""A batch job: insert messages of two nsqds into SQLite, one transaction for each batch.

It starts its own embedded nsqds, and ends when every published message is in the table.

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
    """A table of lines; a message that is delivered twice is one row.

    A message id is unique only within one topic of one nsqd, so the key has all three.
    """

    def __init__(self, path: Path) -> None:
        # A worker thread handles each batch; one worker means one batch at a time.
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute(
            "CREATE TABLE lines"
            " (nsqd TEXT, topic TEXT, id TEXT, line TEXT, PRIMARY KEY (nsqd, topic, id))")
        self.batches = 0
        self.full = threading.Event()

    def insert(self, batch: list[Message]) -> None:
        """Insert a batch in one transaction; an exception requeues the whole batch."""
        rows = [(message.nsqd_address, message.topic, str(message.id), message.body.decode())
                for message in batch]
        with self._database:
            self._database.executemany("INSERT OR IGNORE INTO lines VALUES (?, ?, ?, ?)", rows)
        self.batches += 1
        if self.count() >= MESSAGES:
            self.full.set()

    def count(self) -> int:
        """Return the number of rows."""
        count: int = self._database.execute("SELECT count(*) FROM lines").fetchone()[0]
        return count

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def main() -> int:
    """Publish, consume in batches, and print the number of rows."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        addresses = [stack.enter_context(Nsqd()).tcp_address for _ in range(2)]
        table = Table(Path(folder) / "lines.db")
        stack.callback(table.close)
        for number, address in enumerate(addresses):
            with Producer([address]) as producer:
                producer.publish_many(
                    "lines", [b"line %d" % n for n in range(number, MESSAGES, len(addresses))])
        consumer = Consumer(
            "lines", "sqlite", BatchHandler(table.insert, size=500, max_wait=0.5),
            nsqd_tcp_addresses=addresses, max_in_flight=1000,
        )
        with consumer:
            table.full.wait(30)
        print(f"{table.count():,} rows in {table.batches} transactions")
        return 0 if table.count() == MESSAGES else 1


if __name__ == "__main__":
    sys.exit(main())
