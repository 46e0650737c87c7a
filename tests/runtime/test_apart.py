"""A procedure in a thread of its own, waited for up to a deadline."""

from __future__ import annotations

import threading
import time

import pytest

from nsqclient.runtime.apart import run_apart
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread
from tests.support.waiting import wait_until


def test_it_runs_elsewhere_and_returns():
    """The caller gets what the procedure returns, from another thread."""
    thread = run_apart(threading.current_thread, Deadline(10), "nsq-apart")
    assert thread is not None and thread.name == "nsq-apart" and not thread.is_alive()


def test_it_raises_what_the_procedure_raises():
    """A bug is not lost on the way."""
    with pytest.raises(ZeroDivisionError):
        run_apart(lambda: 1 / 0, Deadline(None), "nsq-apart")


def test_it_does_not_wait_past_its_deadline():
    """Whatever the procedure waits for, the caller goes on in time."""
    release = threading.Event()
    began = time.monotonic()
    assert run_apart(lambda: release.wait(20), Deadline(0), "nsq-apart") is None
    assert time.monotonic() - began < 5
    release.set()
    wait_until(lambda: not any(t.name == "nsq-apart" for t in threading.enumerate()))


def test_in_a_thread_of_ours_it_runs_in_place():
    """The procedure may join such a thread, and knows it by being in it."""
    seen = []

    def work():
        seen.append(run_apart(threading.current_thread, Deadline(10), "nsq-apart"))

    thread = LibraryThread(work, "nsq-reader-x")
    thread.launch()
    thread.join()
    assert seen == [thread]


def test_in_a_thread_of_yours_it_runs_apart_whatever_the_name():
    """A thread is not one of the library's because of its name."""
    seen = []

    def work():
        seen.append(run_apart(threading.current_thread, Deadline(10), "nsq-apart"))

    thread = threading.Thread(target=work, name="nsq-reader-x")
    thread.start()
    thread.join()
    assert [one.name for one in seen] == ["nsq-apart"]


def test_where_no_thread_can_start_it_runs_in_place(monkeypatch):
    """At the end of the interpreter there are no new threads."""
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run_apart(threading.current_thread, Deadline(10), "x") is threading.current_thread()
