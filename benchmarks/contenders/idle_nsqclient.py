"""How much memory an idle, subscribed connection costs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from report import say

from nsqclient import Config, Connection
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline
from nsqclient.version import __version__


class Nobody:
    """Listens to a connection on which nothing happens."""

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        """RDY is 0: none come."""

    def on_published(self, conn: Connection, token: Any, error: Any) -> None:
        """Nothing is published."""

    def on_command_failed(self, conn: Connection, error: Any) -> None:
        """Nothing is answered."""

    def on_close_wait(self, conn: Connection) -> None:
        """CLS is not sent."""

    def on_closed(self, conn: Connection, error: Any, unanswered: list[Any]) -> None:
        """The end."""


def resident() -> float:
    """Return this process's resident memory in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def connect(address: str, names: tuple[str, str]) -> Connection:
    """Open one connection, with its reader thread."""
    conn = Connection(address, Config(), Nobody())
    conn.open(Deadline(10), subscribe=names)
    conn.start()
    return conn


def main() -> None:
    address, topic, channel, number = sys.argv[1:]
    connections = [connect(address, (topic, channel))]  # all share the cost of the first
    before = resident()
    connections += [connect(address, (topic, channel)) for _ in range(int(number))]
    cost = (resident() - before) / int(number)
    for conn in connections:
        conn.close()
        conn.join(Deadline(10))
    say("nsqclient", __version__, mb_per_connection=cost)


if __name__ == "__main__":
    main()
