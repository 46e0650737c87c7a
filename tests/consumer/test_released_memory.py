"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import platform

import pytest

from nsqclient.consumer.backpressure import release_memory
from tests.support.memory import MIB, resident
from tests.support.packages import HAS_INTERPRETER_LOCK
from tests.support.processes import in_child, start_threads


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or not HAS_INTERPRETER_LOCK,
                    reason="Python does not allocate by glibc's functions")
def test_what_another_thread_freed_is_released():
    """Though the last thing that it allocated is still in use."""
    def work():
        kept = []

        def allocate():
            blocks = [b"x" * 100_000 for _ in range(1000)]
            kept.append(b"x" * 100_000)
            blocks.clear()

        start_threads(1, allocate)[0].join()
        before, _ = resident()
        release_memory()
        after, _ = resident()
        assert before - after > 50 * MIB, f"{before / MIB:.0f} MiB, then {after / MIB:.0f} MiB"

    assert in_child(work) == 0


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_nothing_is_released_with_other_c_libraries(monkeypatch, error):
    def fail(name):
        raise error("no malloc_trim")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    release_memory()
