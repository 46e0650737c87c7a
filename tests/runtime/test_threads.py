"""``LibraryThread``: starting threads where a signal handler may raise."""

from __future__ import annotations

import threading

import pytest

from nsqclient.runtime.threads import LibraryThread, is_library_thread
from tests.support.interrupts import Interruption
from tests.support.waiting import wait_until


def test_a_launched_thread_runs_its_target_with_its_arguments():
    """The thread has its name and is a daemon; ``launch()`` returns when it runs."""
    seen = []
    thread = LibraryThread(lambda *args: seen.append((args, is_library_thread())), "nsq-x", (1, 2))
    assert not thread.is_launched
    thread.launch()
    thread.join()
    assert seen == [((1, 2), True)] and thread.name == "nsq-x" and thread.daemon
    assert thread.is_launched and not thread.is_under_way


def test_a_second_launch_does_nothing():
    """A thread runs once."""
    seen = []
    thread = LibraryThread(lambda: seen.append(1), "nsq-x")
    thread.launch()
    thread.launch()
    thread.join()
    assert seen == [1]


def test_a_thread_that_cannot_start_may_be_launched_again(monkeypatch):
    """RuntimeError where the system has no thread left, and nothing is noted as launched."""
    def start(self):
        raise RuntimeError("can't start new thread")

    seen = []
    thread = LibraryThread(lambda: seen.append(1), "nsq-x")
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            thread.launch()
    assert not thread.is_launched
    thread.launch()
    thread.join()
    assert seen == [1]


def test_a_launch_that_is_interrupted_anywhere_has_happened_or_not():
    """Wherever Ctrl-C comes, ``is_launched`` tells the truth, and a second launch completes it."""
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
        if thread.is_launched:
            wait_until(lambda: seen)
        thread.launch()
        thread.join(30)
        assert seen == [1], interruption.place
        if not interruption.has_come:
            break
        number += 1
    assert number > 3


def test_a_thread_of_yours_is_none_of_the_library():
    """Whatever its name is."""
    seen = []
    thread = threading.Thread(target=lambda: seen.append(is_library_thread()), name="nsq-reader-x")
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_join_right_after_the_launch_waits_for_the_end(monkeypatch):
    """Also where the new thread has not come to its first instruction of ours."""
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


def test_a_join_of_a_thread_that_was_never_launched_returns_at_once():
    """As after a launch that failed."""
    LibraryThread(print, "nsq-x").join()
