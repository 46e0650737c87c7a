"""``Lock``: no exception leaves it taken, and its owner never waits for itself."""

import os
import signal
import threading

import pytest

from nsqclient.errors import ReentrantCallError
from nsqclient.runtime.lock import Lock
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.packages import HAS_INTERPRETER_LOCK
from tests.support.waiting import wait_until


def is_taken(lock):
    """Return whether a thread that has nothing to do with it finds it taken."""
    found = []

    def look():
        found.append(not lock.acquire(blocking=False))
        if not found[0]:
            lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def test_its_block_excludes_other_threads_and_releases_it():
    lock, seen = Lock(), []

    def enter():
        with lock:
            seen.append("other")

    with pytest.raises(ValueError), lock:
        thread = threading.Thread(target=enter)
        thread.start()
        assert is_taken(lock)
        seen.append("first")
        raise ValueError
    thread.join()
    assert seen == ["first", "other"] and not is_taken(lock)


def test_its_owner_gets_an_error_in_place_of_waiting_for_itself():
    lock = Lock()
    with lock:
        with pytest.raises(ReentrantCallError, match="let another thread make this call"):
            with lock:
                pass
        assert is_taken(lock)
    assert not is_taken(lock)


def test_an_exception_anywhere_while_it_is_acquired_leaves_it_free():
    lock = Lock()

    def work():
        try:
            lock.__enter__()
        except KeyboardInterrupt:
            return lambda: None if not is_taken(lock) else pytest.fail("it is still taken")
        lock.release()
        return lambda: None

    # Without the interpreter lock each thread has bytecode of its own, and some is not traced.
    assert interrupt_everywhere(Lock.__enter__, work) >= (2 if HAS_INTERPRETER_LOCK else 1)


def test_a_signal_handler_that_raises_ends_the_wait_for_it():
    lock, release, is_interrupted = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            release.wait()

    def interrupt(signum, frame):
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    def send():
        # Again and again: a signal right before the wait does not end it.
        while not is_interrupted.wait(0.05):
            os.kill(os.getpid(), signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, interrupt)
    holder = threading.Thread(target=hold)
    holder.start()
    wait_until(lambda: is_taken(lock), 30)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt), lock:
            pass
    finally:
        is_interrupted.set()
        sender.join()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # drops what is pending
        signal.signal(signal.SIGUSR1, former)
        release.set()
        holder.join()
    assert not is_taken(lock)
