"""Exceptions of signal handlers, distinguished from those of our own calls."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque

import pytest

from nsqclient.runtime.interrupts import is_foreign, try_lock
from tests.support.faults.interrupts import interrupt_everywhere


def test_an_error_of_a_call_in_c_is_not_foreign():
    """It has the traceback of one frame."""
    with pytest.raises(IndexError) as caught:
        deque().popleft()
    own = caught.value.with_traceback(caught.value.__traceback__)
    assert not is_foreign(own)


def test_an_error_of_a_signal_handler_is_foreign():
    """Also one of the same type."""
    def handle(*args):
        raise IndexError("of the handler")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(IndexError) as caught:
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_foreign(caught.value)


def test_an_interrupted_attempt_to_take_a_lock_is_noted_if_it_succeeded():
    """The ``finally`` around it releases the lock if and only if it was taken."""
    def attempt():
        lock, held = threading.Lock(), []
        with contextlib.suppress(KeyboardInterrupt):
            try_lock(lock, held)

        def check():
            assert lock.locked() == (held == [True])

        return check

    assert interrupt_everywhere(try_lock, attempt) > 1
