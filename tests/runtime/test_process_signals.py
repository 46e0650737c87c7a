"""What SIGINT and SIGTERM do before a command handles them itself, and after."""

import signal
from collections.abc import Iterator

import pytest

from nsqclient.runtime import process_signals


class Ended(BaseException):
    """The process would have ended, with this status."""


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has just begun; what would end it raises."""
    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr(process_signals, "_has_begun", False)
    monkeypatch.setattr(process_signals, "_came", False)
    monkeypatch.setattr(process_signals.os, "_exit", end)
    monkeypatch.setattr(process_signals.atexit, "register", lambda function: None)
    former = {number: signal.getsignal(number) for number in process_signals.SIGNALS}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", process_signals.SIGNALS)
def test_before_the_command_has_begun_a_signal_ends_it_with_status_0(number: int) -> None:
    process_signals.handle_signals()
    with pytest.raises(Ended, match="^0$"):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", process_signals.SIGNALS)
def test_after_the_end_only_a_second_signal_changes_the_status(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whichever of them came first, and whether it came before the end or after."""
    process_signals.handle_signals()
    process_signals.has_begun()
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Ended, match=f"^{128 + number}$"):
        signal.raise_signal(number)
    assert capfd.readouterr().err == "second signal: ending at once\n"


def test_a_signal_that_the_command_has_received_counts(process: None) -> None:
    process_signals.handle_signals()
    process_signals.has_begun()
    process_signals.note_signal()
    with pytest.raises(Ended, match="^130$"):
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_signals.handle_signals()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGTERM)
