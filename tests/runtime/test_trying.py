"""Exceptions of signal handlers, told apart from those of our own calls."""

from __future__ import annotations

import signal
from collections import deque

import pytest

from nsqclient.runtime.trying import is_foreign, try_move


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


def test_nothing_to_move():
    """The end of a deque is moved, or there is none."""
    source, target = deque(["token"]), deque()
    assert try_move(source, target) and not try_move(source, target)
    assert list(target) == ["token"]
