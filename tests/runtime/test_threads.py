"""``LibraryThread``: starting threads although a signal handler may raise."""

import threading
import time

import pytest

from nsqclient.runtime import threads
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread, is_library_thread, run_in_thread
from tests.support.faults.interrupts import Interruption
from tests.support.waiting import wait_until


def test_a_launched_thread_runs_its_target_with_its_arguments():
    """The thread has its name and is a daemon; ``launch()`` returns when it runs."""
    seen = []
    thread = LibraryThread(lambda *args: seen.append((args, is_library_thread())), "nsq-x", (1, 2))
    thread.launch()
    thread.join()
    assert seen == [((1, 2), True)] and thread.name == "nsq-x" and thread.daemon
    assert not thread.is_alive()


def test_a_thread_that_cannot_start_may_be_launched_again(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    seen = []
    thread = LibraryThread(lambda: seen.append(1), "nsq-x")
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            thread.launch()
    thread.join()  # returns at once
    thread.launch()
    thread.join()
    assert seen == [1]


def test_a_launch_that_is_interrupted_anywhere_has_happened_or_not():
    """Wherever Ctrl-C comes: a second launch completes it, and it runs once."""
    number = 0
    while True:
        seen = []
        thread = LibraryThread(lambda seen=seen: seen.append(1), "nsq-x")
        interruption = Interruption(number)
        try:
            with interruption:
                thread.launch()
        except KeyboardInterrupt:
            pass
        thread.launch()
        thread.join(30)
        assert seen == [1], interruption.place
        if not interruption.has_come:
            break
        number += 1
    assert number > 3


def test_a_join_before_the_start_is_over_waits(monkeypatch):
    """The thread has its number a moment before Python lets others join it."""
    release = threading.Event()
    thread = LibraryThread(lambda: None, "nsq-x")
    note_start = thread._started.set
    monkeypatch.setattr(thread._started, "set", lambda: (release.wait(30), note_start()))
    launcher = threading.Thread(target=thread.launch)
    launcher.start()
    wait_until(lambda: thread.ident is not None)
    failures = []

    def join():
        try:
            thread.join()
        except RuntimeError as exc:
            failures.append(exc)

    joiner = threading.Thread(target=join)
    joiner.start()
    joiner.join(0.1)
    assert joiner.is_alive() and not failures
    release.set()
    for each in (joiner, launcher):
        each.join(30)
    assert not failures and not thread.is_alive()


def test_a_join_right_after_the_launch_waits_for_the_end(monkeypatch):
    release, held = threading.Event(), threading.Event()
    run = LibraryThread.run

    def slow(self):
        held.set()
        assert release.wait(30)
        run(self)

    monkeypatch.setattr(LibraryThread, "run", slow)
    seen, joined = [], []
    thread = LibraryThread(lambda: seen.append(1), "nsq-x")
    thread.launch()
    assert held.wait(30)
    joiner = threading.Thread(target=lambda: (thread.join(), joined.append(list(seen))))
    joiner.start()
    joiner.join(0.1)
    assert not joined
    release.set()
    joiner.join(30)
    assert joined == [[1]]


def test_it_runs_elsewhere_and_returns():
    thread = run_in_thread(threading.current_thread, Deadline(10), "nsq-closer")
    assert thread is not None and thread.name == "nsq-closer" and not thread.is_alive()


def test_it_raises_what_the_procedure_raises():
    """A bug is not lost on the way."""
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 / 0, Deadline(None), "nsq-closer")


def test_it_does_not_wait_past_its_deadline():
    """Whatever the procedure waits for, the caller goes on in time."""
    release = threading.Event()
    began = time.monotonic()
    assert run_in_thread(lambda: release.wait(20), Deadline(0), "nsq-closer") is None
    assert time.monotonic() - began < 5
    release.set()
    wait_until(lambda: not any(t.name == "nsq-closer" for t in threading.enumerate()))


def test_in_a_thread_of_ours_it_runs_in_place():
    seen = []

    def work():
        seen.append(run_in_thread(threading.current_thread, Deadline(10), "nsq-closer"))

    thread = LibraryThread(work, "nsq-reader-x")
    thread.launch()
    thread.join()
    assert seen == [thread]


def test_a_loop_goes_on_after_an_exception_also_of_what_reports_it(monkeypatch):
    monkeypatch.setattr(threads, "_PAUSE", 0.0)
    reported, loops = [], []

    def loop():
        loops.append(None)
        if len(loops) == 1:
            raise SystemExit("first")

    def report(error):
        reported.append(str(error))
        if len(reported) == 1:
            raise MemoryError("second")

    threads.keep_running(loop, report)
    assert reported == ["first", "second"] and len(loops) == 2
