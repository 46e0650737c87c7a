"""Notes calls in the thread of a test and in the threads that start meanwhile."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def calls_passed_to(note: Callable[[FrameType], None]) -> Iterator[None]:
    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            note(frame)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
