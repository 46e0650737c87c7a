"""Memory that was freed, and that the C library has not given back to the system."""

from __future__ import annotations


def release_memory() -> None:
    """Give back what was freed, where the C library has a function for that (glibc).

    glibc has a pool of memory for each of several threads and keeps much of what they free. Each
    connection has a thread of its own: when a long queue is freed and the next one grows through
    another connection, both would count. With it a flood of messages on connections that were
    cut one after the other took 330 MiB, without it 650 MiB.

    Blocks: tens of milliseconds; other threads go on.
    """
    import ctypes  # here: it takes milliseconds to import, and is seldom needed

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    trim(0)
