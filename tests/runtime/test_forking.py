"""Restored in a forked child: the signal handlers of the program."""

import signal
from collections.abc import Iterator

import pytest

from nsqclient.runtime import process_signals
from tests.support.processes import in_child


@pytest.fixture(autouse=True)
def former(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process_signals, "_taken", {})
    former = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, former)


def handle(number, frame):
    """A handler of the program's own."""


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN, handle])
def test_a_forked_child_has_the_handlers_that_the_program_had(before) -> None:
    signal.signal(signal.SIGTERM, before)
    process_signals.take(signal.SIGTERM, process_signals.disregard)
    former = process_signals.take(signal.SIGTERM, lambda number, frame: None)

    def child() -> None:
        assert signal.getsignal(signal.SIGTERM) == before

    assert in_child(child) == 0
    process_signals.give_back(signal.SIGTERM, former)
    assert signal.getsignal(signal.SIGTERM) == process_signals.disregard
    assert in_child(child) == 0


def test_a_forked_child_keeps_a_handler_that_the_program_has_set_since() -> None:
    process_signals.take(signal.SIGTERM, process_signals.disregard)
    signal.signal(signal.SIGTERM, handle)

    def child() -> None:
        assert signal.getsignal(signal.SIGTERM) == handle

    assert in_child(child) == 0
    process_signals.take(signal.SIGTERM, process_signals.disregard)  # the next one to take it
    assert in_child(child) == 0
