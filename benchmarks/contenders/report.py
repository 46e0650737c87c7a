"""The arguments and the output of a contender.

A contender is a program that is called with ``address topic channel count max_in_flight workers``
(consuming) or ``address topic count size mode`` (publishing), and prints one line of JSON. Behind
these may stand byte layers: ``snappy``, ``deflate``, ``tls=FILE`` with the authority to trust. It
shares nothing else with the harness, so each may live in a virtual environment of its own.
"""

from __future__ import annotations

import json
import sys
import time
from typing import NamedTuple


class ConsumeTask(NamedTuple):
    """The task of a consuming contender."""

    address: str
    topic: str
    channel: str
    count: int
    max_in_flight: int
    workers: int
    layers: list[str]


class PublishTask(NamedTuple):
    """The task of a publishing contender."""

    address: str
    topic: str
    count: int
    size: int
    mode: str
    layers: list[str]


def read_consume_task() -> ConsumeTask:
    """Read the command line."""
    address, topic, channel, count, max_in_flight, workers, *layers = sys.argv[1:]
    return ConsumeTask(
        address, topic, channel, int(count), int(max_in_flight), int(workers), layers
    )


def read_publish_task() -> PublishTask:
    """Read the command line."""
    address, topic, count, size, mode, *layers = sys.argv[1:]
    return PublishTask(address, topic, int(count), int(size), mode, layers)


class Clock:
    """Counts handled messages and notes when the first came and the last was done."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._left = count
        self.first = self.last = 0.0

    def tick(self) -> bool:
        """Count one message; return whether it was the last. One thread at a time."""
        if self._left == self._count:
            self.first = time.perf_counter()
        self._left -= 1
        if self._left:
            return False
        self.last = time.perf_counter()
        return True

    @property
    def seconds(self) -> float:
        """From the first message to the last."""
        return self.last - self.first


def say(name: str, version: str, **values: float) -> None:
    """Print the line that the harness reads."""
    print(json.dumps({"name": name, "version": version, **values}), flush=True)


def report(name: str, version: str, messages: int, seconds: float) -> None:
    """Print the line of a contender that counted messages."""
    say(name, version, messages=messages, seconds=seconds)


def skip(name: str, why: str) -> None:
    """Print, instead of a measurement, that the client does not offer this mode."""
    print(json.dumps({"name": name, "skipped": why}), flush=True)
