"""The first signal is a flag, the second does what it did before."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from nsqclient.consuming.signals import first_signal


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_flag(signum):
    """It interrupts nothing."""
    with first_signal() as came:
        assert not came.wait(0)
        signal.raise_signal(signum)
        assert came.wait(0)


@pytest.fixture
def interrupting():
    """SIGINT raises KeyboardInterrupt, also in a process that was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_second_signal_interrupts(interrupting):
    """A second Ctrl-C finds the handler that was there before."""
    with pytest.raises(KeyboardInterrupt), first_signal() as came:
        signal.raise_signal(signal.SIGINT)
        assert came.wait(0)
        signal.raise_signal(signal.SIGINT)


def test_handlers_are_put_back_at_the_end():
    """What was installed before is in force after the block, signal or not."""
    before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    with first_signal():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_other_threads_catch_no_signal():
    """Outside the main thread the flag is never set, and nothing is installed."""
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def run():
        with first_signal() as came:
            seen.append((signal.getsignal(signal.SIGTERM), came.wait(0)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(before, False)]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("moment", range(12))
def test_a_signal_at_any_moment_of_the_wait(moment):
    """The handler may interrupt the very code that waits for it, and does not hang."""
    steps = []

    def trace(frame, event, argument):
        steps.append(event)
        if len(steps) == moment + 1:
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
        return trace

    with first_signal() as came:
        sys.settrace(trace)
        try:
            came.wait(0.01)
        finally:
            sys.settrace(None)
        if len(steps) <= moment:
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
