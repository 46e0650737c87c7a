"""Waiting for a condition, the only way tests wait."""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: How long to pause between two looks, in seconds, at first: short for a test.
PAUSE = 0.01
#: From here on, the condition is checked less often: a look may be a request or a script.
LONGEST_PAUSE = 0.05
#: Default limit for a condition, in seconds: a busy machine is slow.
LIMIT = float(os.environ.get("NSQ_TEST_WAIT", "30"))


def wait_until(condition: Callable[[], T], timeout: float = LIMIT, message: str = "") -> T:
    """Call ``condition`` until it returns something true, and return that.

    Raises:
        AssertionError: it was still false after ``timeout`` seconds; says ``message``.
    """
    began = time.monotonic()
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        elapsed = time.monotonic() - began
        if elapsed >= timeout:
            what = message or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"not within {timeout:g} s: {what} (last value: {value!r})")
        pause.wait(min(max(PAUSE, elapsed / 10), LONGEST_PAUSE))
