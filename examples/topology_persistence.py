"""Persistence: an archive is one more channel, and the worker beside it does not notice.

``nsqclient nsq_to_file`` gets a copy of every message on a channel of its own and writes it into
files; a message is finished there only when the disk has it. The worker reads the same topic on
another channel. Brings its own servers and ends by itself::

    python examples/topology_persistence.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from nsqclient import Consumer, Message, Producer
from nsqclient.devserver import Nsqd, Nsqlookupd

ORDERS = 200


def archive_command(folder: str, lookupd: str) -> list[str]:
    """Return the command that archives the topic."""
    return [
        sys.executable, "-m", "nsqclient", "nsq_to_file", "--topic=orders", "--channel=archive",
        f"--output-dir={folder}", f"--lookupd-http-address={lookupd}",
        "--sync-interval=200ms", "--log-level=error",
    ]


def main() -> None:
    """Publish orders, handle them, and read them again from the archive."""
    handled: list[bytes] = []

    def handle(message: Message) -> None:
        handled.append(message.body)

    with tempfile.TemporaryDirectory() as folder, Nsqlookupd() as lookupd, Nsqd(
        lookupd_tcp_addresses=[lookupd.tcp_address]
    ) as nsqd:
        # A channel gets the messages that are published after its creation.
        nsqd.create_topic("orders")
        nsqd.create_channel("orders", "archive")
        nsqd.create_channel("orders", "ship")
        with subprocess.Popen(archive_command(folder, lookupd.http_address)) as archive:
            try:
                with Producer([nsqd.tcp_address]) as producer:
                    producer.publish_many("orders", [b"order %d" % n for n in range(ORDERS)])
                with Consumer("orders", "ship", handle, max_in_flight=50,
                              lookupd_http_addresses=[lookupd.http_address]):
                    nsqd.wait_until_empty("orders", "ship", timeout=30)
                nsqd.wait_until_empty("orders", "archive", timeout=30)
            finally:
                archive.terminate()
                archive.wait(30)
        lines = b"".join(path.read_bytes() for path in Path(folder).glob("*.log")).splitlines()
    print(f"handled {len(set(handled))} orders, archived {len(set(lines))}")
    print("the archive is complete" if set(lines) == set(handled) else "the archive has gaps")


if __name__ == "__main__":
    main()
