"""What SIGINT and SIGTERM do before a command handles them itself, and after."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import nsqclient
from nsqclient.runtime import process_signals
from nsqclient.runtime.process_signals import Second, Signals
from tests.support.processes import in_child, start_threads

PACKAGE = nsqclient.__path__[0]


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


@pytest.mark.parametrize("signum", [*process_signals.SIGNALS, None])
@pytest.mark.parametrize("second", Second)
def test_the_first_signal_asks_for_a_stop_and_the_end_puts_the_handlers_back(
    second: Second, signum: int | None
) -> None:
    before = [signal.getsignal(number) for number in process_signals.SIGNALS]
    with Signals(second) as signals:
        assert signal.getsignal(signal.SIGTERM) not in before
        assert not signals.wait(0)
        if signum is not None:
            os.kill(os.getpid(), signum)
            assert signals.wait(10) and signals.is_stopping
    assert [signal.getsignal(number) for number in process_signals.SIGNALS] == before


def test_a_second_signal_interrupts_if_the_program_wants_that() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), Signals(Second.FORMER) as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.wait(0)
        signal.raise_signal(signal.SIGINT)


def test_each_signal_is_noted_and_wakes_the_thread_that_waits() -> None:
    numbers = [signal.SIGTERM, signal.SIGCHLD, signal.SIGTERM]
    with Signals(Second.NOTED, others=[signal.SIGCHLD]) as signals:
        for number in numbers:
            signal.raise_signal(number)
        assert signals.take() == numbers


def test_a_stop_of_the_program_wakes_the_thread_that_waits() -> None:
    with Signals(Second.EXIT) as signals:
        start_threads(1, signals.stop)
        assert signals.wait(60)


def test_a_stop_after_the_end_writes_to_no_file_of_the_program(tmp_path) -> None:
    with Signals(Second.EXIT) as signals:
        pass
    with ExitStack() as stack:
        files = [stack.enter_context((tmp_path / str(n)).open("w")) for n in range(4)]
        signals.stop()
        assert signals.is_stopping and all(not Path(file.name).read_bytes() for file in files)


def test_a_wait_may_be_longer_than_the_system_allows() -> None:
    with Signals(Second.EXIT) as signals:
        start_threads(1, signals.stop)
        assert signals.wait(1e9)


def test_a_hangup_runs_its_hook_in_wait() -> None:
    hangups = []
    with Signals(Second.EXIT, on_hangup=lambda: hangups.append(1)) as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not signals.wait(10)
    assert hangups == [1]


def test_other_threads_catch_no_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def run() -> None:
        with Signals(Second.FORMER) as signals:
            seen.append((signal.getsignal(signal.SIGTERM), signals.wait(0)))

    start_threads(1, run)[0].join()
    assert seen == [(before, False)]


@pytest.mark.parametrize("second", [Second.FORMER, Second.NOTED])
def test_a_second_signal_within_the_handler_of_the_first_one_loses_neither(
    second: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal and a supervisor send both at once."""
    monkeypatch.undo()  # the child ends in the usual way

    def run() -> None:
        for moment in range(100):
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, frame: None)
            steps = []

            def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
                frame.f_trace_opcodes = True
                if event == "opcode" and frame.f_code.co_filename.startswith(PACKAGE):
                    steps.append(event)
                    if len(steps) == moment + 1:
                        sys.settrace(None)
                        signal.raise_signal(signal.SIGTERM)
                return trace

            with Signals(second) as signals:
                sys.settrace(trace)
                signal.raise_signal(signal.SIGINT)
                sys.settrace(None)
                assert signals.wait(0), moment

    assert in_child(run) == 0


def test_a_second_signal_of_a_real_process_ends_it() -> None:
    code = (
        "import os, signal\nfrom nsqclient.runtime.process_signals import Second, Signals\n"
        "with Signals(Second.EXIT) as signals:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    signals.wait()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    signal.pause()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 128 + signal.SIGTERM
    assert b"second signal" in done.stderr
