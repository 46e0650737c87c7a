"""Distributed systems: every host has an nsqd, workers find them all without configuration.

Each host publishes to its own nsqd, which registers with nsqlookupd. Two workers share one channel.
While they run, a host joins and another one leaves; no worker is configured or restarted.
Brings its own servers and ends by itself::

    python examples/topology_distributed.py
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

from nsqclient import Config, Consumer, Message, Producer
from nsqclient.devserver import Nsqd, Nsqlookupd

JOBS = 100
#: Ask often, so that the example ends soon; the default is once a minute.
HASTY = Config(lookupd_poll_interval=0.2)


class Team:
    """Counts what two workers have done; duplicates count once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: set[bytes] = set()
        self.by_worker: Counter[str] = Counter()

    def worker(self, name: str, lookupd: Nsqlookupd) -> Consumer:
        """Return a worker that finds its nsqds through nsqlookupd."""

        def handle(message: Message) -> None:
            with self._changed:
                self._jobs.add(message.body)
                self.by_worker[name] += 1
                self._changed.notify_all()

        return Consumer("jobs", "work", handle, max_in_flight=10, config=HASTY,
                        lookupd_http_addresses=[lookupd.http_address])

    def wait_for(self, count: int) -> int:
        """Wait until ``count`` jobs are done; return how many are."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._jobs) >= count, timeout=30)
            return len(self._jobs)


def publish(host: str, nsqd: Nsqd) -> None:
    """Stand for a program on a host: it knows the nsqd beside it, and nothing else."""
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish_many("jobs", [f"{host} {number}".encode() for number in range(JOBS)])


def main() -> None:
    """Let a host join and another one leave while two workers run."""
    logging.getLogger("nsqclient").setLevel(logging.ERROR)  # a host that leaves is meant
    team = Team()
    with Nsqlookupd() as lookupd:
        known = [lookupd.tcp_address]
        with Nsqd(lookupd_tcp_addresses=known) as first:
            publish("first", first)
            with team.worker("a", lookupd), team.worker("b", lookupd):
                print(f"one host: {team.wait_for(JOBS)} jobs done")
                with Nsqd(lookupd_tcp_addresses=known) as second:
                    publish("second", second)
                    print(f"a second host joined: {team.wait_for(2 * JOBS)} jobs done")
                    first.stop()
                    publish("third", second)
                    print(f"the first host left: {team.wait_for(3 * JOBS)} jobs done")
    print(f"workers: {sorted(team.by_worker)}")


if __name__ == "__main__":
    main()
