"""What a middleware costs: ``python benchmarks/middleware.py``.

A handler that does nothing is called with and without one, in this thread, without a network. The
figures are the lowest of several rounds, in microseconds of CPU for each message.
"""

from __future__ import annotations

import contextlib
import time
import timeit
from collections.abc import Iterator
from typing import Any

from nsqclient import Handling, Message
from nsqclient.consumer.middleware import Middleware, with_middleware

_CALLS, _ROUNDS = 20_000, 100


class WithEnter:
    """A context manager that does nothing."""

    def __init__(self, handling: Handling) -> None:
        self.handling = handling

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *exc_info: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def generator(handling: Handling) -> Iterator[None]:
    """The same as a generator."""
    yield


def handle(message: Message) -> None:
    """A handler that does nothing."""


def measure(*middleware: Middleware) -> float:
    """Return the microseconds of one call of the handler inside of ``middleware``."""
    handler: Any = with_middleware(handle, middleware, "topic", "channel")
    message: Any = object()
    times = timeit.repeat(
        lambda: handler(message), timer=time.process_time, number=_CALLS, repeat=_ROUNDS)
    return min(times) / _CALLS * 1e6


def main() -> None:
    """Measure and print."""
    bare = measure()
    print(f"no middleware           {bare:6.2f} us")
    for name, middleware in (
        ("a class", [WithEnter]), ("a generator", [generator]), ("three classes", [WithEnter] * 3),
    ):
        print(f"{name:<20} + {measure(*middleware) - bare:6.2f} us")


if __name__ == "__main__":
    main()
